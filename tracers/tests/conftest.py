"""What several tests of the recorder share."""

import subprocess
from pathlib import Path

import pytest

ORACLE = Path(__file__).resolve().parent / "oracle"


@pytest.fixture(scope="session")
def allcalls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The oracle's program; static, so that no dynamic linker adds calls of its own."""
    binary = tmp_path_factory.mktemp("oracle") / "allcalls"
    sources = sorted(map(str, ORACLE.glob("*.c")))
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-static", "-pthread"]
    subprocess.run(["cc", *flags, "-o", str(binary), *sources], check=True)
    return binary
