"""Time in the kernel per call, from the kernel's own run-time statistics of BPF programs.

The statistics cost 20-30 ns a run themselves, so nothing else is measured at the same time. The
figure of empty programs shows what any tracing costs on this machine.
"""

import json
import re
import subprocess
import time
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
IDLE_S = 0.1
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


Times = dict[str, bpf.RunTime]


@dataclass(frozen=True)
class Window:
    """Work of the recorder's programs while a load ran.

    Attributes:
        load: Figures that the load measured itself.
        programs: Run time by program, including calls of the rest of the machine.
        others_ns: Cost of a call of the rest of the machine, measured just before.
    """

    load: Run
    programs: Times
    others_ns: float

    @property
    def calls(self) -> int:
        """Calls of the load; those of getppid are not on files, so operations count."""
        return self.load.calls or self.load.ops

    @property
    def calls_of_others(self) -> int:
        return max(0, entries(self.programs) - self.calls)

    def ns(self) -> dict[str, float]:
        """Return ns by class of program, without the cost of calls of others.

        Switches and interrupts of others cannot be separated and are included.
        """
        times = {kind: float(total(self.programs, kind).ns) for kind in CLASSES}
        times[SYSCALL] -= self.calls_of_others * self.others_ns
        return times

    def ns_per_call(self) -> float:
        """Return the time of the programs at system calls per call of the load."""
        return self.ns()[SYSCALL] / self.calls


def total(programs: Times, kind: str) -> bpf.RunTime:
    """Return runs and ns of all programs of a class."""
    classes = class_by_name()
    times = (time for name, time in programs.items() if classes.get(name, OTHER) == kind)
    return sum(times, bpf.RunTime(0, 0))


def entries(programs: Times) -> int:
    """Return how many calls of the whole machine the programs ran for."""
    syscall = (name for name, kind in class_by_name().items() if kind == SYSCALL)
    return max(programs[name].runs for name in syscall if name in programs)


def watch(recorder: Recorder, ground: Ground, workload: Workload, scale: float) -> list[Window]:
    """Run a load several times, to find a window in which little else happens."""
    windows = []
    for _ in range(WINDOWS):
        start = bpf.programs_of(recorder.process.pid)
        time.sleep(IDLE_S)
        before = bpf.programs_of(recorder.process.pid)
        load = ground.run(workload, scale=scale)
        after = bpf.programs_of(recorder.process.pid)
        idle = {name: before[name] - start[name] for name in before}
        others_ns = total(idle, SYSCALL).ns / max(1, entries(idle))
        loaded = {name: after[name] - before[name] for name in after}
        windows.append(Window(load, loaded, others_ns))
    return windows


def measure(ground: Ground, workloads: dict[str, Workload], scale: float) -> dict[str, Any]:
    """Return ns per call by kind of call, and by class of program for calls on the spool."""
    parents = replace(workloads["elsewhere"], operation="getppid")
    capture = ground.work / "capture.seg"
    with bpf.run_time_statistics():
        floor = empty_programs(ground, parents, scale)
        with Recorder(ground.spool, capture) as recorder:
            place = quietest(watch(recorder, ground, workloads["elsewhere"], scale))
            number = quietest(watch(recorder, ground, parents, scale))
            metadata = watch(recorder, ground, workloads["metadata"], scale)
            delivery = watch(recorder, ground, workloads["delivery"], scale)
        with idle_target() as pid, Recorder(ground.spool, capture, "--pid", pid) as recorder:
            task = quietest(watch(recorder, ground, workloads["metadata"], scale))
    return {
        "floor": floor,
        "rejected": {
            "by task: a process that is not recorded, on the spool": task.ns_per_call(),
            "by place: stat, open, write, fstat, close elsewhere": place.ns_per_call(),
            "by number: getppid": number.ns_per_call(),
        },
        "traced": {"metadata": traced(metadata), "delivery": traced(delivery)},
    }


def quietest(windows: list[Window]) -> Window:
    """Return the window with the smallest share of calls of others."""
    return min(windows, key=lambda window: window.calls_of_others / window.calls)


def traced(windows: list[Window]) -> dict[str, Any]:
    """Return the costs of a call and of an operation in the quietest window."""
    window = quietest(windows)
    times, load = window.ns(), window.load
    return {
        "ns_per_call": {kind: ns / window.calls for kind, ns in times.items()},
        "bpf_ns_per_op": sum(times.values()) / load.ops,
        "median_op_ns": min(w.load.p50_ns for w in windows),
        "ops": load.ops,
        "calls": window.calls,
        "others_by_own_calls": window.calls_of_others / window.calls,
        "programs": {
            name: {"runs": ran.runs, "ns_per_run": ran.ns / ran.runs}
            for name, ran in sorted(window.programs.items())
            if ran.runs
        },
    }


def empty_programs(ground: Ground, workload: Workload, scale: float) -> dict[str, Any]:
    """Return ns per run of empty programs, or the reason why it could not be measured."""
    try:
        with loaded(ground.work) as programs:
            before = {name: bpf.program_run_time(number) for name, number in programs.items()}
            ground.run(workload, scale=scale)
            after = {name: bpf.program_run_time(number) for name, number in programs.items()}
    except (OSError, subprocess.CalledProcessError) as error:
        return {"missing": complaint(getattr(error, "stderr", "") or str(error))}
    times = {name: after[name] - before[name] for name in after}
    return {name: ran.ns / max(1, ran.runs) for name, ran in times.items()}


@contextmanager
def loaded(work: Path) -> Iterator[dict[str, int]]:
    """Load and attach the programs of floor.bpf.c; yield their ids by place."""
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
