"""A workload on candidates, in rounds of random order, each run on a fresh filesystem."""

import os
import platform
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spoolscope.lab.workloads.bench import Bench, Life
from spoolscope.lab.workloads.catalog import Workload
from spoolscope.lab.workloads.needs import Needs
from spoolscope.replay.artifacts import write_json
from spoolscope.replay.candidates import Candidate, check
from spoolscope.replay.disks import Asked as Devices
from spoolscope.replay.disks import Disks, given
from spoolscope.replay.images import filesystem_type
from spoolscope.replay.interrupts import ending_on_signals
from spoolscope.replay.job import Recorder, Slot, slots
from spoolscope.replay.machine import guest_facts
from spoolscope.replay.modelled import Player, on_model
from spoolscope.replay.mount_points import enter_private_mounts
from spoolscope.replay.places import check_places, results, scratch
from spoolscope.replay.targets import grows_to, image_bytes, prepared
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.phases import Phases, Progress, unseen

RUN = "run.json"
MIB = 1 << 20
# Factor for inodes that are used otherwise.
SPARE_NAMES = 1.3


@dataclass(frozen=True)
class Asked:
    """Parameters of the runs.

    Attributes:
        workload: The workload.
        candidates: The candidates.
        out: Directory for the results; must not exist or be empty.
        scale: Factor to the original size.
        rounds: Number of rounds; each has one run of each candidate.
        seed: Seed of all random numbers, of the load and of the order within a round.
        format: Mailbox format; empty is the workload's default.
        work: Directory for images, by default the output directory.
        device_model: Device model for candidates that name none; empty for plain images.
        recorder: Function that records each step; None records nothing.
        player: Player of device models.
        devices: Block devices for the candidates, instead of images.
    """

    workload: Workload
    candidates: Sequence[Candidate]
    out: Path
    scale: float
    rounds: int = 1
    seed: int = 0
    format: str = ""
    work: Path | None = None
    device_model: str = ""
    recorder: Recorder | None = None
    player: Player | None = None
    devices: Devices = field(default_factory=Devices)

    @property
    def mailboxes(self) -> str:
        """The mailbox format; empty if there are no mailboxes."""
        return self.format or next(iter(self.workload.formats), "")


def run_all(
    asked: Asked,
    progress: Progress = unseen,
    tell: Callable[[str], None] = lambda _line: None,
    keep: Callable[[list[dict[str, Any]]], None] = lambda _rows: None,
) -> list[dict[str, Any]]:
    """Run a workload on every candidate; return one row per run, as ``run.json`` has it.

    Args:
        asked: The parameters.
        progress: Called with the current phase.
        tell: Called with the duration of each run.
        keep: Called with all rows after each run, so that an interruption loses none.

    Raises:
        SpoolscopeError: a candidate cannot be used, there is no room, or a run failed.
    """
    chosen = [on_model(candidate, asked.device_model) for candidate in asked.candidates]
    for candidate in chosen:
        check(candidate, {})
    check_places(chosen, asked.out, asked.work)
    needs = asked.workload.needs(asked.workload.name, asked.scale)
    disks = given(asked.devices)
    check_room(chosen, asked, needs, disks)
    directories = [candidate.directory for candidate in chosen if candidate.directory]
    if len(directories) < len(chosen):
        enter_private_mounts([asked.out, asked.work or asked.out, *directories])
    order = slots(chosen, asked.rounds, asked.seed)
    rows: list[dict[str, Any]] = []
    with (
        ending_on_signals(),
        results(asked.out),
        scratch(asked.work or asked.out, asked.out, disks, kind="lab") as place,
    ):
        phases = Phases(progress, {slot.name: 1.0 for slot in order})
        for slot in order:
            rows.append(_run_once(asked, slot, needs, place, disks, phases))
            write_json(asked.out / slot.name / RUN, rows[-1])
            keep(rows)
            tell(
                f"{slot.name}: {rows[-1]['wall_ns'] / 1e9:.1f} s; {len(rows)} of {len(order)} runs"
            )
    return rows


def image_size(needs: Needs) -> int:
    """Return the size of the images of a workload, bytes."""
    return image_bytes(needs.bytes, round(needs.names * SPARE_NAMES))


def check_room(
    chosen: Sequence[Candidate], asked: Asked, needs: Needs, disks: Disks | None
) -> None:
    """Make sure before the first run that there is space for all runs.

    Raises:
        SpoolscopeError: there is too little, or a candidate cannot use the devices; the message
            has the needed amount.
    """
    size = image_size(needs)
    made = [one for one in chosen if one.directory is None]
    grown = [grows_to(one, max(size, one.smallest), None) for one in made if disks is None]
    if disks is not None:
        disks.check_candidates(chosen)
        disks.check_room(size, f"{asked.workload.name} at scale {asked.scale:g}", "a lower --scale")
    places = {_existing(asked.work or asked.out): needs.source_bytes + max(grown, default=0)}
    for candidate in chosen:
        if candidate.directory is not None:
            place = candidate.directory
            places[place] = places.get(place, 0) + needs.bytes + 4096 * needs.names
            _check_names(place, asked, needs)
    for place, needed in places.items():
        free = shutil.disk_usage(place).free
        if free < needed:
            raise SpoolscopeError(
                f"{asked.workload.name} at scale {asked.scale:g} needs {-(-needed // MIB):,} MiB "
                f"in {place}, which has {free // MIB:,} MiB free",
                remedy="give a smaller --scale, or --work DIR elsewhere",
            )


def _check_names(place: Path, asked: Asked, needs: Needs) -> None:
    left = os.statvfs(place)
    if left.f_files and left.f_favail < needs.names:
        raise SpoolscopeError(
            f"{asked.workload.name} at scale {asked.scale:g} makes {needs.names:,} files and "
            f"directories, {place} has room for {left.f_favail:,}",
            remedy="give a smaller --scale, or another directory",
        )


def _existing(place: Path) -> Path:
    return next(one for one in (place.absolute(), *place.absolute().parents) if one.exists())


def _run_once(
    asked: Asked, slot: Slot, needs: Needs, place: Path, disks: Disks | None, phases: Phases
) -> dict[str, Any]:
    kept = asked.out / slot.name
    kept.mkdir(parents=True)
    work = place / slot.name
    work.mkdir()
    began, host = time.monotonic(), _host(work)
    life, candidate = Life(), slot.candidate

    def show(what: str, _done: float | None) -> None:
        phases.sub(slot.name)(f"{slot.name}: {what}", 0.0)

    show("mkfs", None)
    size, player = image_size(needs), asked.player
    with prepared(candidate, work, size, life=life, player=player, devices=disks) as target:
        life.capacity("after_mkfs", target.mount)
        if candidate.model:
            target.cool()  # the model is played from here on
        bench = Bench(
            workload=asked.workload.name,
            target=target,
            life=life,
            scale=asked.scale,
            seed=asked.seed,
            format=asked.mailboxes,
            work=work,
            kept=kept,
            recorder=asked.recorder,
            show=show,
        )
        for step in ("mkfs", "mount"):
            bench.keep_program(step)
        room = life.facts["capacity"]["after_mkfs"]
        bench.figures["capacity_pct"] = 100 * room["available_bytes"] / room["total_bytes"]
        asked.workload.run(bench)
        options = target.options
        devices = list(target.storage.devices) if target.storage else []
    shutil.rmtree(work, ignore_errors=True)
    return _row(asked, slot, bench, options, host) | {
        "devices": devices,
        "wall_ns": int((time.monotonic() - began) * 1e9),
    }


def _host(work: Path) -> dict[str, Any]:
    """Return facts on the machine, and the filesystem below the images."""
    return {
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "images_on": filesystem_type(work),
    }


def _row(
    asked: Asked, slot: Slot, bench: Bench, options: str, host: dict[str, Any]
) -> dict[str, Any]:
    candidate = slot.candidate
    return {
        "run": slot.name,
        "workload": asked.workload.name,
        "comparison": asked.workload.published,
        "scale": asked.scale,
        "seed": asked.seed,
        "format": asked.mailboxes,
        "candidate": candidate.name,
        "round": slot.round,
        "position": slot.position,
        "fstype": candidate.fstype,
        "device_model": candidate.model,
        "mkfs": " ".join(candidate.mkfs),
        "journal_bytes": candidate.journal,
        "mount_options": options or candidate.mount_options,
        "durability": candidate.durability,
        "on": list(candidate.layers),
        "source": candidate.source,
        "instead": candidate.instead,
        "caches": "as they were" if candidate.directory else "emptied between steps by a new mount",
        "recorded": asked.recorder is not None,
        "kernel": platform.release(),
        "machine": guest_facts(),
        "host": host,
        "steps": bench.steps,
        "figures": bench.figures,
        "throughput": {
            step: [vars(sample) for sample in samples] for step, samples in bench.series.items()
        },
        "life": bench.life.as_dict(),
    }
