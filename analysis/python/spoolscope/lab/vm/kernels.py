"""Distribution kernels to boot: found in apt, unpacked once below the user's cache."""

import lzma
import os
import re
import shutil
import struct
import subprocess
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from spoolscope.replay.images import program_path
from spoolscope.traces import unfinished
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.output import discard
from spoolscope.traces.phases import Progress, unseen

# Debian's names: linux-image-6.1.0-56-amd64, linux-image-6.12.117+deb12-amd64.
PACKAGE = r"linux-image-({}\.\d+(?:-\d+|\+deb\d+)-amd64)"
SERIES = re.compile(r"\d+\.\d+")
# Parts of the 400 MB package that a machine needs: all filesystems, device-mapper, md and virtual
# disks.
UNPACKED = (
    "*/boot/vmlinuz-*",
    "*/lib/modules/*/modules.*",
    *(
        f"*/kernel/{part}/*"
        for part in (
            *("fs", "lib", "crypto", "arch/x86/crypto", "net/9p", "net/core"),
            *("net/sunrpc", "net/dns_resolver"),  # of NFS
        )
    ),
    *(
        f"*/kernel/drivers/{part}/*"
        for part in ("virtio", "block", "md", "scsi", "char", "dax", "nvdimm", "crypto")
    ),
)
PROGRAMS = {"apt-get": "apt", "dpkg-deb": "dpkg", "depmod": "kmod", "modprobe": "kmod"}


@dataclass(frozen=True)
class Kernel:
    """An unpacked kernel package.

    Attributes:
        series: Requested series: "6.1".
        release: Release as in ``uname -r``.
        root: Directory with boot/ and lib/modules/ of the package.
    """

    series: str
    release: str
    root: Path

    @property
    def modules_directory(self) -> Path:
        """Directory that becomes /lib/modules/RELEASE."""
        return self.root / "lib" / "modules" / self.release

    @property
    def image(self) -> Path:
        """The kernel image, uncompressed, as an emulator would take seconds to unpack it.

        See Documentation/arch/x86/boot.rst for the fields of the header.
        """
        plain = self.root / "vmlinux"
        if not plain.exists():
            image = (self.root / "boot" / f"vmlinuz-{self.release}").read_bytes()
            offset, length = struct.unpack_from("<II", image, 0x248)
            payload = image[(image[0x1F1] + 1) * 512 + offset :][: length - 4]  # less its size
            with tempfile.NamedTemporaryFile(dir=self.root, delete=False) as file:
                file.write(_unpacked(payload))
            Path(file.name).rename(plain)
        return plain

    def modules(self, name: str) -> list[Path]:
        """Return a module after the modules that it depends on, in the order of insertion."""
        of_kernel = ["-d", str(self.root), "-S", self.release]
        command = ["modprobe", *of_kernel, "--show-depends", name]
        listed = subprocess.run(command, capture_output=True, text=True, check=True, env=_env())
        words = [line.split() for line in listed.stdout.splitlines()]
        return [Path(w[1]) for w in words if w[0] == "insmod"]


def _unpacked(payload: bytes) -> bytes:
    if payload.startswith(b"\xfd7zXZ"):
        return lzma.decompress(payload)
    stream = pa.CompressedInputStream(pa.BufferReader(payload), "zstd")
    return bytes(stream.read())


def module_bytes(file: Path) -> bytes:
    """Return the content of a module, uncompressed, for insmod."""
    return lzma.decompress(file.read_bytes()) if file.suffix == ".xz" else file.read_bytes()


def cache() -> Path:
    """Return the directory in which kernels are kept."""
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "spoolscope"
    if os.geteuid() == 0:
        return Path("/var/cache/spoolscope")
    return Path.home() / ".cache" / "spoolscope"


def fetch(series: str, progress: Progress = unseen) -> Kernel:
    """Return the newest kernel of a series, "6.12", that this release's apt offers.

    A kernel fetched before needs neither a network nor apt's lists.

    Raises:
        SpoolscopeError: there is none, or it cannot be fetched.
    """
    if not SERIES.fullmatch(series):
        raise SpoolscopeError(
            f"{series!r} is no kernel series", remedy="use one such as 6.1 or 6.12", exit_code=2
        )
    for program, package in PROGRAMS.items():
        if not shutil.which(program, path=program_path()):
            raise SpoolscopeError(
                f"a kernel for the machine needs the program {program}",
                remedy=f"apt-get install {package}",
            )
    place, kind = cache() / "kernels", f"{zlib.crc32(' '.join(UNPACKED).encode()):08x}"
    offered = _releases(series, _names_in_apt(series))
    kept = _releases(series, [f"linux-image-{p.stem}" for p in place.glob(f"*.{kind}")])
    if not (found := offered or kept):
        raise SpoolscopeError(
            f"this release's apt has no Debian kernel {series}",
            remedy="run 'apt-get update', or use --vm with 6.1 or 6.12",
        )
    release = found[-1]
    root = place / f"{release}.{kind}"
    if not root.exists():
        progress(f"fetching kernel {release}", None)
        _unpack(release, root)
    return Kernel(series, release, root)


def _names_in_apt(series: str) -> list[str]:
    command = ["apt-cache", "pkgnames", f"linux-image-{series}."]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()


def _releases(series: str, packages: list[str]) -> list[str]:
    """Return the releases of the packages that are kernels of a series, oldest first."""
    pattern = re.compile(PACKAGE.format(re.escape(series)))
    found = [match[1] for name in packages if (match := pattern.fullmatch(name))]
    return sorted(found, key=lambda release: [int(n) for n in re.findall(r"\d+", release)])


def _unpack(release: str, root: Path) -> None:
    root.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{release}.", dir=root.parent))
    unfinished.begin(work, "output", root)
    try:
        package = f"linux-image-{release}"
        command = ["apt-get", "-q", "download", package]
        got = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
        if got.returncode:
            raise SpoolscopeError(
                f"apt-get download {package}: {got.stderr.strip()[-200:]}",
                remedy="run 'apt-get update' and see that this machine reaches its mirror",
            )
        [deb] = work.glob("*.deb")
        tree = work / "tree"
        tree.mkdir()
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as tar:
            words = ["tar", "-x", "-C", str(tree), "--no-same-owner", "--wildcards", *UNPACKED]
            env = os.environ | {"LC_ALL": "C"}
            done = subprocess.run(
                words, stdin=tar.stdout, capture_output=True, text=True, env=env, check=False
            )
        # A built-in part of the kernel has no directory: tar reports it and fails.
        usual = ("Not found in archive", "Exiting with failure status")
        said = done.stderr.splitlines()
        wrong = [line for line in said if not any(part in line for part in usual)]
        if tar.returncode or wrong:
            raise SpoolscopeError(
                f"{deb.name} cannot be unpacked: {(wrong or ['it is damaged'])[0]}",
                remedy="see that the disk has room, and try again",
            )
        if (tree / "usr/lib/modules").exists():  # where Debian 13's kernels have them
            (tree / "usr/lib").rename(tree / "lib")
        subprocess.run(["depmod", "-b", tree, release], check=True, env=_env())
        if not root.exists():  # another command may have been faster
            tree.rename(root)
    finally:
        discard(work)


def _env() -> dict[str, str]:
    return os.environ | {"PATH": program_path()}
