"""Deliverers and readers of one mailbox below DIRECTORY, each by another name of it."""

import os
import sys
from pathlib import Path

root = Path(sys.argv[1])
MAILS, BODY = 300, b"x" * 2000
# Names of a domain: its own, a relative and an absolute symlink, and a way through two of these.
NAMES = ("example.com", "example.org", "example.net", "all/net")


def main() -> None:
    make()
    roles = [(deliver, name) for name in NAMES[:2]] + [(read, name) for name in NAMES]
    for role, name in roles:
        if not os.fork():
            role(root / name / "alice", name)
            os._exit(0)
    for _ in roles:
        assert os.wait()[1] == 0
    swap()


def make() -> None:
    for sub in ("tmp", "new", "cur"):
        (root / "example.com/alice" / sub).mkdir(parents=True)
    (root / "example.org").symlink_to("example.com")
    (root / "example.net").symlink_to(root / "example.com")
    (root / "all").mkdir()
    (root / "all/net").symlink_to("../example.net")


def deliver(box: Path, name: str) -> None:
    for at in range(MAILS):
        (box / "tmp" / f"{at}.{name}").write_bytes(BODY)
        (box / "tmp" / f"{at}.{name}").rename(box / "new" / f"{at}.{name}")


def read(box: Path, _name: str) -> None:
    """Take each mail that no other process took, until all are there."""
    while len(list((box / "cur").iterdir())) < 2 * MAILS:
        for mail in list((box / "new").iterdir()):
            try:
                mail.rename(box / "cur" / mail.name)
                assert (box / "cur" / mail.name).stat().st_size == len(BODY)
            except FileNotFoundError:
                continue


def swap() -> None:
    """Change the target of a symlink atomically, again and again."""
    for at in range(100):
        (root / f"state.{at}").write_text(str(at))
        (root / "next").symlink_to(f"state.{at}")
        (root / "next").rename(root / "state")
        assert (root / "state").read_text() == str(at)


main()
