"""Deliberate changes in a replay: without some calls, a part only, or for more users."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spoolscope.replay.scaled import Scale, sentence
from spoolscope.traces.calls import CALLS, of_effect
from spoolscope.traces.errors import usage_error
from spoolscope.traces.slices import Slice, parse_slice, parse_time, time_text

# These calls change nothing that another call finds: no name, no byte, no descriptor, no lock.
HARMLESS = set(of_effect("none"))


@dataclass(frozen=True)
class WhatIf:
    """Calls that are left out, or added.

    Attributes:
        skip: Names of calls that are left out.
        fsync_every: Only every N-th fsync or fdatasync of each thread is made.
        part: Only calls that took effect in it are replayed; None is the whole recording.
        only: Processes and mailboxes whose calls are replayed, with what they depend on; none
            means all.
        scale: Copies of the users in the remaining calls.
    """

    skip: frozenset[str] = frozenset()
    fsync_every: int = 1
    part: Slice | None = None
    only: tuple[str, ...] = ()
    scale: Scale = field(default_factory=Scale)

    def since(self, late_ns: int) -> Slice | None:
        """Return the part since the replay's begin, which is ``late_ns`` after the recording's."""
        if self.part is None:
            return None
        to_ns = None if self.part.to_ns is None else max(self.part.to_ns - late_ns, 0)
        return Slice(max(self.part.from_ns - late_ns, 0), to_ns)

    def words(self, late_ns: int) -> list[str]:
        """Return it as options of spoolscope-replay, but for copies of users.

        Args:
            late_ns: How long after the recording's begin that of the replay is.
        """
        words = [f"--skip={name}" for name in sorted(self.skip)]
        words.append(f"--fsync-every={self.fsync_every}")
        part = self.since(late_ns)
        if part is not None:
            words.append(f"--from-ns={part.from_ns}")
            words += [] if part.to_ns is None else [f"--to-ns={part.to_ns}"]
        return [*words, *(f"--only={word}" for word in self.only)]

    def entry(
        self,
        left_out: Mapping[str, int],
        cut: Mapping[str, int] | None = None,
        chosen: Mapping[str, int] | None = None,
        scaled: Mapping[str, Any] | None = None,
    ) -> dict[str, Any] | None:
        """Return the entry of run.json; None if nothing was asked for.

        Args:
            left_out: How many calls were left out, by name.
            cut: The replayer's facts of the part that it cut out.
            chosen: Those of the calls that were chosen.
            scaled: Those of copies of the users.
        """
        words = [f"without {name}" for name in self._left_out()]
        if self.fsync_every > 1:
            words.append(f"with every {self.fsync_every}. fsync")
        gone = ", ".join(f"{n:,} {name}" for name, n in left_out.items()) or "nothing was"
        said = [f"{gone} left out"] if words else []
        if self.part is not None and cut is not None:
            words.append(self.part.label)
            said.append(
                f"only what took effect {self.part.label} of the recording is replayed: "
                f"{cut['before']:,} operations before that are in the state it begins with "
                f"({cut['skipped']:,} open files, locks and mappings could not be had again), "
                f"{cut['after']:,} after it are left out"
            )
        if chosen is not None:
            words.append(f"only {', '.join(self.only)}")
            said.append(
                f"only {chosen['chosen']:,} calls of {', '.join(self.only)} are replayed, and "
                f"{chosen['given']:,} of others on which these depend; "
                f"{chosen['left_out']:,} are left out"
            )
        if scaled is not None:
            words.append(f"with {self.scale.users} times the users")
            said.append(sentence(dict(scaled)))
        if not words:
            return None
        return {
            "label": " and ".join(words),
            "options": self.options(),
            "left_out": dict(left_out),
            "slice": None if cut is None else dict(cut),
            "only": None if chosen is None else dict(chosen),
            "scale": None if scaled is None else dict(scaled),
            "sentence": f"WHAT IF: {'; '.join(said)}; this is not what the trace did.",
        }

    def options(self) -> list[str]:
        """Return the options of the command line that ask for it, without the seed of copies."""
        words = [word for name in self._asked() for word in ("--skip", name)]
        if self.fsync_every > 1:
            words += ["--fsync-every", str(self.fsync_every)]
        if self.part is not None:
            words += ["--slice", self.part.text]
        words += [word for name in self.only for word in ("--only", name)]
        if self.scale.users > 1:
            words += ["--scale-users", str(self.scale.users)]
            if self.scale.window_ns is not None:
                words += ["--scale-window", time_text(self.scale.window_ns)]
        return words

    def _left_out(self) -> list[str]:
        """Return what is left out in words: a class of calls, or single ones."""
        return [f"all {word} calls" if _is_class(word) else word for word in self._asked()]

    def _asked(self) -> list[str]:
        """Return the shortest list for the option --skip."""
        whole = {CALLS[name].klass for name in self.skip}
        whole = {klass for klass in whole if _is_class(klass) and _of(klass) <= self.skip}
        return sorted(whole | {name for name in self.skip if CALLS[name].klass not in whole})


def _of(word: str) -> set[str]:
    """Return the calls that a word of --skip means."""
    return {call.name for call in CALLS.values() if word in (call.name, call.klass)}


def _is_class(word: str) -> bool:
    return any(call.klass == word for call in CALLS.values())


WHOLE = WhatIf()


def parse(
    skip: Sequence[str],
    fsync_every: int,
    part: str | None = None,
    only: Sequence[str] = (),
    scale: Scale | None = None,
) -> WhatIf:
    """Parse names of calls, or of classes whose calls may all be left out, and a part to keep.

    Raises:
        SpoolscopeError: a name is unknown, or other calls depend on that call; the part is no
            ``T0..T1``.
    """
    names: set[str] = set()
    for word in skip:
        asked = _of(word)
        if not asked or not asked <= HARMLESS:
            why = "other calls depend on what they do" if asked else "there is no such call"
            raise usage_error(
                f"calls '{word}' cannot be left out: {why}",
                remedy="give sync (all of that class), or one of " + ", ".join(sorted(HARMLESS)),
            )
        names |= asked
    cut = None if part is None else parse_slice(part)
    return WhatIf(frozenset(names), fsync_every, cut, tuple(only), scale or Scale())


def parse_scale(users: int, window: str | None, seed: int) -> Scale:
    """Parse the time within which copies of the users begin.

    Raises:
        SpoolscopeError: it is no time, or there are no copies.
    """
    if window is None:
        return Scale(users, None, seed)
    try:
        window_ns = parse_time(window)
    except ValueError:
        raise usage_error(f"'{window}' is no time", remedy="give e.g. 30s, 5m or 0") from None
    if users == 1:
        raise usage_error(
            "without copies of users nothing begins later",
            remedy="add --scale-users 2, or leave --scale-window out",
        )
    return Scale(users, window_ns, seed)
