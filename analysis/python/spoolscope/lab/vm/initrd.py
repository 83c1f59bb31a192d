"""The initial RAM disk, which a kernel needs until it has mounted this machine's files."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from spoolscope.lab.vm.kernels import Kernel, module_bytes
from spoolscope.replay.images import program_path
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.scratch import scratch

INIT = Path(__file__).with_name("init")
MODULES = {
    "boot": (
        *("virtio_pci", "virtio_blk", "virtio_console", "virtio_rng"),
        *("9p", "9pnet_virtio", "overlay", "loop", "fuse"),
    ),
    "scratch": ("ext4",),
}
DIRECTORIES = ("bin", "dev", "proc", "sys", "modules", "scratch", "host", "new")


def initrd(kernel: Kernel) -> Path:
    """Return the RAM disk of a kernel; it is made once and kept beside the kernel.

    Raises:
        SpoolscopeError: there is no busybox, or it needs libraries.
    """
    busybox = Path(shutil.which("busybox", path=program_path()) or "")
    if not busybox.is_file():
        raise SpoolscopeError(
            "the machine needs the program busybox", remedy="apt-get install busybox-static"
        )
    digest = hashlib.sha256(INIT.read_bytes() + busybox.read_bytes() + repr(MODULES).encode())
    kept = kernel.root / f"initrd-{digest.hexdigest()[:16]}"
    if not kept.exists():
        with tempfile.TemporaryDirectory(dir=scratch()) as work:
            _fill(Path(work), kernel, busybox)
            made = kernel.root / f".{kept.name}.{os.getpid()}"
            _pack(Path(work), made)
            made.rename(kept)
    return kept


def _fill(root: Path, kernel: Kernel, busybox: Path) -> None:
    for directory in DIRECTORIES:
        (root / directory).mkdir()
    shutil.copy(busybox, root / "bin/busybox")
    shutil.copy(INIT, root / "init")
    (root / "init").chmod(0o755)
    for group, names in MODULES.items():
        listed = []
        for file in dict.fromkeys(file for name in names for file in kernel.modules(name)):
            module = file.name.removesuffix(".xz")
            (root / "modules" / module).write_bytes(module_bytes(file))
            listed.append(f"{module}\n")
        (root / "modules" / group).write_text("".join(listed))


def _pack(root: Path, archive: Path) -> None:
    names = sorted(str(p.relative_to(root)) for p in root.rglob("*"))
    with archive.open("wb") as file:
        subprocess.run(
            ["cpio", "--create", "--format=newc", "--quiet", "--directory", root],
            input="\n".join(names).encode(),
            stdout=file,
            check=True,
        )
