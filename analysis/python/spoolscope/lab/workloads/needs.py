"""The space that a workload needs."""

import json
from dataclasses import dataclass

from spoolscope.lab.workloads.native import call, command


@dataclass(frozen=True)
class Needs:
    """The most that a workload holds at any time.

    Attributes:
        bytes: Bytes of file content.
        names: Number of files and directories.
        source_bytes: Size of its source data, in the directory for images.
    """

    bytes: int
    names: int
    source_bytes: int = 0


def native_needs(name: str, scale: float) -> Needs:
    """Return the needs of a workload as the native program reports them.

    Raises:
        SpoolscopeError: the program is missing, or failed.
    """
    return Needs(**json.loads(call(command("needs", name, "--scale", f"{scale:.9f}"))))
