"""Distribution kernels to boot: found in apt, unpacked once below build/lab."""

import lzma
import os
import re
import shutil
import subprocess
import zlib
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(__file__).resolve().parents[3] / "build" / "lab"
# Debian's names: linux-image-6.1.0-56-amd64, linux-image-6.12.117+deb12-amd64.
PACKAGE = r"linux-image-{}\.\d+(-\d+|\+deb\d+)-amd64"
# Of the 400 MB of a kernel, what a machine with ext4, xfs and btrfs on virtio disks, and
# device-mapper on these, needs.
UNPACKED = (
    "*/boot/vmlinuz-*",
    "*/lib/modules/*/modules.*",
    "*/kernel/fs/*",
    "*/kernel/lib/*",
    "*/kernel/crypto/*",
    "*/kernel/arch/x86/crypto/*",
    "*/kernel/drivers/virtio/*",
    "*/kernel/drivers/block/*",
    "*/kernel/drivers/md/*",
)


class NoKernelError(Exception):
    """This machine cannot get the kernel; the text says why."""


@dataclass(frozen=True)
class Kernel:
    """An unpacked kernel package.

    Attributes:
        release: As ``uname -r`` gives it.
        root: Directory with boot/ and lib/modules/ of the package.
    """

    release: str
    root: Path

    @property
    def image(self) -> Path:
        """The compressed kernel."""
        return self.root / "boot" / f"vmlinuz-{self.release}"

    def modules(self, name: str) -> list[Path]:
        """Return a module and what must be inserted before it, in that order."""
        command = ["modprobe", "-d", self.root, "-S", self.release, "--show-depends", name]
        listed = subprocess.run(command, capture_output=True, text=True, check=True, env=_env())
        words = [line.split() for line in listed.stdout.splitlines()]
        return [Path(w[1]) for w in words if w[0] == "insmod"]


def module_bytes(file: Path) -> bytes:
    """Return a module as insmod wants it."""
    return lzma.decompress(file.read_bytes()) if file.suffix == ".xz" else file.read_bytes()


def fetch(series: str) -> Kernel:
    """Return the newest kernel of a series, "6.12", that this release's apt offers.

    Raises:
        NoKernelError: there is none, or it cannot be had.
    """
    for program in ("apt-get", "dpkg-deb", "depmod", "modprobe"):
        if not shutil.which(program, path=_env()["PATH"]):
            raise NoKernelError(f"no program {program}")
    package = _newest(series)
    release = package.removeprefix("linux-image-")
    root = CACHE / f"{release}-{zlib.crc32(' '.join(UNPACKED).encode()):08x}"
    if not root.exists():
        _unpack(package, release, root)
    return Kernel(release, root)


def _newest(series: str) -> str:
    prefix = f"linux-image-{series}."
    names = subprocess.run(["apt-cache", "pkgnames", prefix], capture_output=True, text=True)
    pattern = re.compile(PACKAGE.format(re.escape(series)))
    found = [name for name in names.stdout.split() if pattern.fullmatch(name)]
    if not found:
        raise NoKernelError(f"this release's apt has no Debian kernel {series}")
    return max(found, key=lambda name: [int(n) for n in re.findall(r"\d+", name)])


def _unpack(package: str, release: str, root: Path) -> None:
    work = CACHE / f".{release}.{os.getpid()}"
    work.mkdir(parents=True)
    try:
        got = subprocess.run(
            ["apt-get", "-q", "download", package], cwd=work, capture_output=True, text=True
        )
        if got.returncode:
            raise NoKernelError(f"apt-get download {package}: {got.stderr.strip()[-200:]}")
        [deb] = work.glob("*.deb")
        tree = work / "tree"
        tree.mkdir()
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as tar:
            command = ["tar", "-x", "-C", tree, "--no-same-owner", "--wildcards", *UNPACKED]
            subprocess.run(command, stdin=tar.stdout, check=True)
        if (tree / "usr/lib/modules").exists():  # where Debian 13's kernels have them
            (tree / "usr/lib").rename(tree / "lib")
        subprocess.run(["depmod", "-b", tree, release], check=True, env=_env())
        tree.rename(root)
    finally:
        shutil.rmtree(work)


def _env() -> dict[str, str]:
    return os.environ | {"PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
