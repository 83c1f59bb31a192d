"""The lines of explain --blame: triggers of commits, victims and culprits."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from spoolscope.cli.output import wrapped
from spoolscope.traces.text import shown

if TYPE_CHECKING:
    from spoolscope.analysis.blame import Charge
    from spoolscope.analysis.culprits import Link
    from spoolscope.analysis.explain import Explanation

TOP_BLAME = 10
TOP_CHAINS = 3
TOP_CAUSES = 6


def blame_lines(found: "Explanation") -> Iterable[str]:
    """Return the lines of the blame: commits charged, culprits, origins, chains."""
    yield from _charges(found)
    yield from _culprits(found)
    yield from _origins(found)
    yield from _chains(found)


def _charges(found: "Explanation") -> Iterable[str]:
    from spoolscope.analysis.wording import count, duration, fitting

    charges = found.commits.charges
    yield ""
    yield f"Processes that caused the {duration(charges.commit_ns)} of commits"
    yield f"  charged {duration(charges.charged_ns)}, not charged {duration(charges.uncharged_ns)}"
    yield f"  {'program':<17}{'pid':>9}{'n':>9}{'commits':>10}{'own wait':>10}{'others':>10}"
    for row in charges.by_program[:TOP_BLAME]:
        several = "-" if row.comm.startswith("(") else "several"
        pid = several if row.pid is None else str(row.pid)
        yield f"  {shown(row.comm)[:16]:<17}{pid:>9}{_cost(row)}"
    if any(row.comm.startswith("(") for row in charges.by_program[:TOP_BLAME]):
        yield from wrapped(
            "In brackets: what asked for commits and is no recorded call; (other: NAME) is a task, "
            "or a call of a program, that is not recorded.",
            indent="  ",
        )
    yield ""
    yield f"  {'mailbox or queue':<26}{'n':>9}{'commits':>10}{'own wait':>10}{'others':>10}"
    for box in charges.by_mailbox[:TOP_BLAME]:
        yield f"  {fitting(box.mailbox or '(top of the spool)', 25):<26}{_cost(box)}"
    yield ""
    yield f"  {'process':<18}{'call':<11}{'on':<24}{'n':>7}{'own':>9}{'others':>9}"
    for row in charges.by_call[:TOP_BLAME]:
        times = f"{duration(row.own_ns):>9}{duration(row.others_ns):>9}"
        where = f"{shown(row.comm)[:17]:<18}{row.syscall[:10]:<11}{row.path_class[:23]:<24}"
        yield f"  {where}{count(row.n):>7}{times}"


def _cost(row: "Charge") -> str:
    from spoolscope.analysis.wording import count, duration

    times = (duration(ns) for ns in (row.commit_ns, row.own_ns, row.others_ns))
    return f"{count(row.n):>9}" + "".join(f"{time:>10}" for time in times)


def _culprits(found: "Explanation") -> Iterable[str]:
    from spoolscope.analysis.causes import CAUSES
    from spoolscope.analysis.wording import count, duration

    yield ""
    yield "Culprits and their victims"
    yield f"  {'victim':<20}{'for':<17}{'culprit':<25}{'n':>6}{'time':>9}"
    for row in found.culprits[:TOP_BLAME]:
        victim = _in(19, row.victim, None, row.victim_call)
        culprit = _in(24, row.culprit, row.culprit_pid, row.culprit_call)
        cause = CAUSES[row.cause].label
        numbers = f"{count(row.n):>6}{duration(row.ns):>9}"
        yield f"  {victim:<20}{cause:<17}{culprit:<25}{numbers}" + ("" if row.recorded else "*")
    if any(not row.recorded for row in found.culprits[:TOP_BLAME]):
        yield "  * inferred, from the order of requests at the disk, of writes or of waits"
    if not found.culprits:
        yield "  nobody, as far as was recorded"


def _in(width: int, comm: str, pid: int | None, call: str) -> str:
    """Return a process and its call in so many characters: of these only the name is cut."""
    rest = "".join(f" {part}" for part in (pid, call) if part not in (None, "-"))
    room = max(width - len(rest), 4)
    name = shown(comm)
    return (name if len(name) <= room else f"{name[: room - 1]}…") + rest[: width - 4]


def _origins(found: "Explanation") -> Iterable[str]:
    from spoolscope.analysis.causes import CAUSES
    from spoolscope.analysis.wording import duration

    ends: dict[str, list[tuple[str, int]]] = {}
    for one in found.origins:
        ends.setdefault(one.cause, []).append((one.origin, one.ns))
    passed_on = [cause for cause, ways in ends.items() if any(end != cause for end, _ in ways)]
    if passed_on:
        yield ""
        yield "What those they waited for waited for meanwhile, to the end of each chain"
    for cause in passed_on[:TOP_CAUSES]:
        said = (
            f"{'nothing further' if end == cause else CAUSES[end].label} {duration(ns)}"
            for end, ns in ends[cause][:TOP_CAUSES]
        )
        total = duration(sum(ns for _, ns in ends[cause]))
        yield from wrapped(f"{CAUSES[cause].label} {total}: {', '.join(said)}", indent="  ")


def _chains(found: "Explanation") -> Iterable[str]:
    if found.chains:
        yield ""
        yield "The longest of these waits"
    for chain in found.chains[:TOP_CHAINS]:
        text = "; meanwhile ".join(map(_link, chain))
        yield from wrapped(text, indent="  ")


def _link(link: "Link") -> str:
    from spoolscope.analysis.causes import CAUSES
    from spoolscope.analysis.claims import HOW
    from spoolscope.analysis.wording import duration

    who = f"{link.comm or '?'} {link.pid} ({link.syscall})".replace(" (-)", "")
    said = f"{who} waited {duration(link.ns)} for {CAUSES[link.cause].label}"
    if link.culprit_pid is None:
        return said
    by = f"{link.culprit or '?'} {link.culprit_pid} ({link.culprit_call})".replace(" (-)", "")
    return f"{said}, {HOW[link.mechanism or 'waker']} {by}"
