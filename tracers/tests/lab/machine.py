"""A virtual machine that boots a kernel, runs one job and hands back what it wrote.

It is emulated, not virtualised: the same everywhere, and with nothing asked of the host but
qemu. Everything it needs is in its initial RAM disk: there is no root filesystem and no network.
The first disk carries the results out, as a tar archive.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from kernels import Kernel, module_bytes

INIT = Path(__file__).with_name("init")
BOOT_MODULES = ("virtio_pci", "virtio_blk")
MODULES = ("ext4", "xfs", "btrfs", "dm-delay")
PROGRAMS = ("qemu-system-x86_64", "busybox", "cpio", "modprobe")
RESULT_BYTES = 64 << 20
# A boot takes seconds; what has not ended by then, on however busy a machine, never will.
TIMEOUT_S = 600


class MachineError(Exception):
    """The guest did not do its job; the text is the end of its console."""


def missing_program() -> str:
    """Return the sentence for the first program that is not installed, or ""."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    absent = next((p for p in PROGRAMS if not shutil.which(p, path=path)), None)
    return f"no program {absent}" if absent else ""


def run(kernel: Kernel, job: str, programs: list[Path], disks: list[Path], work: Path) -> Path:
    """Boot, run the shell script ``job`` as root, and return the directory of its results.

    Args:
        kernel: What to boot.
        job: Its working directory is /out, all files of which are results; ``load NAME``
            inserts one of MODULES and what it needs. Its output is in stdout and stderr.
        programs: Copied to /bin with the libraries that they are linked to.
        disks: Images that appear as /dev/vdb, /dev/vdc and so on.
        work: Directory for the machine's files.

    Raises:
        MachineError: the guest crashed, hung, or its job failed.
    """
    initrd, results, console = work / "initrd", work / "results.tar", work / "console"
    _pack(_root(kernel, job, programs, work / "root"), initrd)
    with results.open("wb") as file:
        file.truncate(RESULT_BYTES)
    command = _command(kernel, initrd, [results, *disks], console)
    try:
        subprocess.run(command, stdin=subprocess.DEVNULL, check=True, timeout=TIMEOUT_S)
        return _unpack(results, work / "out")
    except (subprocess.SubprocessError, MachineError) as error:
        raise MachineError(f"{error}\n{_tail(console)}") from error


def _command(kernel: Kernel, initrd: Path, disks: list[Path], console: Path) -> list[str]:
    # One thread for both CPUs: with two, QEMU 7.2 ran a stale breakpoint while the kernel
    # patched a static key (bpf_stats_enabled), and 6.12 panicked.
    words = ["qemu-system-x86_64", "-accel", "tcg,thread=single", "-cpu", "Nehalem", "-smp", "2"]
    words += ["-m", "1536", "-machine", "q35", "-nodefaults", "-nographic", "-no-reboot"]
    words += ["-kernel", str(kernel.image), "-initrd", str(initrd), "-serial", f"file:{console}"]
    # nokaslr and no mitigations: only for speed. panic=-1: a panic ends the machine.
    words += ["-append", "console=ttyS0 quiet panic=-1 nokaslr mitigations=off tsc=reliable"]
    for i, disk in enumerate(disks):
        words += ["-drive", f"file={disk},if=none,id=d{i},format=raw,cache=unsafe"]
        words += ["-device", f"virtio-blk-pci,drive=d{i}"]
    return words


def _root(kernel: Kernel, job: str, programs: list[Path], root: Path) -> Path:
    for directory in ("bin", "dev", "proc", "sys", "tmp", "out", "modules", "root"):
        (root / directory).mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin/busybox")
    shutil.copy(INIT, root / "init")
    (root / "job").write_text(job)
    for program in programs:
        shutil.copy(program, root / "bin" / program.name)
        for library in _libraries(program):
            (root / library.parent.relative_to("/")).mkdir(parents=True, exist_ok=True)
            shutil.copy(library, root / library.relative_to("/"))
    _add_modules(kernel, "boot", BOOT_MODULES, root)
    for name in MODULES:
        _add_modules(kernel, name, (name,), root)
    return root


def _add_modules(kernel: Kernel, group: str, names: tuple[str, ...], root: Path) -> None:
    """Put modules and the list for ``load`` into the RAM disk."""
    listed = []
    for file in (file for name in names for file in kernel.modules(name)):
        module = file.name.removesuffix(".xz")
        (root / "modules" / module).write_bytes(module_bytes(file))
        listed.append(f"{module}\n")
    (root / "modules" / group).write_text("".join(dict.fromkeys(listed)))


def _libraries(program: Path) -> list[Path]:
    """Every library of a dynamic program and its loader; a static one has none."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    return [Path(path) for path in re.findall(r"(/\S+) \(0x", said)]


def _pack(root: Path, initrd: Path) -> None:
    names = sorted(str(p.relative_to(root)) for p in root.rglob("*"))
    with initrd.open("wb") as file:
        subprocess.run(
            ["cpio", "--create", "--format=newc", "--quiet", "--directory", root],
            input="\n".join(names).encode(),
            stdout=file,
            check=True,
        )
    shutil.rmtree(root)


def _unpack(results: Path, out: Path) -> Path:
    out.mkdir()
    subprocess.run(["tar", "-x", "-C", out, "-f", results], check=True)
    results.unlink()
    status = out / "status"
    if not status.exists():
        raise MachineError("the guest wrote no results")
    if status.read_text().strip() != "0":
        raise MachineError("the job failed: " + (out / "stderr").read_text()[-2000:])
    return out


def _tail(console: Path) -> str:
    return console.read_text(errors="replace")[-2000:] if console.exists() else "no console"
