"""Forged captures with correct checksums are converted or refused, and never crash the reader.

Damage and cuts are in test_crash.py.
"""

import os
import random
import subprocess
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spoolscope.tracers.convert import convert
from spoolscope.traces.capture import RECORDS, ROWS
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.flat import DTYPES
from spoolscope.traces.native import find_binary
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
CAPTURES = 80
INTERESTING = (0, 1, -1, 2, 255, 4096, 65_535, 2**31 - 1, -(2**31), 2**32, 2**62, 2**63 - 1)
FILE, CHUNK = DTYPES["file_header"], DTYPES["chunk_header"]


@pytest.fixture
def capture(spool, allcalls, tmp_path) -> bytes:
    """Return the recorder's capture of a program that makes every call."""
    mount, file = spool("ext4"), tmp_path / "whole.seg"
    recorder = [find_binary("spoolscope-record"), "run", "--spool", mount, "--output", file]
    subprocess.run(
        [*recorder, "--", allcalls, mount], check=True, stdout=subprocess.DEVNULL,
        env=os.environ | {"ALLCALLS_COUNTS": str(tmp_path / "counts")},
    )  # fmt: skip
    return file.read_bytes()


def chunks(data: bytes) -> Iterator[tuple[Any, bytes]]:
    at = FILE.itemsize
    while at < len(data):
        header = np.frombuffer(data[at : at + CHUNK.itemsize], CHUNK)[0].copy()
        at += CHUNK.itemsize
        body, size = data[at : at + int(header["stored_bytes"])], int(header["raw_bytes"])
        yield header, pa.decompress(body, size, codec="zstd", asbytes=True)
        at += len(body)


def packed(header: Any, raw: bytes) -> bytes:
    stored = pa.compress(raw, codec="zstd", asbytes=True)
    header["raw_bytes"], header["stored_bytes"], header["crc32"] = len(raw), len(stored), 0
    header["crc32"] = zlib.crc32(stored, zlib.crc32(header.tobytes()))
    return header.tobytes() + stored


def with_other_numbers(kind: int, raw: bytes, chance: random.Random) -> bytes:
    records = np.frombuffer(raw, ROWS[RECORDS[kind]]).copy()
    dtypes = {name: records.dtype[name] for name in records.dtype.names}
    numbers = [name for name, dtype in dtypes.items() if np.issubdtype(dtype, np.integer)]
    for _ in range(chance.randint(1, 30)):
        member, value = chance.choice(numbers), chance.choice(INTERESTING)
        made_up = np.array([value % 2**64], np.uint64).astype(dtypes[member])
        records[member][chance.randrange(len(records))] = made_up[0]
    return records.tobytes()


def with_other_bytes(raw: bytes, chance: random.Random) -> bytes:
    changed = bytearray(raw)
    for _ in range(chance.randint(1, 20)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed[: chance.choice((len(changed), chance.randrange(len(changed))))])


def made_up(data: bytes, chance: random.Random) -> bytes:
    whole = [data[: FILE.itemsize]]
    content = list(chunks(data))
    victims = set(chance.sample(range(len(content)), chance.randint(1, 3)))
    for at, (header, raw) in enumerate(content):
        kind, changed = int(header["kind"]), raw
        if at in victims and kind in RECORDS and chance.random() < 0.8:
            changed = with_other_numbers(kind, raw, chance)
        elif at in victims:
            changed = with_other_bytes(raw, chance)
        if at in victims and chance.random() < 0.1:
            header["n_records"] = chance.choice((0, 1, 2**31, 2**32 - 1))
        whole.append(packed(header, changed))
    return b"".join(whole)


def test_a_capture_that_is_made_up_is_converted_or_refused(capture, tmp_path):
    refused = 0
    for seed in range(CAPTURES):
        file, trace = tmp_path / "made-up.seg", tmp_path / f"trace{seed}"
        file.write_bytes(made_up(capture, random.Random(seed)))
        trace.mkdir()
        try:
            with np.errstate(invalid="ignore"):  # casts of impossible times
                convert([file], trace, None)
        except SpoolscopeError:
            refused += 1
            continue
        assert Trace.open(trace).table("syscalls").num_rows > 0
    print(f"{refused} of {CAPTURES} refused")
    assert CAPTURES / 10 < refused < CAPTURES
