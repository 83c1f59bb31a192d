"""A spoolscope-record for a benchmark, and figures read from outside while it runs."""

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import bpf

from spoolscope.traces.native import find_binary

LOOK_S = 0.002


class Recorder:
    """Records a mount point from ``with`` to its end, or to ``stop``.

    Attributes:
        output: The capture; removed at the end unless ``keep``.
        done: The recorder's last answer, after ``stop``.
        high_water_bytes: Most bytes seen waiting in one ring, read every 2 ms with ``watch``.
        ring_bytes: Bytes that went through the rings, after ``stop``.
    """

    def __init__(
        self,
        spool: Path,
        output: Path,
        *words: str,
        watch: bool = False,
        snapshot: str = "none",
    ) -> None:
        self.output = output
        self.done: dict[str, Any] = {}
        self.high_water_bytes = self.ring_bytes = 0
        self._words = [
            "run",
            "--spool",
            str(spool),
            "--output",
            str(output),
            "--snapshot",
            snapshot,
            *words,
        ]
        self._watch = watch
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        remove(self.output)
        command = [str(find_binary("spoolscope-record")), *self._words]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            self._answer("ready")
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise
        self.rings = bpf.Rings(self.process.pid)
        self._began = time.monotonic(), self.cpu_ns()
        if self._watch:
            self._watcher = threading.Thread(target=self._look)
            self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if kind is None and not self.done:
            self.stop()
        if self.process.poll() is None:
            self.process.kill()
        self._ended.set()
        self.process.communicate()
        self.rings.close()
        remove(self.output)

    def stop(self) -> dict[str, Any]:
        """End the recording and return the recorder's last answer."""
        self._ended.set()
        if self._watch:
            self._watcher.join()
        self.process.terminate()
        self.done = self._answer("done")
        self.ring_bytes = self.rings.produced()
        return self.done

    @property
    def lost(self) -> int:
        """Records that the recorder counted as lost, after ``stop``."""
        return sum(self.done["meta"]["lost_records"].values())

    def cpu_ns(self) -> int:
        """Return the CPU time of all living threads of the recorder, ns."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)

    def consumed(self) -> tuple[int, float]:
        """Return CPU time since ready, ns, and its ratio to wall time; 1 is one CPU fully used."""
        wall_s, cpu_ns = self._began
        spent_ns = self.cpu_ns() - cpu_ns
        return spent_ns, spent_ns / 1e9 / (time.monotonic() - wall_s)

    def _look(self) -> None:
        while not self._ended.wait(LOOK_S):
            self.high_water_bytes = max(self.high_water_bytes, self.rings.waiting())

    def _answer(self, event: str) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                if answer.get("event") == event:
                    return answer
        assert self.process.stderr is not None
        raise SystemExit(f"the recorder ended before '{event}': {self.process.stderr.read()}")


def remove(output: Path) -> None:
    """Remove a capture, which is a file or a directory of files."""
    if output.is_dir():
        shutil.rmtree(output)
    else:
        output.unlink(missing_ok=True)


@contextmanager
def idle_target() -> Iterator[str]:
    """Yield the pid, as text, of a process that does nothing."""
    sleeper = subprocess.Popen(["sleep", "3600"])
    try:
        yield str(sleeper.pid)
    finally:
        sleeper.kill()
        sleeper.wait()
