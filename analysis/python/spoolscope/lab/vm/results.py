"""Transfer of a command into a machine, and of results out, by a disk with tar archives."""

import io
import os
import shlex
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from spoolscope.traces.errors import SpoolscopeError

JOB_BYTES = 1 << 20
"""Size of the job at the beginning of the disk; results follow it."""
INTERRUPTED = 130
"""Exit status of a shell after Ctrl-C."""


@dataclass(frozen=True)
class Ended:
    """A machine whose command has ended.

    Attributes:
        status: Exit status of the command, as a shell has it.
        interrupted: True if it was asked to end.
        disk: Disk with the results.
    """

    status: int
    interrupted: bool
    disk: IO[bytes]

    def bring(self, path: Path, to: Path) -> bool:
        """Unpack a file or directory that the machine was asked to return.

        Args:
            path: Absolute path in the machine.
            to: Destination. The content of a directory is added to an existing one; a file replaces
                an existing one.

        Returns:
            True if the machine had it.

        Raises:
            SpoolscopeError: it cannot be unpacked there.
        """
        to.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{to.name}.", dir=to.parent) as work:
            self.disk.seek(JOB_BYTES)
            words = ["tar", "-x", "-C", work, f"--strip-components={len(path.parts) - 2}"]
            words.append(str(path.relative_to("/")))
            done = subprocess.run(words, stdin=self.disk, capture_output=True, check=False)
            made = Path(work) / path.name
            if not os.path.lexists(made):
                return False
            if done.returncode:
                raise SpoolscopeError(
                    f"{to} did not get out of the machine: {done.stderr.decode().strip()[-200:]}",
                    remedy="see that there is room for it",
                )
            try:
                if made.is_dir() and to.is_dir():
                    shutil.copytree(made, to, symlinks=True, dirs_exist_ok=True)
                else:
                    made.rename(to)
            except OSError as error:
                raise SpoolscopeError(
                    f"{to} cannot be replaced: {error.strerror or error}",
                    remedy="bring it under another name",
                ) from error
        return True


def job(
    command: Sequence[str | Path],
    back: Sequence[Path],
    directory: Path,
    environment: Mapping[str, str],
    facts: str,
) -> bytes:
    """Return the archive that the machine's init reads at the beginning of the disk.

    Raises:
        SpoolscopeError: it is too large.
    """
    exports = [
        f"export {name}={shlex.quote(value)}\n"
        for name, value in environment.items()
        if name.isidentifier()
    ]
    run = ["echo $$ >pid\n", "ulimit -l unlimited\n", *exports]
    run += ["export DM_DISABLE_UDEV=1\n"]  # without udev, libdevmapper must make the nodes itself
    run += [f"cd {shlex.quote(str(directory))} || exit 1\n", f"exec {_words(command)}\n"]
    paths = _words([path.relative_to("/") for path in back])
    pack = [
        "cd /\n",
        f'for path in {paths}; do [ -e "$path" ] && set -- "$@" "$path"; done\n',
        '[ $# = 0 ] || exec tar -c --sparse -- "$@"\n',
    ]
    packed = io.BytesIO()
    files = {"job": "".join(run), "back": "".join(pack), "machine.json": facts}
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data := text.encode())
            tar.addfile(member, io.BytesIO(data))
    if len(made := packed.getvalue()) > JOB_BYTES:
        raise SpoolscopeError(
            "the command and its environment are too long for a machine",
            remedy="put the command into a script",
        )
    return made


def _words(words: Sequence[str | Path]) -> str:
    return shlex.join(map(str, words))
