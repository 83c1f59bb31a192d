"""Options of mkfs and mount as people write them; no shell sees them."""

import re
import shlex

from spoolscope.replay.candidate import SAFE

ATIMES = ("noatime", "atime", "relatime", "strictatime")
# What would have a replay write elsewhere, or not at all.
REFUSED = (
    *("ro", "bind", "rbind", "move", "remount", "suid", "dev", "helper", "uhelper", "fd"),
    *("loop", "offset", "sizelimit", "encryption", "logdev", "rtdev", "jdev", "journal_dev"),
    *("journal_path", "device", "user", "users", "owner", "group", "defaults"),
)
# By these words mkfs finds another device than the candidate's: mke2fs(8), mkfs.xfs(8).
ANOTHER = re.compile(r"(^|,)(device|logdev|rtdev|name|file)=|(^|=)(UUID|LABEL|PARTUUID|PARTLABEL)=")


class WrongError(Exception):
    """What is wrong with a candidate: the key and why."""


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
        WrongError: one names a path, has a blank in it, or is not for a replay to choose.
    """
    options = tuple(option.strip() for option in text.split(",") if option.strip())
    for option in options:
        # mount(8) takes a quote for the begin of a value that may hold all options that follow.
        if re.search(r"""[/"'\\\x00-\x20\x7f]""", option) or option.startswith("-"):
            raise WrongError(f"mount: {option!r} is no plain option, such as data=journal")
        if _key(option) in REFUSED or _key(option).lower().startswith("x-"):
            raise WrongError(f"mount: {_key(option)!r} is not for a candidate to choose")
    return options


def joined_options(before: str, more: tuple[str, ...]) -> str:
    """Return the text for mount -o: of options that exclude one another the last one counts."""
    given = [option for option in before.split(",") if option not in SAFE.split(",")]
    kept: dict[str, str] = {}
    for option in (*given, *more):
        kept.pop(_key(option), None)
        kept[_key(option)] = option
    return ",".join((*kept.values(), SAFE))


def _key(option: str) -> str:
    """What options that exclude one another have in common."""
    name = option.split("=", 1)[0]
    return "atime" if name in ATIMES else name
