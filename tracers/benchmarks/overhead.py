"""What recording costs: the same loop untraced, filtered out, recorded and under strace.

Rounds are interleaved in random order on one fresh ext4 loop image; the figures are ratios to
the untraced loop of the same round, with their spread. Needs root, mkfs.ext4, strace, cc.
"""

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spoolscope.traces.native import find_binary

HERE = Path(__file__).parent
MODES = ("untraced", "filtered out", "spoolscope", "strace -f")
TARGETS = {"fsync": 1.10, "nosync": 1.25}


@contextmanager
def ext4(work: Path) -> Iterator[Path]:
    """Mount a fresh ext4 image."""
    image, mount = work / "ext4.img", work / "mnt"
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(1 << 30)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    subprocess.run(["mount", "-o", "loop,noatime", image, mount], check=True)
    try:
        yield mount
    finally:
        subprocess.run(["umount", mount], check=True)


def run(mode: str, loop: list[str], mount: Path, work: Path) -> float:
    """Return ns per loop."""
    capture = work / "capture.seg"
    capture.unlink(missing_ok=True)
    recorder = [str(find_binary("spoolscope-record")), "run", "--spool", str(mount)]
    recorder += ["--output", str(capture), "--no-tree"]
    if mode == "strace -f":
        loop = ["strace", "-f", "-o", str(work / "strace.txt"), *loop]
    elif mode == "spoolscope":
        loop = [*recorder, "--", *loop]
    elif mode == "filtered out":
        # Attached to everything, recording a process that does nothing on the spool.
        sleeper = subprocess.Popen(
            [*recorder, "--", "sleep", "600"], stdout=subprocess.PIPE, text=True
        )
        assert sleeper.stdout is not None
        sleeper.stdout.readline()  # {"event": "ready"}
        try:
            return ns_per_loop(loop)
        finally:
            sleeper.terminate()
            sleeper.communicate()
    return ns_per_loop(loop)


def ns_per_loop(command: list[str]) -> float:
    """Run the loop and read its answer, the only line of two numbers."""
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        words = line.split()
        if len(words) == 2 and all(w.isdigit() for w in words):
            return float(words[1])
    raise SystemExit(f"no answer from {command}: {done.stdout}{done.stderr}")


def measure(sync: str, rounds: int, seconds: float, mount: Path, work: Path) -> dict[str, object]:
    """Return median ns per loop and ratios to the same round's untraced loop, by mode."""
    loop = [str(work / "maildir_loop"), str(mount), str(seconds), sync]
    times: dict[str, list[float]] = {mode: [] for mode in MODES}
    for _ in range(rounds):
        for mode in random.sample(MODES, len(MODES)):
            times[mode].append(run(mode, loop, mount, work))
    out: dict[str, object] = {}
    for mode in MODES:
        ratios = sorted(a / b for a, b in zip(times[mode], times["untraced"], strict=True))
        out[mode] = {
            "ns_per_loop": statistics.median(times[mode]),
            "ratio": statistics.median(ratios),
            "ratio_low": ratios[0],
            "ratio_high": ratios[-1],
        }
    return out


def main() -> None:
    """Print a table on stdout; with --json the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="spoolscope-bench-", dir="/var/tmp"))
    try:
        source = HERE / "maildir_loop.c"
        subprocess.run(["cc", "-O2", "-o", work / "maildir_loop", source], check=True)
        with ext4(work) as mount:
            result = {
                sync: measure(sync, options.rounds, options.seconds, mount, work)
                for sync in TARGETS
            }
    finally:
        shutil.rmtree(work)
    if options.json:
        json.dump(result, sys.stdout, indent=2)
        return
    for sync, modes in result.items():
        print(f"Maildir loop, {sync}; {options.rounds} interleaved rounds of {options.seconds} s")
        for mode, f in modes.items():
            spread = f"({f['ratio_low']:.2f} to {f['ratio_high']:.2f})"
            print(f"  {mode:14} {f['ns_per_loop'] / 1000:9.1f} us  x {f['ratio']:.3f} {spread}")
        print(f"  target: spoolscope x {TARGETS[sync]:.2f}")


if __name__ == "__main__":
    main()
