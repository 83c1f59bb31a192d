"""Ageing: churn before the fixture is built, so that free space is in pieces."""

from dataclasses import dataclass

HELP = "Churn each image first: write FACTOR times its room, e.g. 2; see 'spoolscope help cache'."
# Factor by which the room of a replay grows: files of the churn keep two thirds of it.
GROWTH = 3
# Bounds of the factor.
LEAST, MOST = 1.0, 100.0


@dataclass(frozen=True)
class Age:
    """Ageing of a filesystem.

    Attributes:
        seed: The churn follows from it, and from the size of the image.
        factor: Bytes of all files that are made, divided by the bytes that were free before.
    """

    seed: int
    factor: float

    def words(self) -> list[str]:
        """Return it as options of spoolscope-replay."""
        return [f"--age={self.seed}:{self.factor}"]
