"""The room that a workload takes."""

import json
from dataclasses import dataclass

from spoolscope.lab.workloads.native import call, command


@dataclass(frozen=True)
class Needs:
    """What a workload comes to hold at the most.

    Attributes:
        bytes: Contents of files.
        names: Files and directories.
        source_bytes: What it reads from elsewhere, in the directory for images.
    """

    bytes: int
    names: int
    source_bytes: int = 0


def native_needs(name: str, scale: float) -> Needs:
    """Return what a workload of the native program needs, by its own word.

    Raises:
        SpoolscopeError: the program is missing, or failed.
    """
    return Needs(**json.loads(call(command("needs", name, "--scale", f"{scale:.9f}"))))
