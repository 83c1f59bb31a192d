"""Checks of what this machine can record, and replay on; each check is a trial."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spoolscope.traces import native_failures
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.filesystems import FILESYSTEMS
from spoolscope.traces.kernel import SBIN, can_mount
from spoolscope.traces.native import find_binary

TIERS = {
    "T0": "the calls",
    "T1": "the calls and the exact split of their time",
    "T2": "the calls, the exact split of their time, journals and disks",
}


@dataclass(frozen=True)
class Finding:
    """One question about this machine.

    Attributes:
        name: What was tried.
        ok: The trial succeeded.
        detail: What was found, or why it does not work and how to mend it.
        needed: No recording is possible without it.
    """

    name: str
    ok: bool
    detail: str
    needed: bool = False


def check() -> tuple[list[Finding], dict[str, Any]]:
    """Return the findings and the recorder's survey of programs (empty if it cannot run)."""
    survey, failure = _survey()
    findings = [
        _root(),
        _exists("BTF", "/sys/kernel/btf/vmlinux", "boot a kernel with CONFIG_DEBUG_INFO_BTF=y"),
        Finding("recorder", not failure, failure or _tier(survey["tier"]), needed=True),
        _kallsyms(),
        *_filesystems(),
    ]
    return findings, survey


def _root() -> Finding:
    root = os.geteuid() == 0
    return Finding("root", root, "yes" if root else "run it with sudo", needed=True)


def _exists(name: str, path: str, remedy: str) -> Finding:
    found = Path(path).exists()
    return Finding(name, found, path if found else f"{path} is missing: {remedy}", needed=True)


def _survey() -> tuple[dict[str, Any], str]:
    try:
        recorder = find_binary("spoolscope-record")
    except SpoolscopeError as error:
        return {}, f"{error.message}: {error.remedy}"
    done = subprocess.run(
        [recorder, "doctor"],
        capture_output=True,
        text=True,
        check=False,
        env=native_failures.environment(),
    )
    if done.returncode:
        failed = native_failures.of_process(
            "the recorder", done.returncode, done.stderr, remedy="run 'make setup' again"
        )
        return {}, f"{failed.message}: {failed.remedy}"
    survey: dict[str, Any] = json.loads(done.stdout)
    return survey, "" if survey["usable"] else _refused(survey)


def _refused(survey: dict[str, Any]) -> str:
    """Return a message about the first refused BPF program that every recording needs."""
    name, why = next((n, w) for n, w in survey["missing"].items() if n in survey["required"])
    return f"the kernel refuses {name}: {why}"


def _tier(tier: str) -> str:
    return f"tier {tier}: {TIERS[tier]}"


def _kallsyms() -> Finding:
    """Check that kallsyms has addresses: without them stacks have no names, waits no causes."""
    try:
        with Path("/proc/kallsyms").open() as lines:
            visible = int(next(lines).split()[0], 16) != 0
    except (OSError, StopIteration):
        visible = False
    remedy = "sysctl kernel.kptr_restrict=0, or give CAP_SYSLOG"
    return Finding("kernel symbols", visible, "readable" if visible else remedy)


def _filesystems() -> list[Finding]:
    """Name what can be formatted and mounted here; the rest needs another kernel."""
    findings, elsewhere = [], []
    for kind in FILESYSTEMS.values():
        if not kind.mkfs:
            continue
        mkfs = shutil.which(kind.mkfs[0], path=f"{os.environ.get('PATH', '')}:{SBIN}")
        if not can_mount(kind.type):
            elsewhere += [kind.type] if kind.kernels else []
        elif mkfs is None:
            detail = f"apt install {kind.package}"
            findings.append(Finding(f"mkfs {kind.type}", ok=False, detail=detail))
        else:
            findings.append(Finding(f"candidate {kind.type}", ok=True, detail=mkfs))
    if elsewhere:
        detail = f"not in this kernel: {', '.join(elsewhere)}"
        findings.append(Finding("other candidates", ok=False, detail=detail))
    return findings
