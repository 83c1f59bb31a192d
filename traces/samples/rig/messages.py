"""Messages of plausible size and form; no real mail, no real names."""

import base64
import random
import time
from email.utils import formatdate

WORDS = (
    "report meeting invoice server spool queue backup monday budget project release review "
    "offer contract travel lunch photo update question answer order shipping access account"
).split()
MEDIAN_BYTES = 4000
SPREAD = 1.0
MAX_BYTES = 300_000


def user(number: int) -> str:
    """Return the address of a user."""
    return f"user{number:03d}@example.com"


def size(rng: random.Random) -> int:
    """Return a body size: log-normal, one in ten ten times as large (an attachment)."""
    n = MEDIAN_BYTES * rng.lognormvariate(0, SPREAD)
    return int(min(MAX_BYTES, n * 10 if rng.random() < 0.1 else n))


def message(rng: random.Random, sender: str, recipient: str) -> bytes:
    """Return a whole message with CRLF line ends."""
    subject = " ".join(rng.choices(WORDS, k=rng.randint(2, 6)))
    head = (
        f"From: <{sender}>",
        f"To: <{recipient}>",
        f"Subject: {subject}",
        f"Date: {formatdate(time.time() - rng.randrange(10**6))}",
        f"Message-ID: <{rng.getrandbits(64):016x}@example.com>",
        "MIME-Version: 1.0",
        "Content-Type: text/plain; charset=us-ascii",
    )
    n = size(rng)
    body = _text(rng, min(n, 8000)) + (_attachment(rng, n - 8000) if n > 8000 else [])
    return "\r\n".join([*head, "", *body, ""]).encode()


def _text(rng: random.Random, n: int) -> list[str]:
    lines = []
    while n > 0:
        lines.append(" ".join(rng.choices(WORDS, k=10)))
        n -= len(lines[-1]) + 2
    return lines


def _attachment(rng: random.Random, n: int) -> list[str]:
    text = base64.b64encode(rng.randbytes(n * 3 // 4)).decode()
    return [text[i : i + 76] for i in range(0, len(text), 76)]
