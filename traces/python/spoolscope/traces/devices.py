"""Device models by name: ``devices.toml``."""

import json
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from spoolscope.traces.errors import USAGE, SpoolscopeError

_WORDS = ("title", "reason", "source")


@dataclass(frozen=True)
class DeviceModel:
    """A kind of disk whose times can be simulated.

    Attributes:
        name: Name on the command line.
        title: One line for readers.
        reason: Why it is included, and which figures are estimates.
        source: Source of its figures.
        json: Its members, for ``spoolscope-slowdisk --model``.
    """

    name: str
    title: str
    reason: str
    source: str
    json: str


@cache
def device_models() -> dict[str, DeviceModel]:
    """Return all device models by name, in the order of the file."""
    blocks = tomllib.loads(Path(__file__).with_name("devices.toml").read_text())
    return {name: _model(name, dict(block)) for name, block in blocks.items()}


def device_model(name: str) -> DeviceModel:
    """Return one device model.

    Raises:
        SpoolscopeError: no model has the name.
    """
    if model := device_models().get(name):
        return model
    raise SpoolscopeError(
        f"unknown device model {name!r}",
        remedy=f"use --device-model {', '.join(device_models())}",
        exit_code=USAGE,
    )


def _model(name: str, block: dict[str, Any]) -> DeviceModel:
    title, reason, source = (block.pop(word) for word in _WORDS)
    return DeviceModel(name, title, reason, source, json.dumps(block))
