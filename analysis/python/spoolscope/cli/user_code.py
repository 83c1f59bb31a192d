"""The lines of explain on program code that made calls (record --user-stacks)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from spoolscope.cli.output import wrapped

if TYPE_CHECKING:
    from spoolscope.analysis.user_code import UserCode

TOP, STACKS = 8, 3


def user_code_lines(found: "UserCode | None") -> Iterable[str]:
    """Return time by function, and the stacks with most of it."""
    from spoolscope.analysis.wording import count, duration, fitting

    if found is None:
        return
    yield ""
    yield "By the code that asked for it (record --user-stacks)"
    yield f"  {'function':<27}{'program':<16}{'calls':>8}{'time':>9}{'longest':>9}  mostly"
    for row in found.functions[:TOP]:
        numbers = f"{count(row.n):>8}{duration(row.time_ns):>9}{duration(row.max_ns):>9}"
        names = f"{fitting(row.function, 26):<27}{fitting(row.program, 15):<16}"
        yield f"  {names}{numbers}  {row.syscall}"
    for stack in found.stacks[:STACKS]:
        yield from wrapped(f"{duration(stack.time_ns)} in {count(stack.n)} calls: {stack.stack}")
    if found.short:
        yield from wrapped(
            "Most of these stacks are short: programs built without frame pointers"
            " (-fno-omit-frame-pointer) show only the caller of the C library."
        )
    if found.unknown:
        yield f"{count(found.unknown)} calls were of processes that ended before that was read."
