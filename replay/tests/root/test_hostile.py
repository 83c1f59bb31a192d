"""Hostile plans, run for real: mutations of a plan that makes every call of calls.txt.

Whatever the plan says, nothing outside the target changes, no process is left, and the engine
ends with results or with a refusal. `replay/fuzz` looks for plans that break its reader.
"""

import os
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from spoolscope.replay.candidates import parse
from spoolscope.replay.engine import Engine
from spoolscope.replay.plan import build
from spoolscope.replay.run import replay
from spoolscope.replay.targets import SMALLEST_BYTES, prepared
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.flat import DTYPES
from spoolscope.traces.native import find_binary
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
PLANS, ORDERS = 100, 40
ORDER_HEADER = 64
"""Bytes that identify the plan of an order, and the ends of its parts."""
# Exit statuses of the engine; see refusal.rs.
REFUSED, NO_ROOM = 1, 4
INTERESTING = (0, 1, -1, 2, 3, 4, 5, 255, 4095, 4096, 65_535, 65_536, 2**31 - 1, -(2**31), 2**32,
               2**40, 2**62, 2**63 - 1, -(2**63), -2, -13, -100)  # fmt: skip
NAMES = (
    b"../../../../../../canary/kept",
    b"/etc/passwd",
    b"..",
    b"a\nb",
    b"\xff\xfe",
    b"a/" * 2000,
)


@pytest.fixture
def plan(every_call, tmp_path) -> np.ndarray:
    """Return the bytes of the plan of a program that makes every call."""
    build(Trace.open(every_call), tmp_path / "plan")
    return np.fromfile(tmp_path / "plan", np.uint8)


@pytest.fixture
def canary(tmp_path) -> Path:
    """Return a tree beside the target with one file of each kind."""
    place = tmp_path / "canary"
    (place / "sub").mkdir(parents=True)
    (place / "kept").write_text("kept")
    (place / "sub" / "link").symlink_to(place / "kept")
    os.link(place / "kept", place / "again")
    os.mkfifo(place / "pipe")
    return place


def looks(place: Path) -> list[tuple]:
    """Return all facts of a tree that a change would alter; reading alters none."""
    found = []
    for path in sorted([place, *place.rglob("*")]):
        stat = path.lstat()
        facts = (stat.st_mode, stat.st_nlink, stat.st_uid, stat.st_size, stat.st_mtime_ns)
        found.append((path, *facts, stat.st_ctime_ns, os.listxattr(path, follow_symlinks=False)))
    return found


SECTIONS = ("op",) * 20 + ("entry", "fd", "xattr", "thread")
PLURAL = {"entry": "entries"}
# Any change of these is refused; `replay/fuzz` makes them.
LEFT_OUT = ("start_ns", "end_ns", "call", "thread", "path", "path2", "target", "parent")


def mutated(plan: np.ndarray, random: np.random.Generator) -> bytes:
    """Return a plan in which some members of some records have values of no program."""
    hostile = plan.copy()
    header = hostile[: DTYPES["plan_header"].itemsize].view(DTYPES["plan_header"])[0]
    for _ in range(random.integers(1, 40)):
        kind = SECTIONS[random.integers(len(SECTIONS))]
        plural, dtype = PLURAL.get(kind, f"{kind}s"), DTYPES[f"plan_{kind}"]
        at, n = int(header[f"{plural}_at"]), int(header[f"n_{plural}"])
        records = hostile[at : at + n * dtype.itemsize].view(dtype)
        numbers = [name for name in dtype.names if np.issubdtype(dtype[name], np.integer)]
        members = [name for name in numbers if name not in LEFT_OUT]
        if n == 0:
            continue
        member = records[members[random.integers(len(members))]]
        values = [*INTERESTING, int(member[random.integers(n)])]
        value = values[random.integers(len(values))]
        member[random.integers(n)] = np.array([value % 2**64], np.uint64).astype(member.dtype)[0]
    if random.random() < 0.1:
        _rename(hostile, header, random)
    return hostile.tobytes()


def _rename(hostile: np.ndarray, header: np.void, random: np.random.Generator) -> None:
    """Overwrite a part of the names, across their ends."""
    name = NAMES[random.integers(len(NAMES))]
    start, length = int(header["string_bytes_at"]), int(header["string_bytes"])
    place = start + int(random.integers(length - min(len(name), length - 1)))
    part = np.frombuffer(name, np.uint8)[: start + length - place]
    hostile[place : place + len(part)] = part


def inside(target: Path) -> list[str]:
    """Return the processes whose root directory is the target."""
    found = []
    for link in Path("/proc").glob("[0-9]*/root"):
        try:
            if link.readlink() == target:
                found.append(link.parent.name)
        except OSError:
            continue
    return found


def test_nothing_outside_is_touched_whatever_the_plan_says(plan, canary, tmp_path):
    before, refused, ran = looks(canary), 0, 0
    with prepared(parse("ext4"), tmp_path, SMALLEST_BYTES) as image:
        for seed in range(PLANS):
            file, target = tmp_path / "hostile", image.mount / str(seed)
            target.mkdir()
            file.write_bytes(mutated(plan, np.random.default_rng(seed)))
            command = [find_binary("spoolscope-replay"), "run", file, "--target", target]
            done = subprocess.run(
                [*command, "--pace", "afap", "--stall", "0.2"], timeout=120,
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert done.returncode in (0, REFUSED, NO_ROOM), (seed, done.returncode, done.stderr)
            refused, ran = refused + (done.returncode != 0), ran + (done.returncode == 0)
            assert "panicked" not in done.stderr, (seed, done.stderr)
            assert inside(target) == [], seed
            assert looks(canary) == before, seed
            subprocess.run(["rm", "-rf", "--one-file-system", target], check=True)
    print(f"{refused} plans refused, {ran} run")
    assert refused > PLANS / 20
    assert ran > PLANS / 5


def test_nothing_outside_is_touched_whatever_the_order_says(plan, canary, tmp_path):
    """The same with a good plan whose stored order is changed."""
    file, order, ends = tmp_path / "good", tmp_path / "good.order", Counter[str]()
    file.write_bytes(plan.tobytes())
    Engine(file).order()
    whole, before = np.fromfile(order, np.uint8), looks(canary)
    with prepared(parse("ext4"), tmp_path, SMALLEST_BYTES) as image:
        for seed in range(ORDERS):
            random, target = np.random.default_rng(seed), image.mount / str(seed)
            target.mkdir()
            hostile = whole.copy()
            places = random.integers(ORDER_HEADER, len(whole), random.integers(1, 4))
            hostile[places] = random.integers(0, 256, len(places))
            hostile.tofile(order)
            for verb, *words in (["run", "--pace", "afap", "--stall", "0.2"], ["verify"]):
                done = subprocess.run(
                    [find_binary("spoolscope-replay"), verb, file, "--target", target, *words],
                    timeout=120, capture_output=True, text=True, check=False,
                )  # fmt: skip
                assert done.returncode in (0, REFUSED, NO_ROOM), (seed, done.stderr)
                assert "panicked" not in done.stderr, (seed, done.stderr)
                ends[f"{verb} {done.returncode}"] += 1
            assert inside(target) == [], seed
            assert looks(canary) == before, seed
            subprocess.run(["rm", "-rf", "--one-file-system", target], check=True)
    print(dict(ends))
    assert all(ends[f"{verb} {status}"] for verb in ("run", "verify") for status in (0, REFUSED))


def test_a_disk_that_fills_by_files_without_names_ends_the_replay(script, tmp_path):
    """Space is estimated by names: here one process writes, and another removes the names."""
    target, size = tmp_path / "target", 64 << 20
    target.mkdir()
    for n in range(90):
        name, ino = f"file{n}", 100 + n
        script.call(10, 20 * n + 1, "openat", name, ret=3 + n, flags=0o101, mode=0o600, ino=ino,
                    obj_mode=0o100600, obj_size=0)  # fmt: skip
        script.call(10, 20 * n + 2, "write", name, base=0, fd=3 + n, ret=1 << 20, size=1 << 20,
                    offset=0, ino=ino, obj_mode=0o100600, obj_size=1 << 20)  # fmt: skip
        script.call(11, 20 * n + 10, "unlink", name, ino=ino)
    trace = script.write(tmp_path / "trace")
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", target], check=True)
    try:
        with pytest.raises(SpoolscopeError, match="are free, give a bigger one"):
            replay(trace, [f"dir:{target}"], tmp_path / "out")
        assert os.statvfs(target).f_bavail == os.statvfs(target).f_blocks
    finally:
        subprocess.run(["umount", target], check=True)
