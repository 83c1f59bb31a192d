"""The command that continues a replay."""

from pathlib import Path

import pytest

from spoolscope.cli.clean import resuming


@pytest.mark.parametrize(
    "given",
    [
        "sudo spoolscope replay t --device /dev/x --overwrite-signature ext4 --force",
        "sudo spoolscope replay t --device /dev/x --overwrite-signature=ext4 -f --resume",
        "sudo spoolscope replay t --overwrite-signature gpt --device /dev/x",
    ],
)
def test_it_overwrites_no_signature(given):
    """Check the command: after a reboot the disk's name may be that of another disk."""
    command = resuming(f"cd {Path.cwd()} && {given}")
    assert command == "sudo spoolscope replay t --device /dev/x --resume"


def test_it_begins_where_the_other_began():
    assert (
        resuming("cd '/a b' && spoolscope replay t") == "cd '/a b' && spoolscope replay t --resume"
    )
