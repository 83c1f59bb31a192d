"""Upload of roll-ups to an S3 server: only whole flushes are visible, and none is sent twice."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs
from spoolscope_testing.object_storage import ObjectStorage, object_storage
from spoolscope_testing.rollups import START_S, RollupMaker

from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.rollups.compaction import compact
from spoolscope.traces.rollups.coverage import examine
from spoolscope.traces.rollups.files import Rollups
from spoolscope.traces.rollups.names import MARKER
from spoolscope.traces.rollups.places import Place, place
from spoolscope.traces.rollups.schema import ROLLUPS
from spoolscope.traces.rollups.sending import Upload, upload

pytestmark = pytest.mark.slow

LATER = date(2026, 3, 9)
_numbers = count()


@pytest.fixture(scope="module")
def storage() -> Iterator[ObjectStorage]:
    with object_storage() as running, pytest.MonkeyPatch.context() as patch:
        for name, value in running.environment.items():
            patch.setenv(name, value)
        yield running


@pytest.fixture
def bucket(storage: ObjectStorage) -> str:
    return storage.bucket(f"mails{next(_numbers)}")


def _rows(where: str | Path) -> dict[str, pa.Table]:
    rollups = Rollups(where)
    assert all(finding.kind == "merged" for finding in _findings(rollups))
    keys = {name: [c.name for c in spec.columns] for name, spec in ROLLUPS.items()}
    return {n: rollups.read(n).sort_by([(key, "ascending") for key in keys[n]]) for n in ROLLUPS}


def _findings(rollups: Rollups) -> list:
    coverage = examine(rollups, deep=True, now_s=START_S + 86_400)
    return [finding for finding in coverage.findings if finding.kind != "half-written"]


def _objects(bucket: str) -> dict[str, object]:
    files, base = fs.FileSystem.from_uri(bucket)
    found = files.get_file_info(fs.FileSelector(base, recursive=True))
    return {info.path: info.mtime_ns for info in found if info.type == fs.FileType.File}


@pytest.mark.parametrize("prefix", ["", "/fleet/mail"])
def test_a_bucket_has_what_the_directory_has(tmp_path: Path, bucket: str, prefix: str) -> None:
    RollupMaker().write(tmp_path)
    done = upload(tmp_path, bucket + prefix)
    assert (done.sent, done.there) == (4, 0)
    assert done.bytes_sent == sum(file.stat().st_size for file in tmp_path.rglob("*.parquet"))
    assert _rows(bucket + prefix) == _rows(tmp_path)
    assert (
        Rollups(bucket + prefix).paths("calls")[0].startswith(f"{bucket}{prefix}/schema=1/calls/")
    )


def test_a_second_run_sends_nothing(tmp_path: Path, bucket: str) -> None:
    RollupMaker().write(tmp_path)
    upload(tmp_path, bucket)
    before = _objects(bucket)
    assert upload(tmp_path, bucket) == Upload(there=4)
    assert _objects(bucket) == before
    RollupMaker(host="mail2").write(tmp_path, minutes=5)
    assert upload(tmp_path, bucket).sent == 1


def test_a_directory_is_a_target_too(tmp_path: Path) -> None:
    RollupMaker().write(tmp_path / "here")
    assert upload(tmp_path / "here", tmp_path / "there").sent == 4
    assert upload(tmp_path / "here", tmp_path / "there") == Upload(there=4)
    assert _rows(tmp_path / "there") == _rows(tmp_path / "here")


@pytest.mark.parametrize("puts", [0, 3, 6])
def test_a_kill_leaves_whole_flushes_and_the_next_run_sends_the_rest(
    tmp_path: Path, bucket: str, puts: int
) -> None:
    RollupMaker().write(tmp_path)
    program = f"""
import os, signal, sys
from spoolscope.traces.rollups import sending
from spoolscope.traces.rollups.places import Place, place
sending.THREADS = 1
real, left = Place.put, iter(range({puts}))
def dying(*given, **named):
    if next(left, None) is None:
        os.kill(os.getpid(), signal.SIGKILL)
    real(*given, **named)
Place.put = dying
sending.upload(*sys.argv[1:])
"""
    killed = subprocess.run([sys.executable, "-c", program, tmp_path, bucket], timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert len(_objects(bucket)) == puts
    if puts:
        rollups = Rollups(bucket)
        assert len(rollups.flushes) == puts // len(ROLLUPS)
        assert len(rollups.listing.halves) == puts % len(ROLLUPS)
        assert _findings(rollups) == []
    assert upload(tmp_path, bucket).sent == 4 - puts // len(ROLLUPS)
    assert _rows(bucket) == _rows(tmp_path)
    assert upload(tmp_path, bucket).sent == 0


def test_a_kill_while_others_are_on_their_way_leaves_whole_flushes(
    tmp_path: Path, bucket: str
) -> None:
    RollupMaker().write(tmp_path, minutes=16, in_flush=1)
    program = """
import os, signal, sys
from spoolscope.traces.rollups import sending
from spoolscope.traces.rollups.places import Place, place
real, left = Place.put, iter(range(20))
def dying(*given, **named):
    real(*given, **named)
    if next(left, None) is None:
        os.kill(os.getpid(), signal.SIGKILL)
Place.put = dying
sending.upload(*sys.argv[1:])
"""
    killed = subprocess.run([sys.executable, "-c", program, tmp_path, bucket], timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert 20 < len(_objects(bucket)) < 16 * len(ROLLUPS)
    rollups = Rollups(bucket)
    # Flushes are sent side by side: the hole is stated until the next run fills it.
    assert {finding.kind for finding in _findings(rollups)} <= {"missing"}
    assert upload(tmp_path, bucket).sent == 16 - len(rollups.flushes)
    assert _rows(bucket) == _rows(tmp_path)


def test_damaged_flushes_are_not_sent(tmp_path: Path, bucket: str) -> None:
    flushes = RollupMaker().write(tmp_path)
    for flush, table in zip(flushes, ROLLUPS, strict=True):
        file = tmp_path / flush.path(table)
        file.write_bytes(file.read_bytes()[:-9] + b"damaged!!")
    done = upload(tmp_path, bucket)
    assert (done.sent, list(done.damaged)) == (0, flushes)
    assert _objects(bucket) == {}


def test_a_flush_that_is_there_with_other_rows_stays(tmp_path: Path, bucket: str) -> None:
    RollupMaker(calls=9).write(tmp_path / "a")
    flushes = RollupMaker(calls=8).write(tmp_path / "b")
    upload(tmp_path / "a", bucket)
    done = upload(tmp_path / "b", bucket)
    assert (done.sent, done.different) == (0, flushes)
    assert _rows(bucket) == _rows(tmp_path / "a")


def test_what_a_merged_flush_of_the_bucket_has_is_not_sent_again(
    tmp_path: Path, bucket: str
) -> None:
    RollupMaker().write(tmp_path)
    upload(tmp_path, bucket)
    done = compact(bucket, until=LATER)
    assert (done.days, done.flushes, done.removed) == (2, 4, 16)
    assert len(_objects(bucket)) == 2 * len(ROLLUPS)
    assert upload(tmp_path, bucket) == Upload(there=4)
    assert _rows(bucket)["minutes"] == _rows(tmp_path)["minutes"]


def test_a_merged_flush_that_is_sent_after_its_parts_counts_once(
    tmp_path: Path, bucket: str
) -> None:
    RollupMaker().write(tmp_path)
    upload(tmp_path, bucket)
    compact(tmp_path, until=LATER)
    assert upload(tmp_path, bucket).sent == 2
    assert upload(tmp_path, bucket).sent == 0
    assert _rows(bucket) == _rows(tmp_path)
    assert len(Rollups(bucket).listing.merged_away) == 4
    compact(bucket, until=LATER)
    assert len(_objects(bucket)) == 2 * len(ROLLUPS)


@pytest.mark.parametrize("table", ["calls", MARKER])
def test_what_is_damaged_there_is_sent_again(tmp_path: Path, bucket: str, table: str) -> None:
    flushes = RollupMaker().write(tmp_path)
    upload(tmp_path, bucket)
    place(bucket).put(flushes[1].path(table), b"PAR1PAR1")
    assert upload(tmp_path, bucket).sent == 1
    assert _rows(bucket) == _rows(tmp_path)


def test_two_compactions_of_other_parts_count_once(tmp_path: Path, bucket: str) -> None:
    """The host has merged two flushes when it sends them, the bucket these and a third one."""
    RollupMaker().write(tmp_path, minutes=10)
    late = RollupMaker(recorder_id="c0ffee", start_s=START_S - 600)
    late.write(tmp_path / "late", minutes=5)
    for part in (tmp_path, tmp_path / "late"):
        upload(part, bucket)
    compact(tmp_path, until=LATER)
    upload(tmp_path, bucket)
    before = _rows(bucket)["minutes"]
    assert before.num_rows == 15
    compact(bucket, until=LATER)
    assert upload(tmp_path, bucket) == Upload(there=1)
    assert upload(tmp_path / "late", bucket) == Upload(there=1)
    assert _rows(bucket)["minutes"] == before
    assert len(_objects(bucket)) == len(ROLLUPS)


def test_a_merged_flush_whose_rows_the_bucket_has_merged_counts_once(
    tmp_path: Path, bucket: str
) -> None:
    RollupMaker().write(tmp_path, minutes=10)
    late = RollupMaker(recorder_id="c0ffee", start_s=START_S - 600)
    late.write(tmp_path / "late", minutes=5)
    for part in (tmp_path, tmp_path / "late"):
        upload(part, bucket)
    compact(bucket, until=LATER)
    compact(tmp_path, until=LATER)
    assert upload(tmp_path, bucket) == Upload(there=1)
    # Two uploads at the same time might both have sent it.
    for file in tmp_path.glob("schema=1/*/*/*/*.parquet"):
        place(bucket).put(str(file.relative_to(tmp_path)), file.read_bytes())
    assert _rows(bucket)["minutes"].num_rows == 15
    assert len(Rollups(bucket).listing.merged_away) == 1
    compact(bucket, until=LATER)
    assert len(_objects(bucket)) == len(ROLLUPS)


@pytest.mark.usefixtures("storage")
def test_a_bucket_that_is_missing_is_one_clear_error(tmp_path: Path) -> None:
    RollupMaker().write(tmp_path, minutes=5)
    with pytest.raises(SpoolscopeError) as raised:
        upload(tmp_path, "s3://nosuchbucket/fleet")
    sentence = "s3://nosuchbucket/fleet cannot be used: AWS Error NO_SUCH_BUCKET"
    assert sentence in raised.value.message
    assert "(0 of 1 flushes sent)" in raised.value.message


def test_a_server_that_is_away_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    RollupMaker().write(tmp_path)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(
        SpoolscopeError, match="cannot be used: AWS Error NETWORK_CONNECTION"
    ) as raised:
        upload(tmp_path, "s3://mails/fleet")
    assert "\n" not in raised.value.message
    assert len(raised.value.message) < 200
    assert len(Rollups(tmp_path).flushes) == 4


def test_a_server_that_goes_away_meanwhile_has_whole_flushes(
    tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    RollupMaker().write(tmp_path)
    real, left = Place.put, iter(range(6))
    monkeypatch.setattr("spoolscope.traces.rollups.sending.THREADS", 1)

    def failing(self: Place, path: str, content: bytes, *, durable: bool) -> None:
        if next(left, None) is None:
            raise OSError("AWS Error NETWORK_CONNECTION during PutObject operation")
        real(self, path, content, durable=durable)

    with monkeypatch.context() as patch:
        patch.setattr(Place, "put", failing)
        with pytest.raises(SpoolscopeError, match="1 of 4 flushes sent") as raised:
            upload(tmp_path, bucket)
    assert raised.value.remedy.endswith("the next run sends the rest")
    assert len(Rollups(bucket).flushes) == 1
    assert upload(tmp_path, bucket).sent == 3


@pytest.mark.parametrize("url", ["s3:///fleet", "s3://b/p?acl=public", "ftp://mails/fleet"])
def test_a_place_that_has_no_filesystem_is_refused(tmp_path: Path, url: str) -> None:
    RollupMaker().write(tmp_path, minutes=5)
    with pytest.raises(SpoolscopeError, match="is no place for roll-ups"):
        upload(tmp_path, url)
    assert (tmp_path / "schema=1" / MARKER).exists()
