"""More users than were recorded: the begin of each copy of them, and the files of one user."""

import random
from dataclasses import dataclass
from typing import Any

from spoolscope.replay.outcomes import Plan
from spoolscope.traces.pathclass import user_of

# Largest multiple of the recorded users: every copy has all of their processes.
MOST = 1000
LISTED = 8


@dataclass(frozen=True)
class Scale:
    """Copies of all recorded users.

    Attributes:
        users: Multiple of the recorded users; the recording itself is the first.
        window_ns: Each further copy begins at a random time in it; None is a tenth of the
            recording: long enough that copies do not act together, short enough that they are all
            at work for most of the time.
        seed: Seed of these times.
    """

    users: int = 1
    window_ns: int | None = None
    seed: int = 0

    def begins(self) -> list[float]:
        """Return when each further copy begins, as a share of the window."""
        generator = random.Random(self.seed)
        return [generator.random() for _ in range(self.users - 1)]

    def words(self, duration_ns: int) -> list[str]:
        """Return it as options of spoolscope-replay, but for the users.

        Args:
            duration_ns: Length of the recording.
        """
        words = [f"--recorded-ns={duration_ns}"]
        words += [f"--begin={share!r}" for share in self.begins()]
        return words if self.window_ns is None else [*words, f"--window-ns={self.window_ns}"]


def users(plan: Plan) -> list[bytes]:
    """Return the directories below the spool that belong to one user each."""
    # In latin-1 every byte is a character: names need not be valid text, and must not change.
    names = (plan.strings.raw(at).decode("latin-1") for at in range(len(plan.strings)))
    found = {user_of(name) for name in names} - {None}
    return sorted(name.encode("latin-1") for name in found if name is not None)


def sentence(scaled: dict[str, Any]) -> str:
    """Return a sentence on how the users were multiplied."""
    phases = [ns / 1e9 for ns in scaled["phases_ns"]]
    late = ", ".join(f"{s:.2f}" for s in phases)
    if len(phases) > LISTED:
        late = f"{min(phases):.2f} to {max(phases):.2f}"
    begin, end = scaled["all_from_ns"] / 1e9, scaled["all_to_ns"] / 1e9
    all_ = f"all are at work from {begin:.2f} s to {end:.2f} s"
    if begin == end:
        all_ = "all are never at work at once"
    return (
        f"{scaled['users']:,} times the users: besides the recording {len(phases):,} "
        f"{'copy' if len(phases) == 1 else 'copies'} of all mailboxes ({scaled['mailboxes']:,}), "
        f"other files and processes, begun {late} s after it; at the recorded pace {all_} "
        f"of {scaled['duration_ns'] / 1e9:.2f} s, fewer before and after"
    )
