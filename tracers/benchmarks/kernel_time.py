"""Time in the kernel per call, from the kernel's own run-time statistics of BPF programs.

The statistics cost 20-30 ns a run themselves, so nothing else is measured meanwhile; the same for
programs that do nothing tells how much of a figure is this machine's price of any tracing.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import bpf
from recorder import Recorder, idle_target
from tools import complaint
from workloads import HERE, Ground, Run, Workload

SOURCES = HERE.parent / "src" / "bpf"
SYSCALL, SCHEDULER, INTERRUPT, OTHER = "system calls", "scheduler", "interrupts", "others"
CLASSES = (SYSCALL, SCHEDULER, INTERRUPT, OTHER)
WINDOWS = 5
PLACES = (
    (r"tp_btf/sys_(enter|exit)|.*syscalls.*", SYSCALL),
    (r"tp_btf/sched_(switch|waking|wakeup.*)", SCHEDULER),
    (r"tp_btf/(soft)?irq_.*", INTERRUPT),
)
NAME_LETTERS = 15  # the kernel keeps no more of a program's name
FLOOR = ("sys_enter", "sys_exit", "sched_switch")


def class_by_name() -> dict[str, str]:
    """Return the class of each recorder program, from the SEC() lines of its source."""
    pattern = r'SEC\("([^"]+)"\)\s*int (?:BPF_PROG\()?(\w+)'
    found = {}
    for source in SOURCES.glob("*.h"):
        for section, name in re.findall(pattern, source.read_text()):
            kind = (kind for place, kind in PLACES if re.fullmatch(place, section))
            found[name[:NAME_LETTERS]] = next(kind, OTHER)
    return found


@dataclass(frozen=True)
class Window:
    """What the recorder's programs did while a load ran.

    Attributes:
        load: What the load says of itself.
        programs: Run time by program.
    """

    load: Run
    programs: dict[str, bpf.RunTime]

    def of(self, kind: str) -> bpf.RunTime:
        """Return runs and ns of all programs of a class."""
        classes = class_by_name()
        times = (t for name, t in self.programs.items() if classes.get(name, OTHER) == kind)
        return sum(times, bpf.RunTime(0, 0))

    def entries(self) -> int:
        """Return how many calls of the whole machine were looked at."""
        syscall = (n for n, kind in class_by_name().items() if kind == SYSCALL)
        return max(self.programs[n].runs for n in syscall if n in self.programs)


def watch(recorder: Recorder, ground: Ground, workload: Workload, scale: float) -> list[Window]:
    """Run a load several times: what disturbs a window can only add to its times."""
    windows = []
    for _ in range(WINDOWS):
        before = bpf.programs_of(recorder.process.pid)
        load = ground.run(workload, scale=scale)
        after = bpf.programs_of(recorder.process.pid)
        windows.append(Window(load, {name: after[name] - before[name] for name in after}))
    return windows


def measure(ground: Ground, workloads: dict[str, Workload], scale: float) -> dict[str, Any]:
    """Return ns per call by kind of call, and by class of program for calls on the spool."""
    parents = replace(workloads["elsewhere"], operation="getppid")
    capture = ground.work / "capture.seg"
    with bpf.run_time_statistics():
        floor = empty_programs(ground, parents, scale)
        with Recorder(ground.spool, capture) as recorder:
            other = watch(recorder, ground, workloads["elsewhere"], scale)
            unknown = watch(recorder, ground, parents, scale)
            metadata = watch(recorder, ground, workloads["metadata"], scale)
            delivery = watch(recorder, ground, workloads["delivery"], scale)
        with idle_target() as pid, Recorder(ground.spool, capture, "--pid", pid) as recorder:
            filtered = watch(recorder, ground, workloads["metadata"], scale)
    return {
        "floor": floor,
        "rejected": {
            "by task: a process that is not recorded, on the spool": per_entry(filtered),
            "by place: stat, open, write, fstat, close elsewhere": per_entry(other),
            "by number: getppid": per_entry(unknown),
        },
        "traced": {
            "metadata": traced(metadata, per_entry(other)),
            "delivery": traced(delivery, per_entry(other)),
        },
    }


def per_entry(windows: list[Window]) -> float:
    """Return ns of the system call programs for each call of the machine."""
    return min(w.of(SYSCALL).ns / w.entries() for w in windows)


def traced(windows: list[Window], rejected_ns: float) -> dict[str, Any]:
    """Return what a call cost in the least disturbed window."""
    window = min(windows, key=lambda w: share(w, rejected_ns)[SYSCALL] / w.load.calls)
    times, load = share(window, rejected_ns), window.load
    return {
        "ns_per_call": {kind: ns / load.calls for kind, ns in times.items()},
        "bpf_ns_per_op": sum(times.values()) / load.ops,
        "median_op_ns": min(w.load.p50_ns for w in windows),
        "ops": load.ops,
        "calls": load.calls,
        "calls_of_others": max(0, window.entries() - load.calls),
        "programs": {
            name: {"runs": time.runs, "ns_per_run": time.ns / time.runs}
            for name, time in sorted(window.programs.items())
            if time.runs
        },
    }


def share(window: Window, rejected_ns: float) -> dict[str, float]:
    """Return ns by class of program, without what calls of the rest of the machine cost.

    Switches and interrupts of the rest of the machine cannot be told apart and stay in.
    """
    times = {kind: float(window.of(kind).ns) for kind in CLASSES}
    times[SYSCALL] -= max(0, window.entries() - window.load.calls) * rejected_ns
    return times


def empty_programs(ground: Ground, workload: Workload, scale: float) -> dict[str, Any]:
    """Return ns per run of programs that do nothing, or why it could not be measured."""
    try:
        with loaded(ground.work) as programs:
            before = {name: bpf.program_run_time(number) for name, number in programs.items()}
            ground.run(workload, scale=scale)
            times = {name: bpf.program_run_time(n) - before[name] for name, n in programs.items()}
    except (OSError, subprocess.CalledProcessError) as error:
        return {"missing": complaint(getattr(error, "stderr", "") or str(error))}
    return {name: time.ns / max(1, time.runs) for name, time in times.items()}


@contextmanager
def loaded(work: Path) -> Iterator[dict[str, int]]:
    """Load and attach the programs of floor.bpf.c; give their ids by place."""
    compiled, directory = work / "floor.o", work / "bpffs"
    words = ["clang", "-O2", "-g", "-target", "bpf", "-c", str(HERE / "floor.bpf.c"), "-o"]
    run([*words, str(compiled)])
    directory.mkdir()
    run(["mount", "-t", "bpf", "bpf", str(directory)])
    try:
        run(["bpftool", "prog", "loadall", str(compiled), str(directory / "floor")])
        ids = {}
        for place in FLOOR:
            pin = str(directory / "floor" / f"empty_{place}")
            ids[place] = int(
                json.loads(run(["bpftool", "-j", "prog", "show", "pinned", pin]))["id"]
            )
        with bpf.attached(ids.values()):
            yield ids
    finally:
        run(["umount", str(directory)])
        directory.rmdir()


def run(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
