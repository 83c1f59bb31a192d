"""Options of mkfs and mount as users write them; they are split without a shell."""

import re
import shlex

from spoolscope.replay.candidate import SAFE

ATIMES = ("noatime", "atime", "relatime", "strictatime")
# Options by which a replay would write elsewhere, or not at all.
REFUSED = (
    *("ro", "bind", "rbind", "move", "remount", "suid", "dev", "helper", "uhelper", "fd"),
    *("loop", "offset", "sizelimit", "encryption", "logdev", "rtdev", "jdev", "journal_dev"),
    *("journal_path", "device", "user", "users", "owner", "group", "defaults"),
)
# With these words mkfs uses another device than the candidate's: mke2fs(8), mkfs.xfs(8).
ANOTHER = re.compile(r"(^|,)(device|logdev|rtdev|name|file)=|(^|=)(UUID|LABEL|PARTUUID|PARTLABEL)=")


class WrongError(Exception):
    """Error in a candidate: its message is the key and why it is wrong."""


def split_words(text: str) -> tuple[str, ...]:
    """Return the words for mkfs.

    Raises:
        WrongError: quotes do not match, the first is no option, or one names a path: mkfs gets
            one device, that of the candidate.
    """
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise WrongError(f"mkfs: {error}") from None
    for word in words:
        if "/" in word:
            raise WrongError(
                f"mkfs: {word!r} names a path; mkfs is given the candidate's own device"
                " (journal = SIZE asks for another one)"
            )
        if ANOTHER.search(word):
            raise WrongError(f"mkfs: {word!r} names a device; mkfs is given the candidate's own")
    if words and not words[0].startswith("-"):
        raise WrongError(f"mkfs: {words[0]!r} is no option")
    return words


def split_options(text: str) -> tuple[str, ...]:
    """Return the options for mount -o.

    Raises:
        WrongError: one names a path, has a blank in it, or may not be chosen by a candidate.
    """
    options = tuple(option.strip() for option in text.split(",") if option.strip())
    for option in options:
        # For mount(8) a quote begins a value that may hold all options that follow.
        if re.search(r"""[/"'\\\x00-\x20\x7f]""", option) or option.startswith("-"):
            raise WrongError(f"mount: {option!r} is no plain option, such as data=journal")
        if _key(option) in REFUSED or _key(option).lower().startswith("x-"):
            raise WrongError(f"mount: {_key(option)!r} is not for a candidate to choose")
    return options


def joined_options(before: str, more: tuple[str, ...]) -> str:
    """Return the text for mount -o; the last of options that exclude one another counts."""
    given = [option for option in before.split(",") if option not in SAFE.split(",")]
    kept: dict[str, str] = {}
    for option in (*given, *more):
        kept.pop(_key(option), None)
        kept[_key(option)] = option
    return ",".join((*kept.values(), SAFE))


def _key(option: str) -> str:
    """Return the key that options which exclude one another have in common."""
    name = option.split("=", 1)[0]
    return "atime" if name in ATIMES else name
