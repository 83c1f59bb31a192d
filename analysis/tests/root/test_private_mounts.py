"""A replay's mounts are private: short paths, invisible, and nothing else depends on them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spoolscope.traces.calls import CALLS
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
SAMPLE = Path(__file__).resolve().parents[3] / "traces" / "samples" / "postfix-dovecot"
MAIN = [sys.executable, "-m", "spoolscope.cli.main"]
PART = ["--on", "ext4", "--slice", "..2s", "--repeats", "0", "-o"]


def replay_words(out: Path, *more: str) -> list[str]:
    return [*MAIN, "replay", str(SAMPLE), *PART, str(out), *more]


def test_a_long_path_is_no_obstacle(tmp_path: Path, require: Callable[..., None]) -> None:
    """Check a path too long for records (126 bytes) if mount points were below the output."""
    require("bpf")
    require("ext4")
    place = tmp_path / ("clone" * 40)
    place.mkdir()
    done = subprocess.run(replay_words(place / "out", "--json"), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["runs"]
    assert row["divergent"] == row["final_state"]["mismatched"] == 0
    recorded = Trace.open(place / "out" / "ext4-r1" / "trace")
    (spool,) = recorded.meta["spools"]
    assert len(spool["mount"]) < len("/run/spoolscope/99")
    assert recorded.meta["counts"]["syscalls"] >= row["executed"]


UNMOUNTED = """
set -e
mount -o loop {image} {mount}
loop=$(findmnt -no SOURCE {mount})
{replay} &
until grep -q /run/spoolscope/ /proc/$!/mounts; do kill -0 $!; sleep 0.02; done
kill -STOP $!
umount {mount}
for _ in 1 2 3 4 5; do losetup $loop && sleep 0.1 || break; done
kill -CONT $!
wait $!
"""


@pytest.mark.parametrize("propagation", ["shared", "private"])
def test_a_disk_that_is_unmounted_elsewhere_is_free_at_once(
    propagation: str, tmp_path: Path, require: Callable[..., None]
) -> None:
    """Check both propagations: that of systemd, and that of containers and others."""
    require("ext4")
    image, mount = tmp_path / "image", tmp_path / "mount"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    replay = " ".join(replay_words(tmp_path / "out", "--no-record", "-q"))
    script = UNMOUNTED.format(image=image, mount=mount, replay=replay)
    words = ["unshare", "--mount", "--propagation", propagation, "sh", "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert str(image) not in done.stdout


def test_a_recording_elsewhere_is_not_disturbed(
    tmp_path: Path, spool: Callable[[str], Path], when_ready: Callable[..., None]
) -> None:
    mount, trace = spool("ext4"), tmp_path / "trace"
    words = ["record", "--spool", str(mount), "--keep-names", "-o", str(trace)]

    def work() -> None:
        (mount / "before").write_text("mail")
        replayed.append(subprocess.run(replay_words(tmp_path / "out", "--no-record"), check=False))
        (mount / "after").write_text("mail")
        recorder.send_signal(signal.SIGINT)

    replayed: list[subprocess.CompletedProcess[bytes]] = []
    with subprocess.Popen([*MAIN, *words]) as recorder:
        when_ready(trace, work)
    assert (recorder.returncode, replayed[0].returncode) == (0, 0)
    recorded = Trace.open(trace)
    assert recorded.meta["complete"]
    calls = recorded.table("syscalls").to_pylist()
    # Other calls of the replay are only its unmount of the spool, in its namespace, and its forks.
    others = {call["syscall"] for call in calls if call["pid"] != os.getpid()}
    assert {name for name in others if CALLS[name].klass != "task"} <= {"mount", "umount2"}
    assert [call["syscall"] for call in calls].count("openat") == 2
