"""Options of ageing that are accepted, and those that are refused."""

import json

import pytest

from spoolscope.replay.age import Age
from spoolscope.replay.candidates import parse
from spoolscope.replay.job import Begin
from spoolscope.replay.run import replay
from spoolscope.replay.targets import SMALLEST_BYTES, grows_to, image_bytes
from spoolscope.traces.errors import USAGE, SpoolscopeError


def test_an_age_is_a_factor_and_the_seed_of_the_replay():
    assert Age(7, 3.0).words() == ["--age=7:3.0"]


def test_a_directory_is_not_aged(script, tmp_path):
    script.call(10, 1, "stat", "m")
    trace, target = script.write(tmp_path / "trace"), tmp_path / "target"
    target.mkdir()
    with pytest.raises(SpoolscopeError, match="not aged") as refused:
        replay(trace, [f"dir:{target}"], tmp_path / "out", begin=Begin(age=Age(7, 2.0)))
    assert refused.value.exit_code == USAGE
    assert not (tmp_path / "out").exists()
    assert not list(target.iterdir())


def test_an_aged_image_leaves_the_room_of_a_fresh_one():
    for needed in (1 << 20, 1 << 30, 1 << 40):
        size = image_bytes(needed, 0, Age(7, 2.0))
        assert size >= SMALLEST_BYTES
        assert 0.35 * size > 2 * needed  # replay/src/age.rs keeps 65 %
    assert image_bytes(1 << 30, 0) == (2 << 30) + (512 << 20)


def test_only_what_is_written_takes_room_in_the_image():
    assert grows_to(parse("ext4"), 600, None) == 300
    assert grows_to(parse("xfs"), 600, Age(7, 2.0)) == 300
    assert grows_to(parse("ext2"), 600, Age(7, 2.0)) == 600


def test_mirrors_and_parity_take_room_too():
    on = ("lvm", "dm-crypt", "md-raid1", "md-raid5", "md-raid10")
    grown = [grows_to(parse(f"ext4-{layer}"), 600, None) for layer in on]
    assert grown == [300, 300, 600, 450, 600]
    assert grows_to(parse("overlay-ext4"), 600, None) == 300


def test_a_run_that_was_not_aged_says_so(script, tmp_path):
    script.call(10, 1, "mkdir", "d", mode=0o755)
    trace, target = script.write(tmp_path / "trace"), tmp_path / "target"
    target.mkdir()
    (row,) = replay(trace, [f"dir:{target}"], tmp_path / "out", pace="afap")
    assert row["age"] is None
    assert json.loads((tmp_path / "out" / "replay.json").read_text())["runs"][0]["age"] is None
