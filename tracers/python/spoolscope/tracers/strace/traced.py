"""Threads of the lines that name none."""

import re

_ENDED = ("+++ exited", "+++ killed")
_SUPERSEDED = re.compile(r"\+\+\+ superseded by execve in pid (\d{1,9})")
"""A thread that is not the first of its process called execve, and has that one's number now."""


class Traced:
    """Threads that strace traces; to a terminal it names none while there is only one.

    Args:
        pid: Process of the lines that name none, if several threads may be meant; 0 if unknown.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._alive = {pid} - {0}

    def thread(self, named: int, text: str) -> int:
        """Return the thread of a line; 0 if it is unknown.

        Args:
            named: The thread that the line names, 0 if it names none.
            text: Rest of the line.
        """
        if found := _SUPERSEDED.match(text):
            self._alive.discard(int(found[1]))
        tid = named or self.nameless()
        if tid and text.startswith(_ENDED):
            self._alive.discard(tid)
        elif tid:
            self._alive.add(tid)
        return tid

    def nameless(self) -> int:
        """Return the thread of a line that names none; 0 if it is unknown."""
        return next(iter(self._alive)) if len(self._alive) == 1 else self._pid

    def said(self, pid: int, what: str) -> None:
        """Take a message of strace on a process: attached, detached."""
        if what == "attached":
            self._alive.add(pid)
        elif what == "detached":
            self._alive.discard(pid)

    def all_ended(self) -> bool:
        """Return whether every thread that was named has ended."""
        return not self._alive
