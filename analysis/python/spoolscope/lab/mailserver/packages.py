"""Debian packages unpacked into a directory of their own: nothing is installed."""

import os
import re
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from spoolscope.lab.vm.kernels import cache
from spoolscope.replay.images import program_path
from spoolscope.traces import unfinished
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.output import discard
from spoolscope.traces.phases import Progress, unseen

PROGRAMS = {"apt-get": "apt", "dpkg-deb": "dpkg", "tar": "tar"}
TOP = ("usr", "etc", "var")
MERGED = ("bin", "sbin", "lib", "lib64")
"""Directories that are links into usr."""

_INST = re.compile(r"^Inst (?P<name>\S+) (?:\[[^]]*\] )?\((?P<version>\S+)", re.M)
_NO_PACKAGE = re.compile(r"^E: (?:Unable to locate package|Package '?)\s*([^\s']+)", re.M)


def unpacked(packages: Sequence[str], progress: Progress = unseen) -> Path:
    """Return a directory with packages and their dependencies that this system lacks.

    Installed packages are left out. Packages unpacked once need no network again.

    Args:
        packages: Names as apt has them.
        progress: Called when something is fetched.

    Raises:
        SpoolscopeError: no apt, a package is missing, or it cannot be fetched.
    """
    for program, package in PROGRAMS.items():
        if not shutil.which(program, path=program_path()):
            raise SpoolscopeError(
                f"mail servers are unpacked by the program {program}, which is missing",
                remedy=f"apt-get install {package}; it takes Debian or Ubuntu",
            )
    wanted = _missing(packages)
    name = "-".join(sorted(packages))
    place = cache() / "packages" / f"{name}.{zlib.crc32(' '.join(wanted).encode()):08x}"
    if not place.exists():
        progress(f"fetching {len(wanted)} packages for {', '.join(packages)}", None)
        _unpack(wanted, place)
    return place


def _missing(packages: Sequence[str]) -> list[str]:
    """Return the packages that apt would install, as name=version."""
    said = _apt("-s", "-o", "Debug::NoLocking=1", "install", "--no-install-recommends", *packages)
    return sorted(f"{one['name']}={one['version']}" for one in _INST.finditer(said))


def _apt(*words: str, cwd: Path | None = None) -> str:
    env = os.environ | {"PATH": program_path(), "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        ["apt-get", "-q", *words], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        if missing := _NO_PACKAGE.search(done.stderr):
            raise SpoolscopeError(
                f"this release has no package {missing[1]}",
                remedy="run 'apt-get update'; if it has it then, run the command again",
            )
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise SpoolscopeError(
            f"apt-get {words[0]} failed: {last}",
            remedy="run 'apt-get update' and see that this machine reaches its mirror",
        )
    return done.stdout


def _unpack(wanted: Sequence[str], place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Programs that run as root lie below: no other user can reach them, and none is set-user-id.
    place.parent.chmod(0o700)
    work = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    unfinished.begin(work, "output", place)
    try:
        tree = work / "tree"
        for name in TOP:
            (tree / name).mkdir(parents=True)
        for name in MERGED:
            (tree / "usr" / name).mkdir()
            (tree / name).symlink_to(f"usr/{name}")
        tree.chmod(0o755)
        if wanted:
            # apt's sandbox user cannot write into root's directory.
            _apt("-o", "APT::Sandbox::User=root", "download", *wanted, cwd=work)
        for deb in sorted(work.glob("*.deb")):
            _extract(deb, tree)
        if not place.exists():  # another command may have made it
            tree.rename(place)
    finally:
        discard(work)


def _extract(deb: Path, tree: Path) -> None:
    env = os.environ | {"PATH": program_path()}
    words = ["tar", "-x", "-C", str(tree), "--keep-directory-symlink"]
    words += ["--no-same-owner", "--no-same-permissions"]
    with subprocess.Popen(
        ["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE, env=env
    ) as packed:
        done = subprocess.run(
            words, stdin=packed.stdout, capture_output=True, check=False, env=env, umask=0o022
        )
    if packed.returncode or done.returncode:
        raise SpoolscopeError(
            f"cannot unpack {deb.name}: {done.stderr.decode(errors='replace').strip()[-200:]}",
            remedy="make room in the cache directory, and run the command again",
        )
