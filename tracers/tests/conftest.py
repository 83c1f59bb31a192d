"""A fresh filesystem to record, and a program that works on it."""

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

MKFS = {
    "ext4": ["mkfs.ext4", "-q", "-F"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
    "btrfs": ["mkfs.btrfs", "-q", "-f"],
}


@pytest.fixture
def spool(tmp_path: Path, require: Callable[..., None]) -> Iterator[Callable[[str], Path]]:
    """Return ``spool(fstype)``: the mount point of a fresh loop image."""
    with ExitStack() as cleanup:

        def make(fstype: str) -> Path:
            require("bpf")
            require(fstype)
            image, mount = tmp_path / f"{fstype}.img", tmp_path / fstype
            mount.mkdir()
            with image.open("wb") as file:
                file.truncate(512 << 20)
            subprocess.run([*MKFS[fstype], image], check=True, stderr=subprocess.DEVNULL)
            subprocess.run(["mount", "-o", "loop,noatime", image, mount], check=True)
            cleanup.callback(subprocess.run, ["umount", "-l", mount], check=True)
            return mount

        yield make


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
