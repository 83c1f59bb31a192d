"""The Debian package: its files agree with the options of the commands. `make deb` builds it."""

import shlex
import subprocess
from pathlib import Path

import pytest

from spoolscope.cli import record

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


def test_the_service_has_no_mount_namespace_of_its_own() -> None:
    unit = (DEBIAN / "spoolscope.service").read_text()
    options = {line.split("=")[0] for line in unit.splitlines() if "=" in line and line[0] != "#"}
    hides = {"ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "PrivateMounts"}
    assert not options & hides
    assert not [name for name in options if name.endswith("Paths")]


@pytest.mark.parametrize("name", ["postinst", "prerm"])
def test_scripts_are_posix(name: str) -> None:
    subprocess.run(["sh", "-n", DEBIAN / name], check=True)
    assert (DEBIAN / name).read_text().startswith("#!/bin/sh\nset -e\n")
