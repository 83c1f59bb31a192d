"""Insights: reasons why calls are slow, remedies, and their prices; the rules are data.

A rule of ``rules/insights/*.toml`` is a query over recorded tables and those of stages. Each
resulting row with enough time at stake, as a share of the time in calls, is an insight.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.resources import files
from string import Formatter
from typing import Any

from spoolscope.analysis.stage import Work
from spoolscope.analysis.wording import count, duration, fitting, percent, size

OF = {
    "calls": "the time in calls",
    "others": "the time in calls of others",
    "locks": "the time in calls, file locks included",
    "processes": "the time in calls and these waits between them",
}
"""The times that shares of insights refer to."""

SEVERITIES = {"high": 0.4, "medium": 0.2, "low": 0.0}
"""Least share of each severity, the largest first."""

LEAST_SHARE = 0.1
"""Least share of the time that is worth acting on, unless a rule sets another."""

WIDEST_NAME = 40
"""Most characters of a path in a sentence; the evidence has the whole path."""

_AT_STAKE, _OF = "at_stake_ns", "of_ns"


@dataclass(frozen=True)
class InsightRule:
    """One rule.

    Attributes:
        code: Stable: a letter for the subject (J journal, D directories, S syncs, L locks, X xfs,
            B btrfs, R requests and disks, M memory, C CPUs, P programs and snapshots) and a number.
        kind: Its name in one word; ``title`` is its meaning.
        needs: Tables that the query reads.
        sql: The query: a row has ``at_stake_ns``, ``of_ns``, and the values of the sentences.
        culprit: Subject of the sentence, with values in braces, formatted by the unit at the end of
            their name; ``mechanism`` is the rest of the sentence.
        remedy: What to try; ``price`` what that costs in durability or risk.
        section: Anchor of the report's section that shows it.
        most: SQL for the most that can be at stake, ns, of ``cause_times``, ``call_totals``,
            recorded tables and ``most_needs``, which are cheap: where that is too little, nothing
            else is made.
        most_needs: Further tables that it reads.
        circumstance: It describes what all calls meet, a disk without time left: it stands below
            insights that name what to change.
        of: A key of ``OF``.
        least_share: Least share of that time for an insight.
    """

    code: str
    kind: str
    title: str
    needs: tuple[str, ...]
    sql: str
    culprit: str
    mechanism: str
    remedy: str
    price: str
    section: str
    most: str = ""
    most_needs: tuple[str, ...] = ()
    circumstance: bool = False
    of: str = "calls"
    least_share: float = LEAST_SHARE


@dataclass(frozen=True)
class Insight:
    """One reason why calls are slow.

    Attributes:
        code: Code of its rule; kind and title likewise.
        severity: high, medium or low, by its share.
        culprit: What is to blame; ``mechanism`` is what it does.
        remedy: What to try; ``price`` what that costs in durability or risk.
        at_stake_ns: Time in calls that it costs; insights may overlap.
        share: The same as a part of ``share_of``, 0 to 1.
        evidence: The numbers that it rests on, by name; the name ends with the unit (n: a number).
        section: Anchor of the report's section that shows it.
        circumstance: Of its rule.
    """

    code: str
    kind: str
    title: str
    severity: str
    culprit: str
    mechanism: str
    remedy: str
    price: str
    at_stake_ns: int
    share: float
    share_of: str
    section: str
    evidence: dict[str, Any] = field(default_factory=dict)
    circumstance: bool = False

    @property
    def stake(self) -> str:
        """The time at stake in words."""
        return f"{percent(self.share)} of {self.share_of}"

    @property
    def text(self) -> str:
        """The insight in sentences: culprit, mechanism, remedy."""
        return f"{self.culprit} {self.mechanism} ({self.stake}). {self.remedy}"


@cache
def insight_rules() -> tuple[InsightRule, ...]:
    """Return the shipped rules, in the order of their codes."""
    folder = files("spoolscope.analysis").joinpath("rules", "insights")
    found = [
        _rule(entry)
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
        for entry in tomllib.loads(file.read_text("utf-8"))["rule"]
    ]
    return tuple(sorted(found, key=lambda rule: rule.code))


def _rule(entry: Mapping[str, Any]) -> InsightRule:
    known = {one.name for one in fields(InsightRule)}
    if unknown := entry.keys() - known:
        raise ValueError(f"rule {entry.get('code')} has unknown keys: {sorted(unknown)}")
    words: dict[str, Any] = {
        key: " ".join(value.split()) if isinstance(value, str) and key != "sql" else value
        for key, value in entry.items()
    }
    lists = {key: tuple(entry.get(key, ())) for key in ("needs", "most_needs")}
    return InsightRule(**words | lists)


def find_insights(work: Work, rules: Iterable[InsightRule] | None = None) -> list[Insight]:
    """Return the reasons why the shown calls are slow, the longest time at stake first.

    Circumstances come last.

    Args:
        work: The analysis; tables that rules need are made in it.
        rules: By default the shipped ones.
    """
    found: list[Insight] = []
    for rule in insight_rules() if rules is None else rules:
        found += apply(work, rule)
    return sorted(found, key=lambda insight: (insight.circumstance, -insight.share, insight.code))


def apply(work: Work, rule: InsightRule) -> list[Insight]:
    """Return the insights of one rule."""
    if rule.most and not _can_matter(work, rule):
        return []
    work.make(*rule.needs)
    cursor = work.con.execute(rule.sql)
    names = [column[0] for column in cursor.description or ()]
    rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    shares = [(row, min(1.0, (row[_AT_STAKE] or 0) / row[_OF]) if row[_OF] else 0) for row in rows]
    return [_insight(rule, row, share) for row, share in shares if share >= rule.least_share]


def _can_matter(work: Work, rule: InsightRule) -> bool:
    work.make("cause_times", "call_totals", "totals", *rule.most_needs)
    row = work.con.execute(
        f"SELECT ({rule.most}) >= ? * filesystem_ns FROM totals", [rule.least_share]
    ).fetchone()
    return row is not None and bool(row[0])


def _insight(rule: InsightRule, row: Mapping[str, Any], share: float) -> Insight:
    values = {
        name: round(value) if name.endswith(("_ns", "_bytes")) and value is not None else value
        for name, value in row.items()
    }
    return Insight(
        code=rule.code,
        kind=rule.kind,
        title=rule.title,
        severity=next(name for name, least in SEVERITIES.items() if share >= least),
        culprit=_worded(rule.culprit, values),
        mechanism=_worded(rule.mechanism, values),
        remedy=_worded(rule.remedy, values),
        price=_worded(rule.price, values),
        at_stake_ns=values[_AT_STAKE],
        share=share,
        share_of=OF[rule.of],
        section=rule.section,
        circumstance=rule.circumstance,
        evidence={name: value for name, value in values.items() if name != _AT_STAKE},
    )


def _worded(template: str, values: Mapping[str, Any]) -> str:
    """Return a sentence with its values; after a 1 the next word is in the singular."""
    parts: list[str] = []
    for literal, name, _, _ in Formatter().parse(template):
        parts.append(_PLURAL.sub(r"\1", literal) if parts[-1:] == ["1"] else literal)
        if name is not None:
            parts.append(_said(name, values[name]))
    return "".join(parts)


# "calls" and "processes" lose their ending.
_PLURAL = re.compile(r"^( [a-z]+?)(?:(?<=ss)es|s)\b")


def _said(name: str, value: Any) -> str:
    if isinstance(value, str):
        return fitting(value, WIDEST_NAME) if name in ("path", "dir") else value
    if name.endswith("_ns"):
        return duration(value)
    if name.endswith("_bytes"):
        return size(value)
    if name.endswith("share"):
        return percent(value, 0)
    if isinstance(value, float):
        return f"{value:,.0f}"
    return "-" if value is None else count(value)


def values_of(template: str) -> set[str]:
    """Return the names of the values in a sentence of a rule."""
    return set(re.findall(r"{(\w+)}", template))
