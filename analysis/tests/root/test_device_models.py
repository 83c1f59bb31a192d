"""Device models against the clock of a waiting program."""

import mmap
import os
import random
import statistics
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from spoolscope.lab.slowdisk import SlowDisk
from spoolscope.traces.devices import device_models
from spoolscope.traces.errors import SpoolscopeError

pytestmark = [pytest.mark.root, pytest.mark.times]
SIZE_BYTES = 1 << 30
PAGE = 4096


@pytest.fixture(autouse=True)
def needs_fuse(require):
    require("root")
    if not Path("/dev/fuse").exists():
        require("fuse", reason="this kernel has no FUSE (/dev/fuse)")


@pytest.fixture
def loop(tmp_path):
    """Return ``loop(model)``: a disk with a model, and its loop device."""
    image, ends = tmp_path / "image", []
    with image.open("wb") as file:
        file.truncate(SIZE_BYTES)

    def make(name: str) -> tuple[SlowDisk, Path]:
        disk = SlowDisk(image, tmp_path, device_models()[name])
        ends.append(disk.close)
        words = ["losetup", "--direct-io=on", "--find", "--show", disk.path]
        device = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
        ends.append(lambda: subprocess.run(["losetup", "--detach", device], check=True))
        return disk, Path(device)

    yield make
    for end in reversed(ends):
        end()


def reads_us(device: Path, places: list[int]) -> list[float]:
    """Read a page at each place, past the page cache."""
    descriptor = os.open(device, os.O_RDONLY | os.O_DIRECT)
    times = []
    with mmap.mmap(-1, PAGE) as page:
        for place in places:
            begin = time.monotonic_ns()
            assert os.preadv(descriptor, [page], place) == PAGE
            times.append((time.monotonic_ns() - begin) / 1e3)
    os.close(descriptor)
    return times


def test_an_arm_seeks_and_turns_and_rests_when_asked(loop):
    disk, device = loop("hdd10k")
    draw = random.Random(1)
    places = [draw.randrange(SIZE_BYTES // PAGE) * PAGE for _ in range(200)]
    disk.play(device)
    middle = statistics.median(reads_us(device, places))
    # 4.7 ms for the arm, 3 ms for half a turn of 6 ms, 0.15 ms for the command.
    assert 6800 < middle < 9500
    following = sorted(reads_us(device, [i * PAGE for i in range(100)]))
    assert following[50] < 2500  # by read-ahead
    disk.rest()
    assert sorted(reads_us(device, places[:50]))[25] < 2500


def test_a_volume_grants_its_operations_a_second(loop):
    disk, device = loop("cloud-gp3")
    disk.play(device)
    begin = time.monotonic()
    program = """if True:
        import os, sys
        device = os.open(sys.argv[1], os.O_RDONLY)
        os.posix_fadvise(device, 0, 0, os.POSIX_FADV_RANDOM)
        for i in range(150):
            os.pread(device, 4096, (i * 100 + int(sys.argv[2])) * 4096)
    """
    words = ["python3", "-c", program, str(device)]
    readers = [subprocess.Popen([*words, str(i * 20_000)]) for i in range(10)]
    assert [reader.wait() for reader in readers] == [0] * 10
    took = time.monotonic() - begin
    # 1,500 reads at 3,000 a second, of which 30 are saved up.
    assert took > 1470 / 3000


def test_nonsense_is_refused_by_name(tmp_path):
    model = device_models()["hdd10k"]
    broken = replace(model, json=model.json.replace('"rpm": 10000', '"rpm": 0'))
    image = tmp_path / "image"
    image.write_bytes(bytes(PAGE))
    with pytest.raises(SpoolscopeError, match="rotations and rates are positive"):
        SlowDisk(image, tmp_path, broken)
