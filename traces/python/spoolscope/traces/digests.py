"""Digests of files: a file that changed since it was written is reported and not read.

meta.json of a trace has a digest of every table and one of itself; so has replay.json. Parquet's
own page checksums are not enough (they leave out headers and footers, and DuckDB does not check
them), nor are those of a disk (a copy may be damaged on its way). BLAKE2b is used because hashlib
always has it, at 1 GiB/s of a CPU.
"""

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from spoolscope.traces.files import regular, write_file

META = "meta.json"
TABLES_KEY, OWN_KEY = "digests", "digest"
DIGEST_BYTES = 16


def write_meta(directory: Path, meta: dict[str, Any]) -> None:
    """Write meta.json of a trace whose tables are written, with the digests of all."""
    files = sorted(directory.glob("*.parquet"))
    meta = sealed(meta | {TABLES_KEY: {file.stem: digest_of(file) for file in files}})
    write_file(directory / META, json.dumps(meta, indent=1) + "\n")


def read_meta(directory: Path) -> Any:
    """Return the content of meta.json of a trace.

    Raises:
        OSError: it is missing, or not a file.
        ValueError: it is not JSON, or not what was written.
    """
    meta = json.loads(regular(directory / META).read_text("utf-8"))
    if isinstance(meta, dict):
        check_sealed(meta)
        if (OWN_KEY in meta) != isinstance(meta.get(TABLES_KEY), dict):
            raise ValueError("it has changed since it was written: a digest is missing")
    return meta


def sealed(value: dict[str, Any]) -> dict[str, Any]:
    """Return the content for a JSON file with its digest added."""
    plain = json.loads(json.dumps({key: part for key, part in value.items() if key != OWN_KEY}))
    return {**plain, OWN_KEY: _own(plain)}


def check_sealed(value: dict[str, Any]) -> None:
    """Check that a JSON file holds what was written, if it has a digest.

    Raises:
        ValueError: it does not.
    """
    if OWN_KEY in value and value[OWN_KEY] != _own(value):
        raise ValueError("it has changed since it was written: its digest is another")


def digest_of(file: Path) -> str:
    """Return the digest of a whole file.

    Raises:
        OSError: it cannot be read, or is not a file.
    """
    with regular(file).open("rb", buffering=0) as source:
        return hashlib.file_digest(source, _new).hexdigest()


def check(file: Path, digest: str | None) -> None:
    """Check that a file is as it was written; each file is read once in a process.

    Args:
        file: A table, or another file.
        digest: Its digest when it was written.

    Raises:
        OSError: it cannot be read, or is not a file.
        ValueError: it is not what was written.
    """
    found = file.stat()
    key = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
    if _digest_once(file, key) != digest:
        raise ValueError("it has changed since it was written: its digest is another")


@cache
def _digest_once(file: Path, _key: tuple[int, int, int, int]) -> str:
    return digest_of(file)


def _own(meta: dict[str, Any]) -> str:
    """Return the digest of the content of meta.json, independent of its layout."""
    plain = {key: value for key, value in meta.items() if key != OWN_KEY}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return str(_new(text.encode()).hexdigest())


def _new(data: bytes = b"") -> Any:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES)
