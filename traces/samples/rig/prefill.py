"""Fill Maildirs as if they had been in use: read and unread mail in several folders."""

import argparse
import os
import random
from pathlib import Path

import messages

# Folder -> mean number of messages; Dovecot's Maildir++ names start with a dot.
FOLDERS = {"": 25, ".Sent": 8, ".Archive": 12, ".Trash": 2}
BEGAN = 1_700_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("--users", type=int, default=60)
    parser.add_argument("--uid", type=int, default=5000)
    options = parser.parse_args()
    rng = random.Random(7)
    os.umask(0o077)
    os.setegid(options.uid)
    os.seteuid(options.uid)
    for number in range(1, options.users + 1):
        for folder, mean in FOLDERS.items():
            fill(options.root / f"user{number:03d}" / "Maildir" / folder, mean, number, rng)


def fill(folder: Path, mean: int, number: int, rng: random.Random) -> None:
    """Make one folder with an exponentially distributed number of messages."""
    for name in ("new", "cur", "tmp"):
        (folder / name).mkdir(parents=True)
    if folder.name.startswith("."):
        (folder / "maildirfolder").touch()
    for n in range(int(rng.expovariate(1 / mean))):
        body = messages.message(rng, messages.user(rng.randint(1, 60)), messages.user(number))
        name = f"{BEGAN + rng.randrange(10**7)}.M{n}P{rng.randrange(30000)}.mail,S={len(body)}"
        flags = rng.choice(("", "S", "S", "S", "RS", "FS"))
        (folder / "cur" / f"{name}:2,{flags}").write_bytes(body)


if __name__ == "__main__":
    main()
