"""A trace directory on its way: private while it is filled, named when it is whole."""

import tempfile
from pathlib import Path

from spoolscope.traces.errors import USAGE, SpoolscopeError


def check_output(output: Path) -> None:
    """Make sure that a directory can appear under this name.

    Raises:
        SpoolscopeError: something is there, or its parent is not.
    """
    if output.exists() or output.is_symlink():
        raise SpoolscopeError(
            f"output {output} exists", remedy="give another -o, or --force", exit_code=USAGE
        )
    if not output.resolve().parent.is_dir():
        raise SpoolscopeError(
            f"no such directory: {output.parent}",
            remedy=f"mkdir -p {output.parent}",
            exit_code=USAGE,
        )


def work_directory(output: Path) -> Path:
    """Make ``.NAME.xxxx`` of mode 0700 beside the output."""
    return Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.resolve().parent))


def publish(work: Path, output: Path) -> None:
    """Give a filled work directory its name; its files are for the owner only."""
    for file in work.iterdir():
        file.chmod(0o600)
    work.rename(output)
