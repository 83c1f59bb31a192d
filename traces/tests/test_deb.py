"""The Debian package: its files agree with the options of the commands. `make deb` builds it."""

import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spoolscope.cli import exporter, record

TOP = Path(__file__).resolve().parents[2]
DEBIAN = TOP / ".ci/debian"
UNITS = sorted(path.name for path in DEBIAN.glob("*.service"))
TRIM = DEBIAN / "trim-recordings"
DAY_S = 86_400


def defaults() -> dict[str, str]:
    lines = (DEBIAN / "spoolscope.default").read_text().splitlines()
    return dict(shlex.split(line)[0].split("=", 1) for line in lines if not line.startswith("#"))


def test_the_service_records_with_options_that_exist() -> None:
    told = defaults()
    words = ["--spool", told["SPOOL"], *shlex.split(told["OPTIONS"]), "-o", "somewhere"]
    asked = record.command.make_context("record", words).params
    assert asked["last"] is not None
    assert asked["freeze_on"]


def test_the_service_of_roll_ups_records_with_options_that_exist() -> None:
    words = ["--rollup", "--spool", "somewhere", *shlex.split(defaults()["ROLLUP"])]
    asked = record.command.make_context("record", words).params
    assert (asked["retain"], asked["quota"]) == (90, 2 << 30)


@pytest.mark.parametrize("name", ["spoolscope", "spoolscope-rollup"])
def test_a_recorder_has_no_mount_namespace_of_its_own(name: str) -> None:
    unit = (DEBIAN / f"{name}.service").read_text()
    options = {line.split("=")[0] for line in unit.splitlines() if "=" in line and line[0] != "#"}
    hides = {"ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "PrivateMounts"}
    assert not options & hides
    assert not [name for name in options if name.endswith("Paths")]


def test_the_exporter_is_started_with_options_that_exist() -> None:
    words = ["somewhere", *shlex.split(defaults()["EXPORTER"])]
    assert exporter.command.make_context("exporter", words).params["listen"]


def test_systemd_accepts_every_unit(tmp_path: Path, require: Callable[..., None]) -> None:
    if not shutil.which("systemd-analyze"):
        require("systemd-analyze", "no systemd-analyze: apt-get install systemd")
    for unit in DEBIAN.glob("*.service"):
        text = unit.read_text()
        assert "MemoryMax=" in text
        assert "/usr/bin/spoolscope " in text
        # The command is not installed where this runs.
        for command in ("/usr/bin/spoolscope ", f"/usr/lib/spoolscope/{TRIM.name} "):
            text = text.replace(command, "/bin/true ")
        (tmp_path / unit.name).write_text(text)
        words = ["systemd-analyze", "verify", "--man=no", tmp_path / unit.name]
        done = subprocess.run(words, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_exporter_has_few_rights(require: Callable[..., None]) -> None:
    if not shutil.which("systemd-analyze"):
        require("systemd-analyze", "no systemd-analyze: apt-get install systemd")
    unit = DEBIAN / "spoolscope-exporter.service"
    words = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", unit]
    done = subprocess.run(words, capture_output=True, text=True)
    rated = re.search(r"Overall exposure level .*: (\d\.\d) OK", done.stdout)
    assert rated, done.stderr
    assert done.returncode == 0
    version = subprocess.run(["systemctl", "--version"], capture_output=True, text=True).stdout
    if version.startswith("systemd 252 "):  # that of Debian 12; others rate otherwise
        page = (TOP / "docs/guides/service.md").read_text()
        assert f"of Debian 12 rates its exposure {rated[1]} of 10" in page


@pytest.mark.parametrize("name", ["postinst", "prerm", "postrm", "trim-recordings"])
def test_scripts_are_posix(name: str) -> None:
    subprocess.run(["sh", "-n", DEBIAN / name], check=True)
    first, *rest = (DEBIAN / name).read_text().splitlines()
    assert first == "#!/bin/sh"
    assert next(line for line in rest if line[0] != "#") in ("set -e", "set -eu")


def test_purging_removes_the_links_of_enabled_units(
    tmp_path: Path, require: Callable[..., None]
) -> None:
    if not shutil.which("deb-systemd-helper"):
        require("deb-systemd-helper", "no deb-systemd-helper: apt-get install init-system-helpers")
    units, wanted = (tmp_path / f"{at}/systemd/system" for at in ("usr/lib", "etc"))
    wanted /= "multi-user.target.wants"
    for place in (units, wanted):
        place.mkdir(parents=True)
    for name in UNITS:
        shutil.copy(DEBIAN / name, units)
        (wanted / name).symlink_to(f"/usr/lib/systemd/system/{name}")
    # As dpkg has it for the scripts of a package.
    dpkg = {"DPKG_ROOT": str(tmp_path), "DPKG_MAINTSCRIPT_PACKAGE": "spoolscope"}
    environment = {**os.environ, **dpkg}
    noted = next(
        shlex.split(line.partition(" >")[0])
        for line in (DEBIAN / "postinst").read_text().splitlines()
        if "deb-systemd-helper update-state" in line
    )
    subprocess.run(noted, check=True, env=environment)
    for ending, left in (("remove", UNITS), ("purge", [])):
        subprocess.run(["sh", DEBIAN / "postrm", ending], check=True, env=environment)
        assert sorted(path.name for path in wanted.glob("*")) == left


def recordings(place: Path, ages: dict[str, float], kib: int = 1) -> None:
    """Make recordings of a flight recorder, some days old."""
    for name, days in ages.items():
        trace = place / name / "frozen-000001"
        trace.mkdir(parents=True)
        (trace / "syscalls.parquet").write_bytes(b"x" * (kib << 10))
        when = time.time() - days * DAY_S
        os.utime(place / name, (when, when))


def trimmed(place: Path, *limits: object) -> list[str]:
    """Return what is left of recordings; each is whole."""
    subprocess.run(["sh", TRIM, place, *map(str, limits)], check=True, capture_output=True)
    left = sorted(path.name for path in place.iterdir())
    assert all((place / name / "frozen-000001/syscalls.parquet").is_file() for name in left)
    return left


@pytest.mark.parametrize("limits", [(14, 10), ("", "")])
def test_recordings_of_earlier_starts_go_by_age(tmp_path: Path, limits: tuple[object, ...]) -> None:
    new, old = "20261129-010203", "20261101-010203"
    recordings(tmp_path, {new: 13.9, old: 14.1, "20261101-evidence": 99, "mine": 99})
    assert trimmed(tmp_path, *limits) == ["20261101-evidence", new, "mine"]


def test_recordings_that_are_all_too_old_stay(tmp_path: Path) -> None:
    """A clock that was set wrong must not empty the directory."""
    names = {"20261101-010203": 98.0, "20261102-010203": 99.0}
    recordings(tmp_path, names)
    assert trimmed(tmp_path, 14, 10) == sorted(names)


@pytest.mark.parametrize(("gb", "left"), [(0, ["20261103-010203"]), (1, None)])
def test_recordings_of_earlier_starts_fit_in_a_quota(
    tmp_path: Path, gb: int, left: list[str] | None
) -> None:
    names = {f"2026110{day}-010203": 5.0 - day for day in (1, 2, 3)}
    recordings(tmp_path, names)
    assert trimmed(tmp_path, 14, gb) == (left or sorted(names))


def test_the_service_bounds_the_recordings_of_all_starts() -> None:
    unit = (DEBIAN / "spoolscope.service").read_text()
    place = "/var/lib/spoolscope/recordings"
    assert (
        f"ExecStartPre=-/usr/lib/spoolscope/{TRIM.name} {place} ${{KEEP_DAYS}} ${{KEEP_GB}}" in unit
    )
    set_to = defaults()
    assert f"Environment=KEEP_DAYS={set_to['KEEP_DAYS']} KEEP_GB={set_to['KEEP_GB']}\n" in unit
    assert f'-o "{place}/$(date +%%Y%%m%%d-%%H%%M%%S)"' in unit
    assert not list(DEBIAN.glob("*.tmpfiles"))  # their ages are those of single files


@pytest.mark.parametrize(
    ("machine", "there", "made"),
    [(None, True, "made \n"), ("mips", True, ""), ("mips", False, "made mips\n")],
)
def test_a_package_has_a_new_wheel(
    tmp_path: Path, machine: str | None, there: bool, made: str
) -> None:
    """A wheel of the same version may be older than the sources."""
    shutil.copytree(DEBIAN, tmp_path / ".ci/debian")
    shutil.copy(TOP / ".ci/deb", tmp_path / ".ci")
    shutil.copy(TOP / "Cargo.toml", tmp_path)
    script = tmp_path / ".ci/wheel"
    script.write_text('#!/bin/sh\necho "made $*"\n')
    script.chmod(0o755)
    (tmp_path / "dist").mkdir()
    version = re.search(r'^version = "(.*)"', (TOP / "Cargo.toml").read_text(), re.M)
    assert version
    if there:
        name = f"spoolscope-{version[1]}-py3-none-manylinux_2_34_{machine or os.uname().machine}"
        (tmp_path / f"dist/{name}.whl").touch()
    environment = {name: value for name, value in os.environ.items() if name != "MACHINE"}
    if machine:
        environment["MACHINE"] = machine
    # It ends where it would install the wheel, as there is no .venv.
    done = subprocess.run(
        [tmp_path / ".ci/deb", "bookworm"], env=environment, capture_output=True, text=True
    )
    assert done.stdout == made
    assert ".venv/bin/python: No such file" in done.stderr


@pytest.mark.parametrize("target", ["wheel", "deb", "docs", "arm64", "release"])
def test_what_only_packs_installs_no_packages_of_tests(target: str) -> None:
    done = subprocess.run(
        ["make", "--no-print-directory", "-n", target], cwd=TOP, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[0] == ".ci/setup pack"


def test_a_set_up_installs_no_server_that_starts() -> None:
    lists = [line.split() for line in (TOP / ".ci/packages").read_text().splitlines()]
    servers = {"nfs-kernel-server", "rpcbind", "mdadm", "prometheus"}
    where = {words[0] for words in lists if words[0] != "#" and servers & {*words[1:]}}
    assert where == {"quiet", "unpack"}
