"""Recordings of troubles, and what the rules of insights find in them."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import wrap
from typing import Any

from spoolscope.analysis.explain import explain
from spoolscope.analysis.wording import percent
from spoolscope.lab import slow_server, trouble_load
from spoolscope.lab.faults import MS
from spoolscope.lab.limits import limited
from spoolscope.lab.place import format_image, journal_places, mount_memory, mounted, set_features
from spoolscope.lab.private import memory_directory
from spoolscope.lab.slowdisk import SlowDisk
from spoolscope.lab.suite import Progress, delayed, record_load, why
from spoolscope.lab.trouble_fill import fill, warm
from spoolscope.lab.troubles import TROUBLES, Scene
from spoolscope.replay import images
from spoolscope.replay.interrupts import ending_on_signals
from spoolscope.traces.devices import device_model
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.trace import Trace

_ROOM_BYTES = 2 << 20


@dataclass(frozen=True)
class Found:
    """Findings of the rules in one scene.

    Attributes:
        kind: The rule that the scene is for.
        alike: The scene only looks like the trouble.
        says: The scene, in a clause.
        fired: Share of the time at stake by kind of the rules that fired.
    """

    kind: str
    alike: bool
    says: str
    fired: dict[str, float]

    @property
    def right(self) -> bool:
        """Return True if the rule fired in its trouble, or did not in what looks like it."""
        return (self.kind in self.fired) != self.alike


def run_all(kinds: Sequence[str], progress: Progress) -> tuple[list[Found], list[str]]:
    """Record troubles and what looks like them, each in a fresh directory in memory.

    Returns:
        What was found, and a sentence on every scene that could not be recorded.
    """
    scenes = [
        (kind, alike, TROUBLES[kind].alike if alike else TROUBLES[kind].scene)
        for kind in kinds
        for alike in (False, True)
    ]
    found, left_out = [], []
    with ending_on_signals():
        for n, (kind, alike, scene) in enumerate(scenes):
            progress(f"{kind}: {scene.says}", n / len(scenes))
            try:
                with memory_directory() as place:
                    fired = insights_of(recorded(scene, place))
            except (SpoolscopeError, OSError) as error:
                left_out.append(f"{kind}, {scene.says}: {why(error)}")
            else:
                found.append(Found(kind, alike, scene.says, fired))
    return found, left_out


def to_json(found: Found) -> dict[str, Any]:
    """Return one scene as an object."""
    return {**asdict(found), "right": found.right}


def text(found: Sequence[Found]) -> Iterator[str]:
    """Yield two lines for each scene: whether its rule was right, and all rules that fired."""
    for one in found:
        fires = "fires" if one.kind in one.fired else "does not fire"
        wrong = "" if one.right else "WRONG: "
        yield f"{wrong}{one.kind} {fires}: {one.says}"
        rules = (f"{kind} {percent(share, 0)}" for kind, share in one.fired.items())
        said = ", ".join(rules) or "nothing fires"
        yield from wrap(said, 78, initial_indent="  ", subsequent_indent="  ")


def insights_of(trace: Trace) -> dict[str, float]:
    """Return the share of the time at stake of each rule that fires in a trace."""
    return {insight.kind: insight.share for insight in explain(trace).insights}


def recorded(scene: Scene, place: Path) -> Trace:
    """Record a scene.

    Args:
        scene: The scene.
        place: An empty directory.

    Raises:
        SpoolscopeError: something that it needs is missing.
    """
    if scene.fstype == "server":
        delay_ms = scene.delays[0].delay_ns // MS
        with slow_server.serving(mount := place / "mnt", delay_ms, place / "served.log"):
            return _load(scene, mount, place, None)
    (below := place / "below").mkdir()
    mount_memory(below)
    try:
        return _on_disk(scene, below / "image", place)
    finally:
        images.unmount(below)


def _on_disk(scene: Scene, image: Path, place: Path) -> Trace:
    format_image(image, scene.fstype, scene.size_bytes, scene.mkfs)
    with SlowDisk(image, place, device_model(scene.model) if scene.model else None) as disk:
        with mounted(disk.path, place / "mnt", scene.fstype) as mount:
            fill(mount, scene.fill)
        if scene.features:
            set_features(image, scene.features)
        with mounted(disk.path, place / "mnt", scene.fstype, scene.mount) as mount:
            images.serve_at_once(mount)
            if scene.warm:
                warm(mount)
            journal = journal_places(image) if scene.fstype.startswith("ext") else []
            if scene.model:
                disk.play(images.loop_device(mount))
            surroundings: AbstractContextManager[None] = (
                _AROUND[scene.around](mount, image) if scene.around else nullcontext()
            )
            with (
                delayed(disk, scene.delays, journal),
                limited(scene.limit, mount) as group,
                surroundings,
            ):
                return _load(scene, mount, place, group)


def _load(scene: Scene, mount: Path, place: Path, group: Path | None) -> Trace:
    (log := place / "deeds.log").touch()
    within = {} if group is None else {"group": str(group)}
    plan = {
        "mount": str(mount),
        "seconds": scene.seconds,
        "log": str(log),
        "roles": [role | within for role in scene.roles],
    }
    program = [sys.executable, trouble_load.__file__]
    return record_load(plan, mount, place / "trace", snapshot=scene.snapshot, program=program)


@contextmanager
def _journal_thread(mount: Path, cpu: int, *, first: bool) -> Iterator[None]:
    """Bind the journal's thread to a CPU; ``first`` gives it precedence over all others."""
    name = images.loop_device(mount).name
    said = subprocess.run(["pgrep", "-f", f"jbd2/{name}-"], capture_output=True, check=False)
    if not said.stdout:
        raise SpoolscopeError(f"no journal thread of {name}", remedy="leave this trouble out")
    pid = int(said.stdout.split()[0])
    os.sched_setaffinity(pid, {cpu})
    if first:
        os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(50))
    yield  # the thread ends with the mount


@contextmanager
def _no_room(_mount: Path, image: Path) -> Iterator[None]:
    """Leave hardly any room below the disk's image, so that writes to new places fail."""
    below = image.parent
    used = os.statvfs(below)
    taken = (used.f_blocks - used.f_bfree) * used.f_frsize
    images.run("mount", "-o", f"remount,size={taken + _ROOM_BYTES}", below)
    try:
        yield
    finally:
        images.run("mount", "-o", "remount,size=50%", below)


_AROUND: dict[str, Callable[[Path, Path], AbstractContextManager[None]]] = {
    "journal on a busy CPU": lambda mount, _: _journal_thread(mount, 1, first=False),
    "journal goes first": lambda mount, _: _journal_thread(mount, 1, first=True),
    "no room below": _no_room,
}
