"""Fuzzing: any file given as a capture must be converted or refused, whatever its checksums.

    .venv/bin/pip install -e .[fuzz]
    .venv/bin/python tracers/fuzz/capture.py BUILD/corpus tracers/fuzz/corpus -timeout=20

libFuzzer (by atheris) changes one chunk's content at a time. Then lengths and checksums are
corrected, as code behind these checks would not be reached otherwise. Chunks are uncompressed.
`capture.py --seed CAPTURE FILE` makes a seed of a real capture: some records of each kind. The name
of a seed says what becomes of it, and `tests/unit/test_corpus.py` holds it to that.
"""

import contextlib
import random
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import atheris
import numpy as np
import pyarrow as pa

with atheris.instrument_imports(include=["spoolscope.tracers", "spoolscope.traces"]):
    from spoolscope.tracers.convert import convert
    from spoolscope.traces.capture import RECORDS, ROWS, SYMBOLS
    from spoolscope.traces.errors import SpoolscopeError
    from spoolscope.traces.flat import DTYPES

FILE, CHUNK = DTYPES["file_header"], DTYPES["chunk_header"]
SEED_RECORDS = 6
SEED_SYMBOLS = 1000
Chunk = tuple[Any, bytes]


def chunks(data: bytes) -> Iterator[Chunk]:
    """Yield header and content of chunks, as far as the lengths in headers fit."""
    at = FILE.itemsize
    while at + CHUNK.itemsize <= len(data):
        header = np.frombuffer(data[at : at + CHUNK.itemsize], CHUNK)[0].copy()
        at += CHUNK.itemsize
        body = data[at : at + int(header["stored_bytes"])]
        at += len(body)
        yield header, body


def sealed(header: Any, body: bytes) -> bytes:
    """Return an uncompressed chunk with the length and checksum of its content."""
    header["codec"], header["crc32"] = 0, 0
    header["stored_bytes"] = header["raw_bytes"] = len(body)
    header["crc32"] = zlib.crc32(body, zlib.crc32(header.tobytes()))
    return bytes(header.tobytes() + body)


def first_bytes(data: bytes) -> bytes:
    """Return the file header of a capture with its checksum corrected."""
    header = np.frombuffer(data[: FILE.itemsize].ljust(FILE.itemsize, b"\0"), FILE)[0].copy()
    header["crc32"] = 0
    header["crc32"] = zlib.crc32(header.tobytes())
    return bytes(header.tobytes())


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """Change one chunk, or the order of chunks; called by libFuzzer."""
    chance, content = random.Random(seed), list(chunks(data))
    if not content or chance.random() < 0.02:
        return bytes(atheris.Mutate(data, max_size))
    at = chance.randrange(len(content))
    header, body = content[at]
    room = max(max_size - len(data), 0)
    changed = bytes(atheris.Mutate(body, len(body) + room)) if body else b""
    kind = int(header["kind"])
    if kind in RECORDS and chance.random() < 0.9:
        size = ROWS[RECORDS[kind]].itemsize
        header["n_records"] = len(changed) // size
        changed = changed[: len(changed) // size * size]
    content[at] = (header, changed)
    if chance.random() < 0.05:
        content.insert(chance.randrange(len(content)), content.pop(at))
    return (first_bytes(data) + b"".join(sealed(*chunk) for chunk in content))[:max_size]


def one_input(data: bytes) -> None:
    """Convert a capture; any exception but a refusal is a finding."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place, np.errstate(all="ignore"):
        file, trace = Path(place, "capture.seg"), Path(place, "trace")
        file.write_bytes(data)
        trace.mkdir()
        with contextlib.suppress(SpoolscopeError):
            convert([file], trace, None)


def seed(capture: Path, file: Path) -> None:
    """Write the first records of each chunk of a real capture."""
    data = capture.read_bytes()
    parts = [first_bytes(data)]
    for header, stored in chunks(data):
        body: bytes = pa.decompress(stored, int(header["raw_bytes"]), codec="zstd", asbytes=True)
        kind = int(header["kind"])
        if kind in RECORDS:
            header["n_records"] = min(int(header["n_records"]), SEED_RECORDS)
            body = body[: ROWS[RECORDS[kind]].itemsize * int(header["n_records"])]
        elif kind == SYMBOLS:
            body = body[: body.rindex(b"\n", 0, SEED_SYMBOLS) + 1]
        parts.append(sealed(header, body))
    file.write_bytes(b"".join(parts))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--seed"]:
        seed(*map(Path, sys.argv[2:]))
    else:
        atheris.Setup(sys.argv, one_input, custom_mutator=mutate)
        atheris.Fuzz()
