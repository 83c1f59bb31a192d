"""Rules of ``record --freeze-on``, which freeze a flight recorder.

A rule is ``WHAT > LIMIT``, or ``errno = NAME``::

    slow > 500ms            a call took longer; slow=500ms means the same
    in-flight > 5s          a call has not returned for longer
    lock-held > 10s         a process holds a file lock (fcntl, flock) for longer
    journal_commit > 1s     one call waited for that cause for longer: any that 'explain' names
    commits > 20/s          more journal commits than that within a second (or /m, a minute)
    errno = EIO             a call failed with that error
"""

import difflib
import errno
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from spoolscope.analysis.causes import CAUSES, MACHINE
from spoolscope.analysis.stack_rules import shipped_rules, split_stack
from spoolscope.cli.limits import Duration
from spoolscope.tracers.request import CauseRules, FreezeRule
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.mounts import mounts

HELP = "; ".join(
    (
        "Freeze when: slow > 500ms (a call took longer)",
        "in-flight > 5s (it has not returned yet)",
        "lock-held > 10s",
        "'journal_commit > 1s' (a call waited so long for that cause)",
        "commits > 20/s",
        "errno=EIO. May be repeated; at most once per window.",
    )
)

_RULE = re.compile(r"\s*([\w -]*?)\s*([=<>]+)\s*(.*?)\s*", re.ASCII | re.DOTALL)
_COUNTED = ("ext3", "ext4", "xfs", "btrfs")
_RATE = re.compile(r"(\d{1,9})\s*/\s*(s|m)", re.ASCII)
_WINDOWS = {"s": 10**9, "m": 60 * 10**9}
_TIMES = {"slow": "slow_ns", "in_flight": "in_flight_ns", "lock_held": "lock_held_ns"}
_NAMES = ("slow", "in-flight", "lock-held", "commits", "errno")


class FreezeRuleType(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A rule; see the docstring of this module."""

    name = "rule"

    def convert(self, value: Any, param: Any, ctx: Any) -> FreezeRule:
        """Return the rule."""
        if isinstance(value, FreezeRule):
            return value
        found = _RULE.fullmatch(value)
        shown = repr(value if len(value) <= _LONGEST else f"{value[:_LONGEST]}...")
        if found is None or not found[1]:
            self.fail(f"{shown} is no rule such as 'slow > 500ms' or errno=EIO", param, ctx)
        what, sign, limit = re.sub(r"[ _-]+", "_", found[1].lower()), found[2], found[3]
        signs = {"errno": ("=",), "slow": ("=", ">")}.get(what, (">",))
        if sign not in signs:
            self.fail(f"{shown}: {found[1]} goes with {' or '.join(signs)}", param, ctx)
        if what == "errno":
            number = getattr(errno, limit.upper(), None)
            if not isinstance(number, int):
                self.fail(f"{shown}: {limit!r} is no error such as EIO or ENOSPC", param, ctx)
            return FreezeRule(f"errno = {limit.upper()}", {"errno": number})
        if what == "commits":
            rate = _RATE.fullmatch(limit)
            if rate is None or not int(rate[1]):
                self.fail(f"{shown}: say how many a second or minute: commits > 20/s", param, ctx)
            window_ns = _WINDOWS[rate[2]]
            words = f"commits > {int(rate[1])}/{rate[2]}"
            return FreezeRule(words, {"commits": int(rate[1]), "window_ns": window_ns})
        cause = None if what in _TIMES else self._cause(what, shown, param, ctx)
        ns = round(Duration(1e-6).convert(limit, param, ctx) * 1e9)
        if cause is None:
            return FreezeRule(f"{what.replace('_', '-')} > {limit}", {_TIMES[what]: ns})
        return FreezeRule(f"{cause} > {limit}", {"cause": cause, "ns": ns})

    def _cause(self, what: str, shown: str, param: Any, ctx: Any) -> str:
        """Return the cause with that name or label."""
        labels = {re.sub(r"\W+", "_", cause.label.lower()): name for name, cause in CAUSES.items()}
        cause = what if what in CAUSES else labels.get(what, "")
        if not cause:
            known = [*_NAMES, *(name for name in CAUSES if name != "unexplained")]
            like = difflib.get_close_matches(what, known, 3) or known
            self.fail(f"{shown}: known are {', '.join(like)}", param, ctx)
        known_live = {*MACHINE, *(rule.cause for rule in shipped_rules())} - {"unexplained"}
        if cause not in known_live:
            self.fail(f"{shown}: {cause} is not known before the end of a recording", param, ctx)
        return cause


_LONGEST = 40


def refuse_uncounted(rules: Sequence[FreezeRule], spools: Iterable[Path]) -> None:
    """Refuse a rule on commits for spools whose commits the recorder does not see end.

    Raises:
        SpoolscopeError: one of the spools is such a one.
    """
    if not any("commits" in rule.limit for rule in rules):
        return
    kinds = {mount.place: mount.fstype for mount in mounts()}
    for spool in spools:
        place = spool.resolve()
        kind = next((kinds[at] for at in (place, *place.parents) if at in kinds), "unknown")
        if kind not in _COUNTED:
            raise SpoolscopeError(
                f"--freeze-on commits: those of {kind} ({spool}) are not seen while recording",
                remedy="use a cause, such as 'journal_commit > 1s'",
                exit_code=USAGE,
            )


def cause_rules(rules: Iterable[FreezeRule]) -> CauseRules:
    """Return the stack rules in the recorder's form; empty if no freeze rule names a cause."""
    return all_cause_rules() if any("cause" in rule.limit for rule in rules) else ()


def all_cause_rules() -> CauseRules:
    """Return the stack rules in the recorder's form."""
    return tuple(
        {
            "cause": rule.cause,
            "frames": [
                {"next": arrow == "<<", "names": names} for arrow, names in split_stack(rule.stack)
            ],
            "around": rule.around,
            "last_resort": rule.last_resort,
        }
        for rule in shipped_rules()
    )
