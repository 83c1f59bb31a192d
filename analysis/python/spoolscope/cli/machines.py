"""Replay in machines that are booted for it: the part outside of them."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from spoolscope.cli import inside_machine
from spoolscope.cli.heard import Heard, Lines
from spoolscope.cli.printing import say, unsaid
from spoolscope.cli.vm import (
    end_if_interrupted,
    environment,
    icount_option,
    machine_of,
    memory_option,
    tell_of_accelerator,
)
from spoolscope.lab.vm import zfs
from spoolscope.lab.vm.kernels import SERIES
from spoolscope.lab.vm.machine import Machine
from spoolscope.lab.vm.running import run
from spoolscope.replay.artifacts import ABOUT
from spoolscope.replay.candidate import Candidate
from spoolscope.replay.interrupts import ending_on_signals
from spoolscope.replay.job import Slot, blocks
from spoolscope.replay.where import why_not_there
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.filesystems import FILESYSTEMS
from spoolscope.traces.phases import Progress
from spoolscope.traces.results import REPLAY_FILE

Rows = list[dict[str, Any]]
Replay = Callable[..., Rows]
"""``replay.run.replay`` with all arguments except those that a machine provides."""


def vm_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose the machines in which a replay runs."""
    vm = click.option(
        "--vm",
        multiple=True,
        metavar="KERNEL",
        help="Replay in a machine with this Debian kernel, such as 6.1; give several to compare.",
    )
    return vm(icount_option(memory_option(command)))


def of_kernels(options: Mapping[str, Any]) -> list[str]:
    """Return the candidates; with several kernels, each candidate on each kernel.

    Raises:
        SpoolscopeError: an option is not available in a machine, or only there.
    """
    candidates = list(options["candidates"])
    for name, _, series in (text.rpartition("@") for text in candidates):
        if name and SERIES.fullmatch(series):
            raise _wrong(
                f"{name}@{series} names results and no candidate", f"use --on {name} --vm {series}"
            )
    if not options["vm"]:
        refuse_icount(options)
        return candidates
    if options["icount"] and options["no_record"]:
        raise _wrong(
            "--icount makes CPU times exact, which only a recording has", "leave out --no-record"
        )
    refuse_outside([name for name in candidates if name.startswith("dir:")], options)
    kernels = list(dict.fromkeys(options["vm"]))
    if len(kernels) < 2:
        return candidates
    return [f"{name}@{kernel}" for name in candidates for kernel in kernels]


def refuse_icount(options: Mapping[str, Any]) -> None:
    """Refuse --icount where no machine is booted.

    Raises:
        SpoolscopeError: it is given.
    """
    if options["icount"]:
        raise _wrong("--icount counts the instructions of a machine", "add --vm 6.1")


def refuse_outside(directories: Sequence[str], options: Mapping[str, Any]) -> None:
    """Refuse directories and devices of this machine for a command that runs in another.

    Raises:
        SpoolscopeError: there is one.
    """
    disks = [options.get("device"), options.get("journal_device")]
    for place in (*directories, *(str(disk) for disk in disks if disk)):
        raise _wrong(
            f"{place} is on this machine, where a machine of --vm cannot reach it",
            "leave out --vm, or use images, such as --on ext4",
        )


def refuse_unbooted(chosen: Sequence[Candidate], kernels: Sequence[str]) -> None:
    """Refuse candidates that are impossible with these kernels, before a machine is booted.

    Raises:
        SpoolscopeError: a filesystem or the program that makes it is missing there.
    """
    for candidate in chosen:
        for series in [candidate.kernel] if candidate.kernel else kernels:
            if why := why_not_there(candidate, series):
                raise SpoolscopeError(
                    f"candidate {candidate.name} does not run in that machine: {why.reason}",
                    remedy=why.remedy,
                )


def _check_modules(candidate: Candidate, machine: Machine) -> None:
    """Refuse a candidate whose module was not built for a machine's kernel."""
    if candidate.directory is None and FILESYSTEMS[candidate.fstype].modules:
        zfs.check_built(machine.kernel, candidate.name)


def _wrong(what: str, remedy: str) -> SpoolscopeError:
    return SpoolscopeError(what, remedy=remedy, exit_code=USAGE)


def reference_of(reference: str | None, names: Sequence[str]) -> str | None:
    """Return the reference candidate; with several kernels, the one on the first kernel."""
    on_kernels = (name for name in names if name.rpartition("@")[0] == reference)
    return reference if reference in names else next(on_kernels, reference)


def replay_in_machines(
    replay: Replay, out: Path, order: Sequence[Slot], options: Mapping[str, Any], show: Progress
) -> Rows:
    """Boot a machine for the runs of each round on each kernel, and fetch their results.

    If a machine dies, no other runs are lost: the replay can be continued from there, as any
    interrupted one.

    Args:
        replay: Function that makes the runs.
        out: Directory of the results, outside and inside.
        order: All runs.
        options: Options of the command line.
        show: Function that shows progress.

    Returns:
        The row of each run, as ``replay`` gives them.

    Raises:
        SpoolscopeError: any error raised in a machine; or it crashed or hung.
    """
    memory_mib, icount = options["memory_mib"], options["icount"]
    machines = {
        series: machine_of(series, memory_mib, show, icount=icount) for series in options["vm"]
    }
    for slot in order:
        _check_modules(slot.candidate, machines[slot.candidate.kernel or options["vm"][0]])
    tell_of_accelerator(next(iter(machines.values())), quiet=options["quiet"])
    tell = unsaid if options["quiet"] else partial(say, err=True)
    heard = Heard(order, _rows(out), show, tell)
    with ending_on_signals():
        while left := order[len(_rows(out)) :]:
            block = next(blocks(left))
            machine = machines[block[0].candidate.kernel or options["vm"][0]]
            names = ", ".join(slot.name for slot in block)
            facts = f"{machine.accelerator}, {machine.memory_mib:,} MiB"
            tell(f"Booting {machine.kernel.release} ({facts}): {names}")
            heard.booting(machine.kernel.release)
            _in_machine(machine, replay, out, block, options, heard)
    return [row | {"run": str(out / row["run"])} for row in _rows(out)]


def _in_machine(
    machine: Machine,
    replay: Replay,
    out: Path,
    block: Sequence[Slot],
    options: Mapping[str, Any],
    heard: Heard,
) -> None:
    inside = out.absolute()
    runs, about = [slot.name for slot in block], list(ABOUT)
    with (
        Lines(heard.line) as output_lines,
        Lines(partial(say, err=True)) as complained,
        run(
            machine,
            inside_machine.command(
                replay, resume=(out / REPLAY_FILE).exists(), record=not options["no_record"]
            ),
            back=[inside / name for name in (*runs, *about)],
            work=options["work"],
            # A disk's timing comes from the host, so runs would differ.
            scratch=not machine.icount,
            environment=environment(machine),
            out=output_lines,
            err=complained,
        ) as ended,
    ):
        for name in runs:
            if (out / name).exists():  # left by an interrupted run
                shutil.rmtree(out / name)
        for name in (*runs, *about):  # files that mark runs as finished come last
            ended.bring(inside / name, out / name)
    end_if_interrupted(ended)
    if heard.error is not None:
        raise SpoolscopeError(**heard.error)
    if ended.status:
        raise SpoolscopeError(
            f"the replay in the machine ended with status {ended.status}", remedy="see above"
        )


def _rows(out: Path) -> Rows:
    try:
        found: Rows = json.loads((out / REPLAY_FILE).read_text())["runs"]
    except FileNotFoundError:
        return []
    return found
