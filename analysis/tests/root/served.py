"""Runs in a machine: a server of NFS that is killed, one of somebody else, and one in order.

It prints what is there at each moment, as JSON: threads of the server, its programs, loop devices,
mounts and notes.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from spoolscope.replay.candidates import parse
from spoolscope.replay.places import scratch
from spoolscope.replay.targets import SMALLEST_BYTES, prepared
from spoolscope.traces.errors import SpoolscopeError

PROGRAMS = ("rpcbind", "rpc.statd", "rpc.mountd", "lockd", "nfsd")
PLACE = Path("/run/spoolscope-vm/scratch")


def seen() -> dict[str, Any]:
    names = [file.read_text().strip() for file in Path("/proc").glob("[0-9]*/comm")]
    mounted = Path("/proc/mounts").read_text().splitlines()
    return {
        "running": sorted({name for name in names if name in PROGRAMS}),
        "loops": subprocess.run(["losetup", "-a"], capture_output=True, text=True).stdout,
        "mounts": [line for line in mounted if " nfs" in line and "nfsd" not in line],
        "places": sorted(path.name for path in Path("/run/spoolscope").glob("*")),
    }


def made(name: str, *, killed: bool = False) -> dict[str, Any]:
    """Make a candidate, write to it, and perhaps be killed."""
    with scratch(PLACE, PLACE) as place, prepared(parse(name), place, SMALLEST_BYTES) as target:
        (target.mount / "mail").write_text("x")
        (below,) = {path.name for path in target.filled_at.glob("mail")}
        found = seen() | {"below": below}
        if killed:
            print(json.dumps(found), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
    return found


def refused() -> str:
    subprocess.run(["rpc.nfsd", "--no-nfs-version", "3", "1"], check=True)
    try:
        made("nfs3")
    except SpoolscopeError as error:
        return error.message
    finally:
        subprocess.run(["rpc.nfsd", "0"], check=True)
    return ""


if __name__ == "__main__":
    if sys.argv[1:]:
        made(sys.argv[1], killed=True)
    words = [sys.executable, __file__, "nfs3"]
    said = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False).stdout
    told: dict[str, Any] = {"killed": json.loads(said), "left": seen()}
    clean = Path(sys.executable).with_name("spoolscope")
    told["cleaned"] = subprocess.run([clean, "clean"], capture_output=True, text=True).stdout
    told["after"] = seen()
    told["refused"] = refused()
    told["made"] = made("nfs4")
    told["at last"] = seen()
    print(json.dumps(told))
