"""Candidates on a device model: the caller supplies a disk that has the model's times."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from spoolscope.replay.candidates import Candidate
from spoolscope.replay.layers import device_layers
from spoolscope.traces.devices import device_model
from spoolscope.traces.errors import usage_error


class ModelledDisk(Protocol):
    """A file over an image whose requests take the time of a model."""

    path: Path

    def play(self, device: Path) -> None:
        """Begin to play, on the loop device over the file."""


Player = Callable[[Path, Path, str], AbstractContextManager[ModelledDisk]]
"""Makes a disk of an image, a directory for its files, and the name of a model."""


def on_model(candidate: Candidate, model: str) -> Candidate:
    """Return a candidate on a device model, its own if it names one; the model joins its name.

    Raises:
        SpoolscopeError: there is no such model, or the candidate is a directory.
    """
    name = candidate.model or model
    if not name:
        return candidate
    device_model(name)
    if candidate.directory is not None:
        raise usage_error(
            f"{candidate.name} lies on a disk of its own, which cannot play {name}",
            remedy="use --device-model with images, such as --on ext4",
        )
    if device_layers(candidate.layers):
        raise usage_error(
            f"{candidate.name} lies on {candidate.layers[0]}, below which {name} cannot be played",
            remedy="use --device-model with candidates that lie on one image",
        )
    return replace(candidate, model=name, name=f"{candidate.name}@{name}")
