"""Requests that device-mapper delays by a constant time, in an emulated machine.

The second source is the trace of its kernel: when each bio came to the delayed device, and when
it was passed on to the disk.
"""

import os
import re
import shutil
import subprocess
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from spoolscope.lab.faults import FAULTS, MS, Delay
from spoolscope.lab.slowdisk import Delayed
from spoolscope.lab.suite import judge
from spoolscope.lab.vm.running import run
from spoolscope.replay.images import program_path
from spoolscope.tracers.session import recover
from spoolscope.traces.capture import read_capture
from spoolscope.traces.native import find_binary
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.steady]

JOB = Path(__file__).with_name("dm_delay.sh")
KINDS = ("read", "write", "flush")
# Up to 50 ms dm-delay polls in a thread, which takes CPU time from the delayed programs.
DELAY_MS = 60
FAULT = {
    kind: replace(FAULTS[f"slow-{kind}"], delays=(Delay(kind, DELAY_MS * MS),)) for kind in KINDS
}
LETTER = {"read": "R", "write": "W"}
JIFFY_NS = 4 * MS  # HZ=250
ON_CPU = ("cpu", "runq", "preempt")
# cat-88 [000] ..... 12.345678: block_bio_queue: 254,0 R 2048 + 8 [cat]
# cat-88 [000] ..... 12.355678: block_bio_remap: 253,16 R 2048 + 8 <- (254,0) 2048
BIO = re.compile(
    r" (?P<s>\d+)\.(?P<us>\d{6}): block_bio_(?P<event>\w+): (?P<dev>\d+,\d+) (?P<op>\w+) "
    r"(?P<sector>\d+) \+ (?P<n>\d+) (?:<- \((?P<from>\d+,\d+)\) (?P<old>\d+))?"
)


@pytest.fixture(scope="module")
def guest(require, lab_machine, tmp_path_factory) -> Path:
    require("ext4")
    if not shutil.which("dmsetup", path=program_path()):
        require("dmsetup", "no program dmsetup")
    machine = lab_machine("6.12")
    work = tmp_path_factory.mktemp("dm-delay-")
    image, out = work / "ext4.img", work / "out"
    with image.open("wb") as file:
        file.truncate(256 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    path = f"{find_binary('spoolscope-record').parent}:{program_path()}"
    with run(
        machine,
        ["sh", "-e", JOB, out],
        back=[out],
        disks=[image],
        environment=os.environ | {"PATH": path, "MS": str(DELAY_MS)},
        scratch=False,
    ) as ended:
        assert ended.bring(out, out)
    assert ended.status == 0
    return out


def delays(text: str, kind: str, shift_ns: int) -> list[Delayed]:
    """Return the delay of each bio of a kind, by the kernel's trace."""
    came = defaultdict(list)
    found = []
    for bio in BIO.finditer(text):
        at_ns = int(bio["s"]) * 10**9 + int(bio["us"]) * 1000 + shift_ns
        # A leading F is a flush, perhaps with a write that is passed on separately after it.
        is_flush = bio["op"].startswith("F")
        if bio["event"] == "queue" and (is_flush if kind == "flush" else LETTER[kind] in bio["op"]):
            came[bio["dev"], 0 if kind == "flush" else int(bio["sector"])].append(at_ns)
        elif bio["event"] == "remap" and is_flush == (kind == "flush"):
            place = bio["from"], 0 if kind == "flush" else int(bio["old"])
            if came[place]:
                size = int(bio["n"]) * 512
                found.append(Delayed(kind, place[1] * 512, size, came[place].pop(0), at_ns))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_constant_delay_is_found(guest, tmp_path, kind):
    assert (guest / f"{kind}.lost").read_text().strip() == "0"
    capture = read_capture(guest / f"{kind}.seg")
    shift_ns = capture.start_real_ns - capture.start_mono_ns
    held = delays((guest / f"{kind}.bios").read_text(), kind, shift_ns)
    assert len(held) >= 50  # a slow emulator makes fewer: 100 flushes were seen
    trace = Trace.open(recover(guest / f"{kind}.seg", tmp_path / "trace", None).trace)
    outcome = judge(FAULT[kind], "ext4", trace, held, [])
    found, causes = outcome.score, outcome.explanation.causes
    print(kind, found, found.right, found.recovered, found.beyond, causes)
    # The delay is that of its table, to a clock tick; a busy host delays the guest's clock.
    assert median(d.end_ns - d.begin_ns for d in held) >= DELAY_MS * MS - JIFFY_NS
    # Calls are as slow when the host takes the CPU from its guest: one of twelve is too many.
    n_of_host = sum(found.wrong.get(cause, 0) for cause in ON_CPU)
    assert found.n_right >= 0.98 * (found.n_judged - n_of_host) > 0, found.wrong
    # A task in a run queue does not wait for the disk any more.
    runnable_ns = sum(causes.get(cause, 0) for cause in ON_CPU[1:])
    assert found.found_ns >= 0.95 * found.injected_ns - runnable_ns
