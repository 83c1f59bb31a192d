"""Options that give a replay real disks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from spoolscope.cli.clean import OVERWRITE
from spoolscope.replay.disks import Asked

DEVICE = click.Path(path_type=Path)

_OPTIONS = (
    click.option(
        "--device",
        type=DEVICE,
        help="Make the filesystems on this block device, not on images. ALL THAT IT HOLDS IS LOST; "
        "in the end it is empty, without any filesystem.",
    ),
    click.option(
        "--journal-device",
        type=DEVICE,
        help="Likewise, for the journals and logs of candidates that have them apart.",
    ),
    click.option(
        "--format-device",
        type=DEVICE,
        multiple=True,
        help="The same device once more: it may be formatted. Needed for each.",
    ),
    click.option(
        OVERWRITE,
        "overwritten",
        multiple=True,
        metavar="TYPE",
        help="Format a device although it holds this, e.g. ext4 or gpt (see lsblk -f).",
    ),
)


def device_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def asked_devices(options: dict[str, Any]) -> Asked:
    """Return the devices that the options ask for."""
    return Asked(
        options["device"],
        options["journal_device"],
        options["format_device"],
        options["overwritten"],
    )
