"""Capabilities of the machine, for tests: if one is missing, a test is skipped with a reason.

With SPOOLSCOPE_REQUIRE=bpf,ext4,... (or "all") in the environment, as in .ci/run, a missing
capability of that name is a failure instead.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spoolscope.traces.filesystems import FILESYSTEMS
from spoolscope.traces.kernel import SBIN, can_mount

if TYPE_CHECKING:
    from spoolscope.lab.slowdisk import SlowDisk
    from spoolscope.lab.vm.machine import Machine

TRACEFS = Path("/sys/kernel/tracing")
PROGRAMS = (
    "chromium",
    "strace",
    "cargo",
    "clang",
    "bpftool",
    "bpftrace",
    "blkparse",
    "fio",
    "getfattr",
)

_CLONE_NEWNS = 0x0002_0000
"""A number of <sched.h>; Python 3.12 has os.unshare."""

Require = Callable[..., None]

# A shell starts background jobs with SIGINT ignored, and every program that a test interrupts
# would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Programs of packages that `.ci/setup test` unpacks and does not install.
UNPACKED = Path(__file__).parent / "build/unpacked"
os.environ["PATH"] += "".join(f":{UNPACKED / place}" for place in ("usr/bin", "sbin"))


@pytest.fixture(scope="session")
def require() -> Require:
    """Return ``require(capability, reason="")``: skip, or fail, when it is missing.

    Known capabilities are probed: root, bpf, the filesystems, chromium, strace, cargo, clang,
    bpftool, bpftrace, blkparse, fio, getfattr. Any other name needs ``reason``, in which the caller
    states why it is missing.
    """

    def check(capability: str, reason: str = "") -> None:
        if missing := reason or _missing(capability):
            _skip(capability, missing)

    return check


@pytest.fixture(scope="session")
def lab_machine(require: Require) -> Callable[[str], "Machine"]:
    """Return ``lab_machine("6.1")``: a machine that boots that kernel, with two processors."""
    from spoolscope.lab.vm import kernels
    from spoolscope.lab.vm.machine import Machine
    from spoolscope.traces.errors import SpoolscopeError

    def make(series: str) -> Machine:
        require("root")
        try:
            made = Machine(kernels.fetch(series), cpus=2)
            made.check()
        except SpoolscopeError as error:
            require(f"kernel {series}", f"{error.message}; {error.remedy}")
            raise
        return made

    return make


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Separate keys, and notes on commands that tests kill, from those of the operator."""
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))
    place = tmp_path_factory.mktemp("state")
    os.environ["XDG_STATE_HOME"] = str(place)
    return place


@pytest.fixture(autouse=True)
def no_notes(own_state: Path) -> None:
    """Remove notes on commands that another test has killed."""
    shutil.rmtree(own_state / "spoolscope", ignore_errors=True)


@pytest.fixture
def spool(tmp_path: Path, require: Require) -> Iterator[Callable[[str], Path]]:
    """Return ``spool(fstype)``: the mount point of a fresh loop image."""
    with ExitStack() as cleanup:

        def make(fstype: str) -> Path:
            image = _image(fstype, tmp_path, require)
            return _mounted(image, tmp_path / fstype, cleanup)

        yield make


@pytest.fixture
def slow_spool(
    tmp_path: Path, require: Require
) -> Iterator[Callable[[str], tuple[Path, "SlowDisk"]]]:
    """Return ``slow_spool(fstype)``: a spool, and its disk, which can be made slow.

    For tests of sleeps: on a fast machine a request may be answered before a thread waits for it.
    """
    from spoolscope.lab.slowdisk import SlowDisk

    with ExitStack() as cleanup:

        def make(fstype: str) -> tuple[Path, SlowDisk]:
            if not Path("/dev/fuse").exists():
                require("fuse", "this kernel has no FUSE (/dev/fuse)")
            disk = cleanup.enter_context(SlowDisk(_image(fstype, tmp_path, require), tmp_path))
            return _mounted(disk.path, tmp_path / fstype, cleanup), disk

        yield make


def _image(fstype: str, place: Path, require: Require) -> Path:
    """Make a fresh image."""
    require("bpf")
    require(fstype)
    image = place / f"{fstype}.img"
    with image.open("wb") as file:
        file.truncate(512 << 20)
    command = [*FILESYSTEMS[fstype].mkfs, str(image)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return image


def _mounted(backing: Path, mount: Path, cleanup: ExitStack) -> Path:
    """Mount a file through a loop device until the clean-up."""
    mount.mkdir()
    subprocess.run(["mount", "-o", "loop,noatime", backing, mount], check=True)
    cleanup.callback(lambda: subprocess.run(["umount", "-l", mount], check=True))
    return mount


@pytest.fixture
def when_ready() -> Iterator[Callable[..., None]]:
    """Return ``when_ready(output, action)``: run ``action()`` once that recording has begun."""
    threads: list[threading.Thread] = []

    def wait(output: Path, action: Callable[[], object]) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found = output.parent.glob(f".{output.name}.*/capture.json")
            if any("ready" in answers.read_text() for answers in found):
                action()
                return
            time.sleep(0.02)

    def start(output: Path, action: Callable[[], object]) -> None:
        threads.append(threading.Thread(target=wait, args=(output, action)))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join()


def pytest_configure(config: pytest.Config) -> None:
    """Give each of several workers its own mounts, and its own numbers of mount points.

    A namespace that a test makes has a copy of all mounts around it. As long as it is there, the
    disks of other tests would stay in use after their unmounting.
    """
    # Without root it fails, and nothing is mounted either.
    if hasattr(config, "workerinput") and ctypes.CDLL(None).unshare(_CLONE_NEWNS) == 0:
        from spoolscope.replay.mount_points import RUN

        subprocess.run(["mount", "--make-rslave", "/"], check=False)
        RUN.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "none", RUN], check=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that boot a machine; begin with files of slow tests.

    A slow file that begins late keeps a worker busy after all others.
    """
    for item in items:
        if "lab_machine" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.vm)
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests marked ``root`` when not root, else mount tracefs for them, as init does."""
    if not item.get_closest_marker("root"):
        return
    if missing := _missing("root"):
        _skip("root", missing)
    if TRACEFS.is_dir() and not (TRACEFS / "instances").is_dir():
        subprocess.run(["mount", "-t", "tracefs", "none", TRACEFS], check=True)


def _skip(capability: str, sentence: str) -> None:
    required = set(os.environ.get("SPOOLSCOPE_REQUIRE", "").split(","))
    # Requiring BPF or a filesystem requires root.
    wanted = {capability, "all"} | ({"bpf", *FILESYSTEMS} if capability == "root" else set())
    if required & wanted:
        pytest.fail(f"required capability {capability} is missing: {sentence}", pytrace=False)
    pytest.skip(f"needs {capability}: {sentence}")


@cache
def _missing(capability: str) -> str:
    """Return why a capability is missing, or "" if it is there."""
    if capability == "root":
        return "" if os.geteuid() == 0 else "run as root"
    if capability == "bpf":
        return _missing("root") or _missing_bpf()
    if capability in FILESYSTEMS:
        return _missing("root") or _missing_filesystem(capability)
    if capability in PROGRAMS:
        return "" if shutil.which(capability) else f"no program {capability} on PATH"
    raise ValueError(f"unknown capability {capability!r}; give a reason")


def _missing_bpf() -> str:
    if not Path("/sys/kernel/btf/vmlinux").exists():
        return "this kernel has no BTF (/sys/kernel/btf/vmlinux)"
    return ""


def _missing_filesystem(name: str) -> str:
    kind = FILESYSTEMS[name]
    if kind.mkfs and not shutil.which(kind.mkfs[0], path=f"{os.environ['PATH']}:{SBIN}"):
        return f"no program {kind.mkfs[0]} on PATH (apt install {kind.package})"
    if not Path("/dev/loop-control").exists():
        return "no loop devices (/dev/loop-control)"
    return "" if can_mount(name) else f"this kernel has no {name}"
