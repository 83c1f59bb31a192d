"""The format of a replay's results: its document, and how the loader handles other files."""

import dataclasses
import json
from pathlib import Path

import pytest

from spoolscope.traces import results_format
from spoolscope.traces.digests import sealed
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.goals import DRIFT, GOALS, LATE_BY_MACHINE, MAKESPAN, TREE_DIFFERS
from spoolscope.traces.results import (
    VERSION,
    ReplayResult,
    RunResult,
    read_divergences,
    read_replay_file,
    read_run_file,
)
from spoolscope.traces.typed_json import decode, encode

ROOT = Path(__file__).resolve().parents[2]
RUN = {"version": VERSION, "candidate": "ext4", "round": 1, "makespan_ns": 5}


def write(tmp_path: Path, value: object, name: str = "replay.json") -> Path:
    (tmp_path / name).write_text(value if isinstance(value, str) else json.dumps(value))
    return tmp_path


def refused(directory: Path, read=read_replay_file) -> str:
    with pytest.raises(SpoolscopeError) as caught:
        read(directory)
    assert caught.value.remedy
    return str(caught.value)


def test_results_md_is_what_the_dataclasses_say() -> None:
    stored = (ROOT / "traces" / "RESULTS.md").read_text()
    remedy = "run: python -m spoolscope.traces.results_format > traces/RESULTS.md"
    assert stored == results_format.text(), remedy


def test_every_field_has_a_meaning_and_the_unit_of_its_name() -> None:
    kinds = list(results_format.FILES.values())
    kinds += results_format._inner(kinds)
    assert len(kinds) > 20
    for field in (field for kind in kinds for field in dataclasses.fields(kind)):
        assert field.metadata["meaning"].endswith("."), field.name
        for unit in ("ns", "bytes"):
            wanted = unit if field.name.endswith(f"_{unit}") else None
            assert wanted in (None, field.metadata["unit"]), field.name


def test_what_is_written_is_read_again(tmp_path) -> None:
    run = decode(RunResult, RUN)
    whole = ReplayResult(version=VERSION, trace="../trace", runs=[run], seed=7)
    write(tmp_path, sealed(encode(whole)))
    assert dataclasses.replace(read_replay_file(tmp_path), digest="") == whole


def test_a_keyword_is_a_field_too() -> None:
    root = {"cause": "c", "path_class": "p", "filesystem": "xfs", "class": "limit", "source": None,
            "n": 1, "followed": 0, "example": {"thread_seq": None, "path": None}}  # fmt: skip
    found = decode(results_format.Divergences, {"roots": [root]})
    assert found.roots[0].class_ == "limit"
    assert encode(found)["roots"][0]["class"] == "limit"


def test_results_without_a_version_are_older_ones(tmp_path) -> None:
    found = read_replay_file(write(tmp_path, {"trace": "x", "runs": [{"candidate": "jfs"}]}))
    assert (found.version, found.runs[0].order, found.runs[0].certificate) == (0, "resource", None)


def test_fields_of_a_later_version_within_this_one_are_left_alone(tmp_path) -> None:
    found = read_run_file(write(tmp_path, RUN | {"phase_of_the_moon": 3}, "run.json"))
    assert found.makespan_ns == 5


@pytest.mark.parametrize("version", [VERSION + 1, -1, "1", True, None])
def test_an_unknown_version_is_refused(tmp_path, version) -> None:
    said = refused(write(tmp_path, {"version": version, "runs": []}))
    assert f"version {version}" in said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ('{"runs": [', "damaged: Expecting"),
        ("[]", r"damaged: it is [], not an object"),
        ({"trace": "x"}, "damaged: runs is missing"),
        ({"runs": {}}, "runs is {}, not a list"),
        ({"runs": [{"round": 1}]}, "runs[0].candidate is missing"),
        ({"runs": [RUN | {"executed": "1"}]}, "runs[0].executed is '1', not a whole number"),
        ({"runs": [RUN | {"executed": True}]}, "runs[0].executed is True, not a whole number"),
        ({"runs": [RUN | {"realtime": 1}]}, "runs[0].realtime is 1, not true or false"),
        ({"runs": [RUN | {"life": {"steps": {"fill": {"ns": 1.5}}}}]},
         "runs[0].life.steps.fill.ns is 1.5, not a whole number"),
        (sealed({"runs": [RUN]}) | {"pace": "afap"}, "changed since it was written"),
    ],
)  # fmt: skip
def test_damage_is_named_with_its_place(tmp_path, value, said) -> None:
    directory = write(tmp_path, value)
    assert said in refused(directory)
    assert str(directory / "replay.json") in refused(directory)


def test_what_is_no_file_is_damaged(tmp_path) -> None:
    (tmp_path / "divergences.json").mkdir()
    assert "divergences.json is damaged" in refused(tmp_path, read_divergences)


def test_goals_say_what_is_missed_by_how_much() -> None:
    assert DRIFT.sentence(-4000) == (
        "the replay caught up by 0.4 % of the time that passed (goal: 0.1 % at most)"
    )
    assert LATE_BY_MACHINE.sentence(7e6, "; why") == (
        "the machine made 1 % of the calls over 7 ms late; why (goal: 100 µs at most)"
    )
    assert MAKESPAN.sentence(-0.2).startswith("the run took 20 % less than the recording")
    assert TREE_DIFFERS.sentence(3) == "3 names of the final tree differ (goal: 0 at most)"
    assert [goal.is_met(goal.limit) for goal in GOALS.values()] == [True] * len(GOALS)
    assert not any(goal.is_met(-goal.limit - 1) for goal in GOALS.values())
