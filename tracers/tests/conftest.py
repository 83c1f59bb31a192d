"""Fixtures that several tests of the recorder share."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ORACLE = Path(__file__).resolve().parent / "oracle"


@pytest.fixture(scope="session")
def allcalls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the oracle's program; it is static, so that no dynamic linker adds calls."""
    binary = tmp_path_factory.mktemp("oracle") / "allcalls"
    sources = sorted(map(str, ORACLE.glob("*.c")))
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-static", "-pthread"]
    subprocess.run(["cc", *flags, "-o", str(binary), *sources], check=True)
    return binary


@pytest.fixture
def io_limit(require: Callable[..., None]) -> Iterator[Callable[[Path, str, int], Path]]:
    """Return ``io_limit(mount, what, n) -> cgroup``: it limits read_iops or write_iops to n."""
    made: list[Path] = []

    def make(mount: Path, what: str, n: int) -> Path:
        dev = mount.stat().st_dev
        number = f"{os.major(dev)}:{os.minor(dev)}"
        old = Path("/sys/fs/cgroup/blkio")
        cgroup = (old if old.is_dir() else old.parent) / f"evidence-{os.getpid()}"
        if not old.is_dir():
            if "io" not in (old.parent / "cgroup.controllers").read_text().split():
                require("blkio", reason="no cgroup limits I/O: neither blkio nor io is there")
            (old.parent / "cgroup.subtree_control").write_text("+io")
        cgroup.mkdir()
        made.append(cgroup)
        if old.is_dir():
            (cgroup / f"blkio.throttle.{what}_device").write_text(f"{number} {n}")
        else:
            (cgroup / "io.max").write_text(f"{number} {what[0]}iops={n}")
        return cgroup

    yield make
    for cgroup in made:
        cgroup.rmdir()
