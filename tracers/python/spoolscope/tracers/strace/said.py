"""Text of strace's that is no line of a thread: messages, stacks, dumps of content, sums."""

import re

# Messages on a line or, without -o, within the line of a thread. Terminals show Ctrl-C as ^C.
_MESSAGE = re.compile(
    r"(?:\^C)*(?:(?:strace: )?Process (?P<pid>\d+) (?P<what>attached|detached|suspended|resumed)"
    r"(?: \([^)]*\)| with \d+ threads| - interrupt to quit)?"
    r'|strace: (?:umove\w+: short read|WARNING: )[^">]*'
    r"|\[ Process PID=\d+ runs in .*\])\s*$"
)
_BESIDE = re.compile(
    r"\s*$| > "  # the stack of a call (-k), and the empty line at its end
    r"|(?:\^C)*strace: "
    r"| \| [0-9a-f]{5,}  | \* \d+ bytes in buffer \d+$| = \d+ buffers in vector \d+$"  # -e write=
    r"| ?<detached \.\.\.>\s*$"  # of a line that is whole
    r"|% time +seconds |------ -----------|\s*\d+\.\d\d +\d+\.\d{6} +\d|System call usage summary"
)


def message(text: str) -> "re.Match[str] | None":
    """Return the message at the end of a line: pid and what, if it tells of a process."""
    return _MESSAGE.search(text) if "strace: " in text or "Process " in text else None


def is_beside(text: str) -> bool:
    """Return whether a whole line is none of a thread."""
    return _BESIDE.match(text) is not None
