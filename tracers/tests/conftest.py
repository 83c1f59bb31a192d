"""What several tests of the recorder share."""

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ORACLE = Path(__file__).resolve().parent / "oracle"


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


@pytest.fixture(scope="session")
def allcalls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The oracle's program; static, so that no dynamic linker adds calls of its own."""
    binary = tmp_path_factory.mktemp("oracle") / "allcalls"
    sources = sorted(map(str, ORACLE.glob("*.c")))
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-static", "-pthread"]
    subprocess.run(["cc", *flags, "-o", str(binary), *sources], check=True)
    return binary
