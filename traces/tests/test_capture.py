"""A capture is readable up to its last whole chunk, wherever it is cut or damaged."""

import random
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from spoolscope.traces.capture import CHUNK_MAGIC, VERSION, read_capture
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.flat import DTYPES

CALLS_PER_CHUNK, CHUNKS = 10, 20


def header(state: int = 0, version: int = VERSION) -> bytes:
    head = np.zeros(1, DTYPES["file_header"])
    head["magic"], head["version"], head["state"] = b"SPOOLSEG", version, state
    head["number"] = 1
    head["crc32"] = zlib.crc32(head.tobytes())
    return head.tobytes()


def chunk(kind: int, raw: bytes, n: int, base: int = 0) -> bytes:
    stored = pa.compress(raw, codec="zstd", asbytes=True)
    head = np.zeros(1, DTYPES["chunk_header"])
    head["magic"], head["kind"], head["codec"], head["n_records"] = CHUNK_MAGIC, kind, 1, n
    head["raw_bytes"], head["stored_bytes"] = len(raw), len(stored)
    head["base"] = base
    head["crc32"] = zlib.crc32(stored, zlib.crc32(head.tobytes()))
    return head.tobytes() + stored


def calls(first: int) -> bytes:
    records = np.zeros(CALLS_PER_CHUNK, DTYPES["syscall"])
    records["seq"] = np.arange(first, first + CALLS_PER_CHUNK)
    return chunk(1, records.tobytes(), CALLS_PER_CHUNK)


@pytest.fixture
def parts() -> list[bytes]:
    names = np.array([3, 2], np.uint32).tobytes() + b"onetw"
    return [header(), chunk(9, names, 2, 1), *(calls(i * CALLS_PER_CHUNK) for i in range(CHUNKS))]


def test_a_whole_capture(parts: list[bytes], tmp_path: Path) -> None:
    file = tmp_path / "capture.seg"
    file.write_bytes(b"".join(parts))
    capture = read_capture(file)
    assert capture.closed
    assert capture.bytes_unread == 0
    assert capture.strings == [b"", b"one", b"tw"]
    assert capture.records["syscall"]["seq"].tolist() == list(range(CALLS_PER_CHUNK * CHUNKS))


def test_names_end_at_their_nul(tmp_path: Path) -> None:
    switches = np.zeros(2, DTYPES["switch"])
    switches["waker_comm"] = [b"imap\0junk", b"a-name-of-15-ch"]
    switches["held_comm"] = [b"hog\0ger", b""]
    file = tmp_path / "capture.seg"
    file.write_bytes(header() + chunk(2, switches.tobytes(), 2))
    found = read_capture(file).records["switch"]
    assert found["waker_comm"].tolist() == [b"imap", b"a-name-of-15-ch"]
    assert found["held_comm"].tolist() == [b"hog", b""]


def test_a_capture_of_another_version_is_refused_by_its_number(tmp_path: Path) -> None:
    file = tmp_path / "capture.seg"
    file.write_bytes(header(version=VERSION - 1))
    with pytest.raises(SpoolscopeError, match=f"version {VERSION - 1}, this reads {VERSION}"):
        read_capture(file)


@pytest.mark.slow
def test_a_cut_keeps_every_whole_chunk(parts: list[bytes], tmp_path: Path) -> None:
    data = b"".join(parts)
    ends = np.cumsum([len(part) for part in parts]).tolist()
    file = tmp_path / "capture.seg"
    for cut in random.Random(1).sample(range(len(header()), len(data)), 1000):
        file.write_bytes(data[:cut])
        capture = read_capture(file)
        whole = sum(end <= cut for end in ends[2:])
        assert len(capture.records["syscall"]) == whole * CALLS_PER_CHUNK
        assert capture.bytes_unread == cut - max(end for end in ends if end <= cut)


def test_a_damaged_chunk_ends_the_capture(parts: list[bytes], tmp_path: Path) -> None:
    damaged = bytearray(parts[5])
    damaged[40] ^= 1
    file = tmp_path / "capture.seg"
    file.write_bytes(b"".join([*parts[:5], bytes(damaged), *parts[6:]]))
    capture = read_capture(file)
    assert len(capture.records["syscall"]) == 3 * CALLS_PER_CHUNK
    assert capture.bytes_unread > 0


def test_an_unfinished_capture_says_so(parts: list[bytes], tmp_path: Path) -> None:
    file = tmp_path / "capture.seg"
    file.write_bytes(header(0xFFFF_FFFF) + b"".join(parts[1:]))
    assert not read_capture(file).closed


@pytest.mark.parametrize("content", [b"", b"PAR1" * 40, b"SPOOLSEG" + b"\x09" * 80])
def test_foreign_files_are_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "capture.seg"
    file.write_bytes(content)
    with pytest.raises(SpoolscopeError):
        read_capture(file)
