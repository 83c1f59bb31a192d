"""Put the native programs into a wheel.

`.ci/wheel` builds twice: without SPOOLSCOPE_NATIVE_DIR for any platform (explain, report, compare),
and with it for this machine's architecture, or that of SPOOLSCOPE_MACHINE (record and replay, too).
SPOOLSCOPE_SHARE_DIR has the man pages and completion that both bring along, below share/.
"""

import os
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class NativePrograms(BuildHookInterface):
    """Adds each program of SPOOLSCOPE_NATIVE_DIR as spoolscope/bin/PROGRAM."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the programs, and set the platform tag of the wheel."""
        directory = os.environ.get("SPOOLSCOPE_NATIVE_DIR")
        if version == "editable":
            return
        if share := os.environ.get("SPOOLSCOPE_SHARE_DIR"):
            build_data["shared_data"][share] = "share"
        if not directory:
            return
        for program in sorted(Path(directory).iterdir()):
            build_data["force_include"][str(program)] = f"spoolscope/bin/{program.name}"
        build_data["pure_python"] = False
        # Any Python will do: nothing is linked against it.
        machine = os.environ.get("SPOOLSCOPE_MACHINE")
        platform = f"linux_{machine}" if machine else sysconfig.get_platform().replace("-", "_")
        build_data["tag"] = f"py3-none-{platform}"
