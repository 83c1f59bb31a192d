"""The answer about a fleet in words, for the terminal and the report alike."""

import math
from collections.abc import Iterator

from spoolscope.analysis.causes import CAUSES
from spoolscope.analysis.fleet.change import KERNEL, OPTIONS, Effect, Split
from spoolscope.analysis.fleet.drill import Suspect
from spoolscope.analysis.fleet.fleet_answer import Answer, total
from spoolscope.analysis.fleet.measures import MEASURES
from spoolscope.analysis.fleet.outliers import FALSE_SHARE, LEAST_PEERS, LEAST_RATIO, TREND
from spoolscope.analysis.wording import change, count, counted, duration, interval, percent

NO_DIFFERENCE = "No host differs from its peers"


def headline(answer: Answer) -> str:
    """Return the answer in one sentence: the asked change first, else the hosts that differ."""
    if answer.split is not None and answer.effects:
        return verdict(answer.split, answer.effects[0])
    slower = [one for one in first_of_hosts(answer) if one.test.slower]
    hosts = [answer.fleet.spools[one.test.row].host for one in slower]
    if not answer.tested.tests:
        return "No host can be judged yet: days that count, or peers, are too few."
    if not hosts:
        most = answer.filesystems[0] if answer.filesystems else None
        if most is None or not total(most.causes):
            return f"{NO_DIFFERENCE}."
        cause = max(most.causes, key=lambda name: total(most.causes, [name]))
        share = percent(total(most.causes, [cause]) / total(most.causes), 0)
        return f"{NO_DIFFERENCE}; on {most.fs} calls spend {share} of their time {label(cause)}."
    if len(hosts) == 1:
        return suspect_sentence(answer, slower[0])
    n = len({spool.host for spool in answer.fleet.spools})
    return f"{len(hosts)} of {count(n)} hosts are slower than their peers, {hosts[0]} most of all."


def label(cause: str) -> str:
    """Return what calls do in a cause, e.g. "waiting for journal commits"."""
    return CAUSES[cause].doing if cause in CAUSES else f"in {cause}"


def verdict(split: Split, effect: Effect) -> str:
    """Return what a change did to the primary measure, or that it is not decided."""
    what = MEASURES[effect.measure].meaning
    ratio, one = effect.estimate.ratio, effect.estimate
    since = changed_words(split)
    ends = interval(one.low, one.high)
    if effect.word in ("slower", "faster"):
        return f"{since}, {what} is {effect.word}: {change(ratio)} ({ends}, {one.n} hosts)."
    if effect.word == "equivalent":
        return f"{since}, {what} is the same within 5 % ({ends}, {one.n} hosts)."
    if one.low is None:
        return f"Undecided: {one.n} hosts with enough days are too few to judge the change."
    ratio_is = (
        "perhaps by under 5 %" if one.low > 1 or (one.high or 1) < 1 else "perhaps not at all"
    )
    return f"Undecided: {since[0].lower()}{since[1:]}, {what} moved {ratio_is} ({ends})."


def changed_words(split: Split) -> str:
    """Return what changed, as the beginning of a sentence."""
    if split.what == KERNEL:
        return f"Since the kernel changed from {split.before} to {split.after}"
    if split.what == OPTIONS:
        return f"Since the mount options changed from {split.before} to {split.after}"
    return f"Since {split.what}"


def first_of_hosts(answer: Answer) -> list[Suspect]:
    """Return the largest difference of each host that differs, the slowest host first."""
    first: dict[str, Suspect] = {}
    for one in answer.suspects:
        first.setdefault(answer.fleet.spools[one.test.row].host, one)
    return list(first.values())


def suspect_sentence(answer: Answer, one: Suspect) -> str:
    """Return in which way a host differs, and what the difference is made of."""
    spool, test = answer.fleet.spools[one.test.row], one.test
    if test.measure == TREND:
        return (
            f"{spool.host}: its wait for the disk grew {test.ratio:.1f} times as much in "
            f"{len(answer.fleet.dates)} days as that of its {test.n_peers} peers."
        )
    ratio = test.ratio if test.slower else 1 / test.ratio
    more = f"{ratio:.1f} times {'that' if test.slower else 'less than that'} of its"
    what = MEASURES[test.measure].meaning
    said = f"{spool.host}: {what} is {duration(test.value)}, {more} {test.n_peers} peers"
    if one.cause:
        said += f"; most of the difference is {label(one.cause)}"
    return f"{said}."


def method() -> str:
    """Return how hosts are judged."""
    return (
        f"A host is named if it is over {LEAST_RATIO:g} times above or below the median of its "
        f"peers, which are the hosts on the same type of filesystem with a similar load, and if "
        f"chance explains that badly: at most {percent(FALSE_SHARE, 0)} of the named are "
        "expected to be wrong (Benjamini and Hochberg over all hosts and measures)."
    )


def change_method(split: Split, effect: Effect) -> str:
    """Return how a change is judged, and what the judgement cannot tell."""
    n = effect.estimate.n
    said = f"Each of the {n} hosts that changed is held against itself"
    if effect.n_control:
        moved = change(effect.control)
        said += (
            f", less what happened meanwhile to {effect.n_control} hosts that did not change "
            f"({moved}{'' if moved == 'the same' else ' time'})"
        )
    said += "; the interval is a bootstrap over hosts."
    if not effect.n_control:
        said += " No host stayed as it was: whatever else changed then is in it, too."
    if split.others:
        said += f" {split.others} spools changed otherwise and are left out."
    return said


def quality(answer: Answer) -> Iterator[str]:
    """Yield sentences on what is missing."""
    expected, seen, used = answer.spool_days
    n_hosts = len(answer.hosts)
    yield (
        f"{counted(n_hosts, 'host')}, {count(seen)} of {count(expected)} days of their spools; "
        f"{count(used)} count."
    )
    for reason, n in answer.fleet.left_out.items():
        if n:
            yield f"{count(n)} days do not count: {reason}."
    if answer.lost:
        lost = answer.lost / max(answer.lost + answer.calls, 1)
        hosts = counted(sum(host.lost > 0 for host in answer.hosts), "host")
        yield f"{count(answer.lost)} calls ({percent(lost)}) of {hosts} are in no sum."
    for what, n in (
        ("minutes were recorded and are missing", sum(h.holes for h in answer.hosts)),
        ("minutes are there twice", sum(h.twice for h in answer.hosts)),
        ("times a clock was set by over a second", sum(h.steps for h in answer.hosts)),
    ):
        if n:
            yield f"{count(n)} {what}."
    if answer.tested.alone:
        yield (
            f"{count(answer.tested.alone)} spools are not judged: they have under "
            f"{LEAST_PEERS} peers, or too few days."
        )
    yield from answer.problems
    yield from answer.notes


def is_whole(answer: Answer) -> bool:
    """Return True if nothing is missing. A clock that was set makes no number wrong."""
    gaps = any(host.holes or host.twice or host.lost for host in answer.hosts)
    return answer.fleet.whole and not gaps and not answer.problems


def badge(answer: Answer) -> str:
    """Return one word for how certain the headline is."""
    if answer.split is not None and answer.effects:
        return answer.effects[0].word
    return "exact" if is_whole(answer) else "partial"


def ratio_words(ratio: float) -> str:
    """Return a ratio as text."""
    return "-" if math.isnan(ratio) else f"{ratio:.2f} x"
