"""The verb export, as tests run it."""

from pathlib import Path

from click.testing import CliRunner, Result

from spoolscope.cli.main import group


def export(trace: Path, name: str, out: Path, *words: str) -> Result:
    made = ["export", str(trace), "--to", name, "-o", str(out), *words]
    result = CliRunner().invoke(group, made, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    assert str(out) in result.stderr.splitlines()[-1]
    return result
