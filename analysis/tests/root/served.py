"""Make NFS candidates in a machine: one by a process that is killed, one beside another server.

The program prints as JSON what is there at each moment: threads and programs of the server, loop
devices, mounts and notes.
"""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from spoolscope.replay.candidates import parse
from spoolscope.replay.places import scratch
from spoolscope.replay.targets import SMALLEST_BYTES, prepared
from spoolscope.traces.errors import SpoolscopeError

PROGRAMS = {"rpcbind", "rpc.statd", "rpc.mountd"}
THREADS = {"lockd", "nfsd"}
ENDS_WITHIN_S = 60
PLACE = Path("/run/spoolscope-vm/scratch")


def seen() -> dict[str, Any]:
    names = []
    for file in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):  # the process has ended
            names.append(file.read_text(errors="replace").strip())
    mounted = Path("/proc/mounts").read_text().splitlines()
    return {
        "running": sorted({*names} & (PROGRAMS | THREADS)),
        "loops": subprocess.run(["losetup", "-a"], capture_output=True, text=True).stdout,
        "mounts": [line for line in mounted if " nfs" in line and "nfsd" not in line],
        "places": sorted(path.name for path in Path("/run/spoolscope").glob("*")),
    }


def made(name: str) -> dict[str, Any]:
    """Make a candidate and write to it."""
    with scratch(PLACE, PLACE) as place, prepared(parse(name), place, SMALLEST_BYTES) as target:
        (target.mount / "mail").write_text("x")
        (below,) = {path.name for path in target.filled_at.glob("mail")}
        found = seen() | {"below": below}
        if os.getpid() != MAIN:
            print(json.dumps(found), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
    return found


def killed() -> None:
    """Let a process of its own make a candidate and be killed; its programs end soon after."""
    child = os.fork()
    if not child:
        made("nfs3")
    os.waitpid(child, 0)
    until = time.monotonic() + ENDS_WITHIN_S
    while PROGRAMS & set(seen()["running"]) and time.monotonic() < until:
        time.sleep(0.1)


def refused() -> str:
    subprocess.run(["rpc.nfsd", "--no-nfs-version", "3", "1"], check=True)
    try:
        made("nfs3")
    except SpoolscopeError as error:
        return error.message
    finally:
        subprocess.run(["rpc.nfsd", "0"], check=True)
    return ""


MAIN = os.getpid()

if __name__ == "__main__":
    killed()
    told: dict[str, Any] = {"left": seen()}
    clean = Path(sys.executable).with_name("spoolscope")
    told["cleaned"] = subprocess.run([clean, "clean"], capture_output=True, text=True).stdout
    told["after"] = seen()
    told["refused"] = refused()
    told["made"] = made("nfs4")
    told["at last"] = seen()
    print(json.dumps(told), flush=True)
