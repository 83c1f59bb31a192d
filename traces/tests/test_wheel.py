"""The wheels that `make wheel` writes work where only Python is installed."""

import os
import shutil
import subprocess
import sysconfig
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TOP = Path(__file__).resolve().parents[2]
SAMPLE = TOP / "traces/samples/postfix-dovecot"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory) -> dict[str, Path]:
    """Build both wheels, and unpack each into a separate directory."""
    if not (TOP / "target/release/spoolscope-record").exists():
        pytest.skip("the native programs are not built")
    subprocess.run([TOP / ".ci/wheel"], check=True)
    places = {}
    for wheel in (TOP / "dist").glob("*.whl"):
        kind = "any" if wheel.stem.endswith("-any") else "native"
        places[kind] = tmp_path_factory.mktemp(kind)
        subprocess.run(["pip", "install", "-q", "--no-deps", "--target", places[kind], wheel],
                       check=True, env=with_venv())  # fmt: skip
    assert set(places) == {"any", "native"}
    return places


def with_venv() -> dict[str, str]:
    return {**os.environ, "PATH": f"{TOP / '.venv/bin'}:{os.environ['PATH']}"}


def spoolscope(place: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Run an unpacked wheel with the libraries of .venv, but without its checkout."""
    path = f"{place}:{sysconfig.get_paths()['purelib']}"
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": path, "HOME": str(place)}
    python = shutil.which("python3", path=environment["PATH"])
    code = "import sys; sys.argv[0] = 'spoolscope'; from spoolscope.cli.main import main; main()"
    return subprocess.run([python, "-s", "-c", code, *map(str, words)],
                          env=environment, cwd=place, capture_output=True, text=True)  # fmt: skip


@pytest.mark.usefixtures("wheels")
def test_every_file_of_the_packages_is_in_the_wheel():
    tracked = subprocess.run(["git", "-C", TOP, "ls-files", "*/python/spoolscope/*"],
                             capture_output=True, text=True, check=True).stdout.split()  # fmt: skip
    wheel = next((TOP / "dist").glob("*-any.whl"))
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/python/")[1] for name in tracked} <= inside
    assert not [name for name in inside if "/tests/" in name]


def test_a_wheel_without_native_programs_explains_and_says_what_it_cannot(wheels):
    seen = spoolscope(wheels["any"], "explain", SAMPLE)
    assert seen.returncode == 0, seen.stderr
    assert "Where the time went" in seen.stdout
    refused = spoolscope(wheels["any"], "plan", SAMPLE)
    assert refused.returncode == 1
    assert "install the wheel for this architecture" in refused.stderr


def test_a_wheel_with_native_programs_replays(wheels, tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    how = ["--pace", "afap", "--slice", "5s..5.5s", "--no-record", "--no-life"]
    seen = spoolscope(wheels["native"], "replay", SAMPLE, "--on", f"dir:{target}", *how,
                      "-o", tmp_path / "out")  # fmt: skip
    assert seen.returncode == 0, seen.stderr
    assert " ok " in seen.stdout


def test_the_oldest_glibc_of_the_wheel_is_stated_and_is_in_debian_12(wheels):
    (wheel,) = (TOP / "dist").glob("*manylinux*.whl")
    version = wheel.name.split("manylinux_2_")[1].split("_")[0]
    assert int(version) <= 36
    programs = sorted(path.name for path in (wheels["native"] / "spoolscope/bin").iterdir())
    assert {"spoolscope-record", "spoolscope-replay"} <= set(programs)
    for path in (wheels["native"] / "spoolscope/bin").iterdir():
        linked = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        # Libraries other than glibc are those of the wheel, not of the system.
        assert "libelf" not in linked or str(wheels["native"]) in linked
