"""Ageing: churn before the fixture is built, so that free space is in pieces."""

from dataclasses import dataclass

from spoolscope.traces.errors import USAGE, SpoolscopeError

HELP = "SEED[:FACTOR]: churn each image first, FACTOR times its room [2]; see replay/README.md."
# How much more room a replay is given: two thirds of it stay taken by files of the churn.
GROWTH = 3
MOST = 100.0


@dataclass(frozen=True)
class Age:
    """How old a filesystem is made.

    Attributes:
        seed: The churn follows from it, and from the size of the image.
        factor: Bytes of all files that are made, by the bytes that were free before.
    """

    seed: int
    factor: float = 2.0

    def words(self) -> list[str]:
        """Return it as spoolscope-replay is told."""
        return [f"--age={self.seed}:{self.factor}"]


def parse_age(text: str) -> Age:
    """Return the age named on the command line.

    Raises:
        SpoolscopeError: not an age.
    """
    seed, _, factor = text.partition(":")
    try:
        age = Age(int(seed), float(factor) if ":" in text else Age.factor)
    except ValueError:
        age = Age(-1)
    if not 0 <= age.seed < 1 << 64 or not 1 <= age.factor <= MOST:
        raise SpoolscopeError(
            f"age {text!r} is not SEED[:FACTOR]",
            remedy=f"give a whole number, and a factor from 1 to {MOST:g}: --age 7:2",
            exit_code=USAGE,
        )
    return age
