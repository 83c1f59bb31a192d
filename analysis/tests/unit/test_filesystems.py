"""Every filesystem of the table has cause rules, or is marked as not explained."""

import tomllib
from pathlib import Path

import pytest

from spoolscope.analysis.commit_parts import _FILESYSTEM
from spoolscope.traces.filesystems import FILESYSTEMS

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "analysis/python/spoolscope/analysis/rules"


def _explained() -> set[str]:
    found = set()
    for file in RULES.glob("*.toml"):
        data = tomllib.loads(file.read_text())
        found |= {data.get("filesystem", "")}
        found |= {rule.get("filesystem", "") for rule in data.get("rules", [])}
    return found


@pytest.mark.parametrize("kind", FILESYSTEMS.values(), ids=FILESYSTEMS)
def test_every_type_has_rules_or_says_that_it_has_none(kind):
    assert set(kind.rules) <= _explained(), "no rule names it: write rules, or explained = false"
    if not kind.explained:
        assert kind.type not in _explained(), "there are rules: explained = false is untrue"


def test_commits_are_of_their_filesystem():
    assert "WHEN starts_with(kind, 'jbd2_') THEN 'ext4'" in _FILESYSTEM
    assert "WHEN starts_with(kind, 'xfs_') THEN 'xfs'" in _FILESYSTEM
    assert "'ext3'" not in _FILESYSTEM


def test_the_setup_installs_what_formats_a_filesystem():
    """Check mkfs programs; modules and servers are for machines with another kernel."""
    packages = set((ROOT / ".ci/packages").read_text().split())
    wanted = {kind.package for kind in FILESYSTEMS.values() if kind.mkfs and kind.kernels}
    assert wanted - packages <= {"zfsutils-linux"}
