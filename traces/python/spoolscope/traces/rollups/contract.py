"""The contract of the sums of roll-ups: causes add up to calls, calls to those of the minute."""

import pyarrow as pa
import pyarrow.compute as pc

from spoolscope.traces.rollups.names import MINUTE_S
from spoolscope.traces.rollups.schema import CALL

_ALIKE = ["minute_s", "dev", "comm", "unit", "syscall", "size_class", "failed"]
_MINUTE = ["minute_s", "dev"]


def unequal(calls: pa.Table, minutes: pa.Table, step_s: int = MINUTE_S) -> int:
    """Return the number of sums that differ from their parts; 0: the contract is obeyed.

    Args:
        calls: Rows of ``calls``.
        minutes: Rows of ``minutes`` for the same time.
        step_s: Step of the times of ``calls``.
    """
    if step_s != MINUTE_S:
        minutes = in_steps(minutes, step_s)
    whole = pc.equal(calls["cause"], CALL)
    times = _differing(
        _sums(calls.filter(whole), _ALIKE, "sum_ns"),
        _sums(calls.filter(pc.invert(whole)), _ALIKE, "sum_ns"),
    )
    numbers = _differing(_sums(calls.filter(whole), _MINUTE, "n"), _sums(minutes, _MINUTE, "calls"))
    return times + numbers


def in_steps(rows: pa.Table, step_s: int) -> pa.Table:
    """Return rows whose ``minute_s`` is the begin of the step in which it lies."""
    step = pa.scalar(step_s, pa.int64())
    begins = pc.multiply(pc.divide(rows["minute_s"], step), step)
    return rows.set_column(rows.schema.get_field_index("minute_s"), "minute_s", begins)


def _sums(rows: pa.Table, keys: list[str], of: str) -> dict[tuple[object, ...], int]:
    sums = rows.group_by(keys).aggregate([(of, "sum")])
    columns = [sums[key].to_pylist() for key in keys]
    return dict(zip(zip(*columns, strict=True), sums[f"{of}_sum"].to_pylist(), strict=True))


def _differing(a: dict[tuple[object, ...], int], b: dict[tuple[object, ...], int]) -> int:
    return sum(a.get(key, 0) != b.get(key, 0) for key in a.keys() | b.keys())
