"""A mail server's names, and a delivery that uses each of them in every possible place.

Run as a program: leaky.py SPOOL HOME.
"""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

PR_SET_NAME = 15

# Long and short, with every kind of character. None of them occurs by chance in base64, hashes or
# programs, except "annika", with a probability of 1 in 2^36 at each position.
USERS = (
    "annika",
    "bob.smith@example.org",
    "q~7z",
    "zoë",
    "wilhelmina.von-und-zu.hohenstaufen+lists@subdomain.kaefer-soehne.example",
)
HOSTS = ("mailhost7", "mx1.kaefer-soehne.example", "relay~9")
MAILBOXES = ("Sekretariat Müller", "INBOX.&AOQ-rzte", "Lohn~2026")
RAW = b"M\xfcllerstra\xdfe"  # Latin-1, not UTF-8
QUEUE_ID = "3XyZ9~Fq"
PROGRAM = "annikafilter"
THREAD = "relay~9-thread"  # holds a host's name
MESSAGE = "1700000000.M1P2.mailhost7"

SECRETS: tuple[str | bytes, ...] = (
    *USERS,
    *HOSTS,
    *MAILBOXES,
    *("bob.smith", "kaefer-soehne", "hohenstaufen", "example.org", "Müller", "AOQ-rzte"),
    RAW,
    QUEUE_ID,
    PROGRAM,
    THREAD,
    MESSAGE,
)


def deliver(home: Path, host: str) -> None:
    """Deliver one message to a Maildir, with a dotlock."""
    lock = home / f".lock.{host}.4711"
    lock.touch(exist_ok=False)
    name = MESSAGE if host == "mailhost7" else f"1700000001.M1P3.{host}"
    message = home / "tmp" / name
    message.write_text("hello")
    message = message.rename(home / "new" / name)
    message.rename(home / "cur" / f"{name},S=5:2,S")
    lock.unlink()


def main(spool: Path, elsewhere: Path) -> None:
    """Use all names as directories, files, links, attributes, programs and threads."""
    (spool / "private" / QUEUE_ID).mkdir(parents=True)
    for user in USERS:
        home = spool / HOSTS[1] / user / "Maildir"
        for i, box in enumerate((home, *(home / f".{name}" for name in MAILBOXES))):
            for part in ("tmp", "new", "cur"):
                (box / part).mkdir(parents=True)
            deliver(box, HOSTS[i % len(HOSTS)])
        os.chdir(home.parent)
        Path(f"{user}-link").symlink_to(f"../{user}/Maildir")
        os.setxattr("Maildir", f"user.{user}".encode(), b"1")
        Path(f"{user}.lock").touch()
        Path(f"dovecot.index.{user}").touch()
    (spool / os.fsdecode(RAW)).touch()
    os.chdir(elsewhere)
    Path("outside").touch()
    program = Path(shutil.copy("/bin/bash", spool / PROGRAM))
    subprocess.run([program, "-c", f": > {spool}/by-{PROGRAM}; exit 0"], check=True)
    ctypes.CDLL(None).prctl(PR_SET_NAME, THREAD.encode(), 0, 0, 0)
    spool.stat()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
