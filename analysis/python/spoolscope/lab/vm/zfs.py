"""The zfs module of a kernel for machines: built here from Debian's sources, never shipped.

Modules and programs are kept with the unpacked kernel, below the user's cache.
"""

import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from spoolscope.lab.vm.kernels import PROGRAMS, Kernel
from spoolscope.replay.images import program_path
from spoolscope.traces import unfinished
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.files import write_file
from spoolscope.traces.output import discard
from spoolscope.traces.phases import Progress, unseen

SOURCES = "zfs-dkms"
LIBRARIES = ("libzfs4linux", "libzpool5linux", "libnvpair3linux", "libuutil3linux")
TOOLS = ("zfsutils-linux", *LIBRARIES)
"""Packages of section contrib; they depend on nothing else that a Debian machine lacks."""
COMMANDS = ("zpool", "zfs", "zdb")
BUILDERS = {**PROGRAMS, "make": "make", "gcc": "gcc", "strip": "binutils"}
SAID_CHARACTERS = 300
# Debian's repositories as apt knows them here; the origin keeps all others out.
TARGETS = ("apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME)")
ONLY = ("Created-By: Packages", "Component: main", "Origin: Debian")
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


def programs(kernel: Kernel) -> Path:
    """Return the directory of the programs of zfs for a kernel, whether or not it exists."""
    return kernel.root / "zfs" / "bin"


def is_built(kernel: Kernel) -> bool:
    """Return whether machines with this kernel have zfs."""
    return programs(kernel).is_dir()


def check_built(kernel: Kernel, what: str) -> None:
    """Refuse to use a machine without zfs.

    Args:
        kernel: Its kernel.
        what: What needs zfs.

    Raises:
        SpoolscopeError: no module was built for the kernel.
    """
    if not is_built(kernel):
        raise SpoolscopeError(
            f"{what} needs the zfs module, which is not built for kernel {kernel.release}",
            remedy=f"spoolscope lab zfs --kernel {kernel.series} (minutes, once for each kernel)",
        )


def build(kernel: Kernel, progress: Progress = unseen) -> None:
    """Build the module for a kernel and keep it, with its programs, beside the kernel.

    Packages are downloaded and unpacked, not installed; apt's lists of this machine stay as they
    are. It takes minutes of two processors.

    Raises:
        SpoolscopeError: a program is missing, a package cannot be fetched, or it does not compile.
    """
    for program, package in BUILDERS.items():
        if not shutil.which(program, path=program_path()):
            raise SpoolscopeError(
                f"building zfs needs the program {program}", remedy=f"apt-get install {package}"
            )
    work = Path(tempfile.mkdtemp(prefix=".zfs.", dir=kernel.root))
    unfinished.begin(work, "output", kernel.root)
    try:
        progress("fetching zfs", None)
        tree = _fetched(kernel, work)
        [source] = (tree / "usr/src").glob("zfs-*")
        headers = tree / "usr/src" / f"linux-headers-{kernel.release}"
        common = _relocated(headers, tree)
        progress("configuring zfs: this takes minutes", None)
        given = [f"--with-linux={common}", f"--with-linux-obj={headers}"]
        _run("./configure", "--with-config=kernel", *given, cwd=source)
        progress("compiling zfs: this takes minutes", None)
        _run("make", f"-j{os.cpu_count() or 1}", cwd=source)
        _keep(kernel, source, tree, work)
    finally:
        discard(work)


def _fetched(kernel: Kernel, work: Path) -> Path:
    """Return a directory with the sources, the programs and the kernel's headers, unpacked."""
    apt = _apt(work)
    _run(*apt, "update", cwd=work)
    common = f"{kernel.release.rpartition('-')[0]}-common"
    headers = [f"linux-headers-{release}" for release in (kernel.release, common)]
    wanted = [*headers, f"linux-kbuild-{kernel.series}", SOURCES, *TOOLS]
    _run(*apt, "download", *wanted, cwd=work)
    for package in work.glob("*.deb"):
        _run("dpkg-deb", "--extract", str(package), "tree", cwd=work)
    return work / "tree"


def _apt(work: Path) -> list[str]:
    """Return apt-get with lists of its own: Debian as it is known here, with section contrib."""
    listed = subprocess.run([*TARGETS, *ONLY], capture_output=True, text=True, check=False).stdout
    if not (targets := listed.split("\n")[:-1]):
        raise SpoolscopeError(
            "apt of this machine knows no Debian repository",
            remedy="zfs is built where Debian's packages can be fetched",
        )
    lines = [f"deb [signed-by={KEYS}] {target} main contrib\n" for target in targets]
    write_file(work / "sources", "".join(dict.fromkeys(lines)))
    for place in ("lists/partial", "cache/archives/partial"):
        (work / place).mkdir(parents=True)
    given = {
        "Dir::Etc::SourceList": work / "sources",
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": work / "lists",
        "Dir::Cache": work / "cache",
        "APT::Sandbox::User": "root",
    }
    options = (word for name, value in given.items() for word in ("-o", f"{name}={value}"))
    return ["apt-get", "-q", *options]


def _relocated(headers: Path, tree: Path) -> Path:
    """Let a kernel's headers work where they are unpacked; return those of all its flavours."""
    makefile = headers / "Makefile"
    text = makefile.read_text()
    write_file(makefile, text.replace("/usr/src/", f"{tree}/usr/src/"))
    return Path(makefile.read_text().split()[1]).parent


def _keep(kernel: Kernel, source: Path, tree: Path, work: Path) -> None:
    """Put the modules among the kernel's, and the programs, each behind a script, beside it.

    The script of a program lets it find its libraries.
    """
    modules = kernel.modules_directory / "updates"
    modules.mkdir(exist_ok=True)
    for module in source.glob("module/**/*.ko"):
        _run("strip", "--strip-debug", str(module), cwd=work)
        shutil.copy(module, modules)
    _run("depmod", "-b", str(kernel.root), kernel.release, cwd=work)
    kept = work / "zfs"
    (kept / "bin").mkdir(parents=True)
    for place in ("sbin", "usr/sbin"):
        for program in COMMANDS:
            if (found := tree / place / program).is_file():
                shutil.copy(found, kept / program)
    for place in ("lib", "usr/lib"):
        for library in tree.glob(f"{place}/*-linux-gnu/lib*.so.*"):
            shutil.copy(library, kept / library.name, follow_symlinks=False)
    at = shlex.quote(str(kernel.root / "zfs"))
    for program in COMMANDS:
        script = kept / "bin" / program
        write_file(script, f'#!/bin/sh\nLD_LIBRARY_PATH={at} exec {at}/{program} "$@"\n')
        script.chmod(0o755)
    if is_built(kernel):
        shutil.rmtree(kernel.root / "zfs")
    kept.rename(kernel.root / "zfs")


def _run(*words: str, cwd: Path) -> None:
    command = ("nice", "-n", "10", *words)
    env = {**os.environ, "PATH": program_path(), "LC_ALL": "C"}
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-SAID_CHARACTERS:]
        raise SpoolscopeError(
            f"{words[0]} {words[-1]} failed: {' '.join(said.split())}",
            remedy="see that this machine reaches Debian's mirror and has room in its cache",
        )
