"""Machines on which a candidate can run: this one, or one that boots another kernel."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from spoolscope.replay import images
from spoolscope.replay.candidate import Candidate
from spoolscope.replay.layers import LAYERS, NFS, device_layers
from spoolscope.replay.nfs import PACKAGES, missing_program
from spoolscope.traces.filesystems import FILESYSTEMS
from spoolscope.traces.kernel import can_mount

LAB = Path("/run/spoolscope-vm")
"""This directory exists in a machine that lab vm has booted, and nowhere else."""


@dataclass(frozen=True)
class Refusal:
    """Reason why a candidate cannot be used here, and a remedy."""

    reason: str
    remedy: str


def why_not_here(candidate: Candidate) -> Refusal | None:
    """Return why a candidate cannot be made and mounted on this machine; None if it can."""
    if candidate.directory is not None:
        return None
    kind = FILESYSTEMS[candidate.fstype]
    if kind.needs:
        return Refusal(f"it needs {kind.needs}", "use another candidate")
    elsewhere = f"use --vm {candidate.kernels[0]}" if candidate.kernels else "use another candidate"
    if candidate.fstype in NFS and (why := _no_server(elsewhere)):
        return why
    if device_layers(candidate.layers) and (why := _no_layers(candidate.layers, elsewhere)):
        return why
    if kind.release and not LAB.exists():
        # A production host may have pools of its own, and a killed command would leave another.
        return Refusal(f"{candidate.fstype} is set up in a lab VM only", elsewhere)
    if kind.modules:
        _load(candidate.fstype)
    if not can_mount(candidate.fstype):
        return Refusal(f"this kernel has no {candidate.fstype}", elsewhere)
    if candidate.below is not None:
        return why_not_here(candidate.below)
    return why_no_program(candidate)


def why_not_there(candidate: Candidate, series: str) -> Refusal | None:
    """Return why a candidate cannot be made in a machine with a Debian kernel of a series.

    Such a machine has the programs of this one. Only reasons known before it boots are found.
    """
    if candidate.directory is not None:
        return None
    kind = FILESYSTEMS[candidate.fstype]
    if kind.needs:
        return Refusal(f"it needs {kind.needs}", "use another candidate")
    known = {kernel for kind in FILESYSTEMS.values() for kernel in kind.kernels}
    if candidate.kernels and series in known and series not in candidate.kernels:
        return Refusal(
            f"Debian's kernel {series} has no {candidate.fstype}",
            f"use --vm {candidate.kernels[-1]}",
        )
    if device_layers(candidate.layers) and (why := _no_layer_program(candidate.layers)):
        return why
    return None if kind.modules else why_no_program(candidate)  # the machine brings its own


def why_no_program(candidate: Candidate) -> Refusal | None:
    """Return the refusal if the program that makes a candidate is missing, else None."""
    while candidate.below is not None:
        candidate = candidate.below
    if candidate.mkfs and not shutil.which(candidate.mkfs[0], path=images.program_path()):
        return Refusal(
            f"program {candidate.mkfs[0]} is missing", f"apt-get install {candidate.package}"
        )
    return None


def _load(module: str) -> None:
    """Load a module that a mount does not, as it has no alias for its filesystem."""
    env = os.environ | {"PATH": images.program_path()}
    subprocess.run(["modprobe", "--quiet", module], env=env, check=False, capture_output=True)


def _no_server(elsewhere: str) -> Refusal | None:
    if not LAB.exists():
        # A production host may have a server of its own, and a machine can have only one.
        return Refusal("an NFS server is set up in a lab VM only", elsewhere)
    if program := missing_program():
        return Refusal(f"program {program} is missing", f"apt-get install {PACKAGES}")
    return None


def _no_layers(layers: tuple[str, ...], elsewhere: str) -> Refusal | None:
    if not LAB.exists():
        # A killed command would leave device-mapper tables and arrays on a production host.
        return Refusal(f"{layers[0]} is set up in a lab VM only", elsewhere)
    return _no_layer_program(layers)


def _no_layer_program(layers: tuple[str, ...]) -> Refusal | None:
    for name in layers:
        layer = LAYERS[name]
        program = layer.make[0][0]
        if not shutil.which(program, path=images.program_path()):
            return Refusal(f"program {program} is missing", f"apt-get install {layer.package}")
    return None
