"""The Debian package: its files agree with the options of the commands. `make deb` builds it."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from spoolscope.cli import exporter, record

DEBIAN = Path(__file__).resolve().parents[2] / ".ci/debian"


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
        (tmp_path / unit.name).write_text(text.replace("/usr/bin/spoolscope ", "/bin/true "))
        words = ["systemd-analyze", "verify", "--man=no", tmp_path / unit.name]
        done = subprocess.run(words, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_exporter_has_few_rights(require: Callable[..., None]) -> None:
    if not shutil.which("systemd-analyze"):
        require("systemd-analyze", "no systemd-analyze: apt-get install systemd")
    unit = DEBIAN / "spoolscope-exporter.service"
    words = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", unit]
    done = subprocess.run(words, capture_output=True, text=True)
    assert re.search(r"Overall exposure level .*: \d\.\d OK", done.stdout), done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize("name", ["postinst", "prerm"])
def test_scripts_are_posix(name: str) -> None:
    subprocess.run(["sh", "-n", DEBIAN / name], check=True)
    assert (DEBIAN / name).read_text().startswith("#!/bin/sh\nset -e\n")
