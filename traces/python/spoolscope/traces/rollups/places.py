"""Places of roll-ups: a local directory, or a prefix of a bucket of object storage."""

import math
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from pyarrow import fs

from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.files import replacing

CONNECT_S, REQUEST_S, ATTEMPTS = 5, 20, 3
"""Seconds for which S3 is waited for, and how often it is tried."""

_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGIONS = {"AWS_REGION", "AWS_DEFAULT_REGION"}
_AWS = re.compile(r"AWS Error .*")


@dataclass(frozen=True)
class Place:
    """A directory of roll-ups on a filesystem of pyarrow.

    Attributes:
        files: The filesystem.
        base: Path of the directory on it.
        shown: The place as the user named it.
    """

    files: fs.FileSystem
    base: str
    shown: str

    @property
    def local(self) -> bool:
        """True if it is a directory of this machine."""
        return isinstance(self.files, fs.LocalFileSystem)

    def full(self, path: str) -> str:
        """Return the path on the filesystem of a path from the directory on."""
        return f"{self.base}/{path}" if path else self.base

    def url(self, path: str) -> str:
        """Return the name of a path by which other engines open it."""
        return self.full(path) if self.local else f"{self.files.type_name}://{self.full(path)}"

    def sizes(self, below: str) -> dict[str, int]:
        """Return the bytes of all files below a path, by their path from the directory on."""
        selector = fs.FileSelector(self.full(below), allow_not_found=True, recursive=True)
        found = self.files.get_file_info(selector)
        prefix = len(self.base) + 1
        return {i.path[prefix:]: i.size for i in found if i.type == fs.FileType.File}

    def names(self, below: str = "") -> list[str]:
        """Return the names of files and directories right in a path."""
        selector = fs.FileSelector(self.full(below), allow_not_found=True)
        return sorted(info.base_name for info in self.files.get_file_info(selector))

    def written_s(self, path: str) -> float:
        """Return when a file was written, since the epoch; infinity if it is not there."""
        written = self.files.get_file_info(self.full(path)).mtime
        return math.inf if written is None else float(written.timestamp())

    def get(self, path: str) -> bytes:
        """Return the content of a file.

        Raises:
            FileNotFoundError: it is not there.
        """
        with self.files.open_input_file(self.full(path)) as source:
            content: bytes = source.read()
        return content

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        with suppress(FileNotFoundError):
            self.files.delete_file(self.full(path))

    def put(self, path: str, content: bytes, *, durable: bool = False) -> None:
        """Write a file that appears whole or not at all.

        Args:
            path: Path from the directory on.
            content: The whole file.
            durable: See that it outlives a loss of power; a bucket always does.
        """
        full = self.full(path)
        if self.local:
            target = Path(full)
            target.parent.mkdir(parents=True, exist_ok=True)
            with replacing(target) as file:
                file.write(content)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            if durable:
                _sync_directory(target.parent)
            return
        with self.files.open_output_stream(full) as out:
            out.write(content)


def place(where: str | Path) -> Place:
    """Return the place with a name: a path, or a URL as ``s3://BUCKET/PREFIX``.

    Credentials, region and endpoint of S3 come from the environment and files that all of its
    programs use (AWS_ACCESS_KEY_ID, AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL and others).

    Raises:
        SpoolscopeError: no filesystem has such a name, or it cannot be reached.
    """
    text = os.fspath(where)
    if "://" not in text:
        return Place(fs.LocalFileSystem(), str(Path(text).absolute()), text)
    try:
        files, base = _bucket(text) if text.startswith("s3://") else fs.FileSystem.from_uri(text)
    except (ValueError, NotImplementedError) as error:
        raise SpoolscopeError(
            f"{text} is no place for roll-ups: {error}",
            remedy="give a directory, or s3://BUCKET/PREFIX",
            exit_code=USAGE,
        ) from error
    except OSError as error:
        raise unreachable(text, error) from error
    return Place(files, base.rstrip("/"), text)


def unreachable(shown: str, error: OSError) -> SpoolscopeError:
    """Return the error for users on a place that cannot be listed, read or written."""
    why = " ".join((error.strerror or str(error)).split()).partition("; Details:")[0]
    if match := _AWS.search(why):
        why = match.group()
    if "://" not in shown:
        return SpoolscopeError(f"{shown}: {why}", remedy="see that it exists and may be used")
    remedy = "see that the bucket exists, and what AWS_ENDPOINT_URL and the credentials are"
    return SpoolscopeError(f"{shown} cannot be used: {why}", remedy=remedy)


def _bucket(url: str) -> tuple[fs.FileSystem, str]:
    """Return S3 with limits to its patience: by default a silent host is waited for for minutes."""
    parts = urlsplit(url)
    if not parts.netloc:
        raise ValueError("it names no bucket")
    options: dict[str, Any] = dict(parse_qsl(parts.query))
    if unknown := options.keys() - {"region", "endpoint_override", "scheme"}:
        raise ValueError(f"S3 has no option {', '.join(sorted(unknown))}")
    endpoint = next(filter(None, map(os.environ.get, _ENDPOINTS)), "")
    if endpoint and "endpoint_override" not in options:
        scheme, _, options["endpoint_override"] = endpoint.rstrip("/").rpartition("://")
        options["scheme"] = scheme or "https"
    if "endpoint_override" not in options and not _REGIONS & os.environ.keys():
        options.setdefault("region", fs.resolve_s3_region(parts.netloc))
    files = fs.S3FileSystem(
        connect_timeout=CONNECT_S,
        request_timeout=REQUEST_S,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        allow_delayed_open=True,
        **options,
    )
    return files, parts.netloc + parts.path


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
