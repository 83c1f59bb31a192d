"""Messages of plausible size and form; no real mail, no real names. Standard library only."""

import base64
import random
from email.utils import formatdate

DOMAIN = "example.com"
WORDS = (
    "report", "meeting", "invoice", "server", "spool", "queue", "backup", "monday", "budget",
    "project", "release", "review", "offer", "contract", "travel", "lunch", "photo", "update",
    "question", "answer", "order", "shipping", "access", "account",
)  # fmt: skip
MEDIAN_BYTES, SPREAD, MOST_BYTES = 4000, 1.0, 300_000
"""Sizes are log-normal; one message in ten is ten times as large, as with an attachment."""
TEXT_BYTES = 8000
DATED = 1_700_000_000
"""Begin of the ten days in which all messages are dated, seconds since the epoch."""


def user(number: int) -> str:
    """Return the name of a user, from 1."""
    return f"user{number:04d}"


def address(name: str) -> str:
    """Return the address of a user."""
    return f"{name}@{DOMAIN}"


def message(rng: random.Random, sender: str, recipient: str) -> bytes:
    """Return a whole message with CRLF line ends."""
    size = MEDIAN_BYTES * rng.lognormvariate(0, SPREAD) * (10 if rng.random() < 0.1 else 1)
    rest = int(min(MOST_BYTES, size))
    head = (
        f"From: <{address(sender)}>",
        f"To: <{address(recipient)}>",
        f"Subject: {' '.join(rng.choices(WORDS, k=rng.randint(2, 6)))}",
        f"Date: {formatdate(DATED + rng.randrange(10**6))}",
        f"Message-ID: <{rng.getrandbits(64):016x}@{DOMAIN}>",
        "MIME-Version: 1.0",
        "Content-Type: text/plain; charset=us-ascii",
    )
    body = _text(rng, min(rest, TEXT_BYTES)) + _attachment(rng, rest - TEXT_BYTES)
    return "\r\n".join([*head, "", *body, ""]).encode()


def _text(rng: random.Random, size: int) -> list[str]:
    lines = []
    while size > 0:
        lines.append(" ".join(rng.choices(WORDS, k=10)))
        size -= len(lines[-1]) + 2
    return lines


def _attachment(rng: random.Random, size: int) -> list[str]:
    text = base64.b64encode(rng.randbytes(max(0, size) * 3 // 4)).decode()
    return [text[i : i + 76] for i in range(0, len(text), 76)]
