"""The certificates of a replay's runs, chosen and shown."""

from typing import Any

import pytest

from spoolscope.analysis.certificate import certificates
from spoolscope.analysis.compare import compare
from spoolscope.report.build import build, replay_page
from spoolscope.report.page import Figure

MS = 1_000_000
N = 120
LATE = "the machine made 1 % of the calls over 7 ms late (goal: 100 µs)"


def certificate(p99_ns: int, *, scheduled: bool = True) -> dict[str, Any]:
    """Return one as the replayer writes it; the machine causes all of the lateness."""
    met = p99_ns <= 100_000
    part = {"ns": 5 * p99_ns, "share": 1.0, "p50_ns": 10, "p90_ns": 20, "p99_ns": p99_ns,
            "max_ns": 2 * p99_ns}  # fmt: skip
    nothing = dict.fromkeys(part, 0)
    quantiles = {key: part[key] for key in ("p50_ns", "p90_ns", "p99_ns", "max_ns")}
    late = quantiles | {
        "calls": N, "over_1ms": 3, "over_1ms_by_machine": 2, "drift_ppm": 1.0,
        "parts": {"slower_calls": nothing, "dependencies": nothing, "machine": part},
    }  # fmt: skip
    goal = {"name": "lateness_by_machine_p99_ns", "value": p99_ns, "limit": 100_000, "met": met}
    other = {"name": "makespan_error", "value": -0.3, "limit": 0.01, "met": None}
    word = "untimed" if not scheduled else "faithful" if met else "unfaithful"
    return {
        "verdict": word,
        "reasons": [] if met else [LATE],
        "pace": "original" if scheduled else "afap",
        "loop": "open" if scheduled else "closed",
        "realtime": scheduled,
        "same_filesystem": False,
        "calls": {"recorded": N, "executed": N - 2, "same": N - 2, "diverged": 0, "skipped": 2,
                  "skipped_for": {"unsupported": 2}, "never_reached": 0, "never_returned": 4,
                  "of_unknown_threads": 0, "reconstructed": 1, "left_out_on_purpose": 7,
                  "before_start": 6},
        "goals": [goal, other],
        "lateness": late if scheduled else None,
        "makespan": {"recorded_ns": MS, "replayed_ns": MS, "error": 0.0},
        "in_flight": {"recorded_mean": 1.5, "replayed_mean": 1.25, "recorded_max": 3,
                      "replayed_max": 2, "emd": 0.25, "emd_by_mean": 0.25 / 1.5, "bin_ns": MS,
                      "recorded": [1.0, 2.0], "replayed": [1.25, 1.25]},
        "cpu_idle": 0.4,
        "cpu_steal": 0.0,
    }  # fmt: skip


@pytest.fixture
def replay(builder, new_replay):
    for n in range(N):
        builder.call("openat", n * 20 * MS, 1000)
    replay = new_replay("out", builder.write(), N)
    for round_, p99_ns in enumerate((60_000, 7 * MS, 90_000), 1):
        replay.run("ext4", [MS] * N, round_, certificate=certificate(p99_ns))
        replay.run("xfs", [MS] * N, round_, certificate=certificate(50_000 + round_))
        replay.run("old", [MS] * N, round_)
    return replay.write()


def test_the_least_faithful_run_speaks_for_a_candidate(replay):
    ext4, xfs = certificates(compare([replay]).replay.runs)
    assert (ext4.candidate, ext4.verdict, ext4.rounds, ext4.faithful) == (
        "ext4", "unfaithful", 3, 2,
    )  # fmt: skip
    assert ext4.sentences == ["the machine made 1 % of the calls over 7 ms late (goal: 100 µs)."]
    assert (xfs.candidate, xfs.verdict, xfs.faithful) == ("xfs", "faithful", 3)
    assert xfs.data.goals[0].value == 50_003
    assert xfs.sentences == ["Every goal that applies was met."]


def test_a_machine_that_cannot_keep_the_pace_is_asked_for_half_of_it(builder, new_replay):
    for n in range(N):
        builder.call("openat", n * 20 * MS, 1000)
    replay = new_replay("out", builder.write(), N, rounds=2)
    for round_ in range(2):
        late = certificate(7 * MS)
        replay.run("ext4", [MS * (1 + round_)] * N, round_, certificate=late)
        replay.run("xfs", [MS * (2 - round_)] * N, round_, certificate=late)
    verdict = compare([replay.write()]).verdict
    assert verdict.word not in ("faster", "equivalent")
    assert " --pace scaled=0.5 " in verdict.next_command
    assert not verdict.next_command.endswith("idle machine")


def test_the_report_says_it_in_words_and_figures(replay, tmp_path):
    page = replay_page([replay], lambda *_: None)
    (section,) = [section for section in page.sections if section.key == "certificate"]
    titles = [block.title for block in section.blocks]
    assert titles == [
        "ext4: unfaithful (2 of 3 runs are faithful)", "ext4: lateness",
        "xfs: faithful (3 of 3 runs are faithful)", "xfs: lateness", "Calls in flight over time",
    ]  # fmt: skip
    (faithful,) = [fact for fact in page.facts if fact.label == "faithful runs"]
    assert (faithful.value, faithful.good) == ("5 of 6", False)
    assert [fact.good for fact in page.facts if fact.label == "late, p99"] == [None]
    goals, numbers = section.blocks[:2]
    assert goals.rows[0] == ["late by the machine, p99", "7.00 ms", "100 µs", "no"]
    assert goals.rows[1][-1] == "does not apply"
    assert "The machine made 1 % of the calls over 7 ms late (goal: 100 µs). Pace " in goals.caption
    assert "(open loop)" in goals.caption
    assert "Pace original, real-time priority. " in goals.caption
    assert numbers.rows[-1][1:] == ["100 %", "10 ns", "20 ns", "7.00 ms", "14.0 ms"]
    for said in ("118 of 120 recorded calls", "3 over 1 ms late",
                 "2 were skipped (2: not replayable)", "4 had not returned",
                 "1 are reconstructed, 6 returned before", "7 were left",
                 "40.0 % idle"):  # fmt: skip
        assert said in numbers.caption
    figure = section.blocks[-1]
    assert isinstance(figure, Figure)
    assert [trace.name for trace in figure.plot.data] == ["recorded", "ext4", "xfs"]
    assert figure.table.rows[0] == ["ext4", "1.500", "1.250", "3", "2", "0.250", "16.67 %"]
    assert "7.00" in build([replay], tmp_path / "r.html").path.read_text()


def test_without_a_schedule_or_a_certificate_the_report_is_whole(builder, new_replay):
    for n in range(N):
        builder.call("openat", n * 20 * MS, 1000)
    replay = new_replay("out", builder.write(), N, pace="afap")
    replay.run("ext4", [MS] * N, certificate=certificate(0, scheduled=False))
    page = replay_page([replay.write()], lambda *_: None)
    (section,) = [section for section in page.sections if section.key == "certificate"]
    assert section.blocks[0].title == "ext4: untimed"
    assert "faithful runs" not in [fact.label for fact in page.facts]
    assert "no schedule to be late for" in section.blocks[1].caption
    old = new_replay("old", builder.path, N)
    old.run("ext4", [MS] * N)
    keys = [section.key for section in replay_page([old.write()], lambda *_: None).sections]
    assert "certificate" not in keys


def test_tasks_that_died_in_one_run_count_without_a_schedule(builder, new_replay):
    for n in range(N):
        builder.call("openat", n * 20 * MS, 1000)
    replay = new_replay("out", builder.write(), N, rounds=3, pace="afap")
    whole = certificate(0, scheduled=False)
    broken = whole | {"verdict": "unfaithful", "reasons": ["2 tasks died"]}
    for round_ in range(3):
        replay.run("ext4", [MS] * N, round_, certificate=whole)
        replay.run("xfs", [2 * MS] * N, round_, certificate=broken if round_ == 1 else whole)
    found = compare([replay.write()])
    ext4, xfs = certificates(found.replay.runs)
    assert [(one.verdict, one.faithful, one.unfaithful) for one in (ext4, xfs)] == [
        ("untimed", 0, 0), ("unfaithful", 0, 1),
    ]  # fmt: skip
    assert found.verdict.reasons == ["Not faithful, xfs: 2 tasks died."]


def test_candidates_have_one_order_and_colour_everywhere(builder, new_replay):
    for n in range(N):
        builder.call("openat", n * 20 * MS, 1000)
    replay = new_replay("out", builder.write(), N)
    for name, ms in (("slow", 3), ("old", 2), ("fast", 1)):
        known = {} if name == "old" else {"certificate": certificate(0)}
        replay.run(name, [ms * MS] * N, **known)
    page = replay_page([replay.write()], lambda *_: None)
    (section,) = [section for section in page.sections if section.key == "certificate"]
    assert [block.title.split(":")[0] for block in section.blocks[:-1:2]] == ["fast", "slow"]
    figures = {figure.key: figure.plot for figure in page.figures}
    colours = [
        {line.name: line.line.color for line in figures[key].data if line.name != "recorded"}
        for key in ("in-flight", "tails")
    ]
    assert colours[0]["fast"] != colours[0]["slow"]
    assert colours[0] == {name: colours[1][name] for name in colours[0]}


def test_nearly_no_difference_has_no_sign(builder, new_replay):
    for n in range(N):
        builder.call("openat", n * 20 * MS, 1000)
    replay = new_replay("out", builder.write(), N)
    given = certificate(0)
    given["goals"] = [{"name": "drift_ppm", "value": -0.4, "limit": 1000, "met": True}]
    replay.run("ext4", [MS] * N, certificate=given)
    page = replay_page([replay.write()], lambda *_: None)
    (section,) = [section for section in page.sections if section.key == "certificate"]
    assert section.blocks[0].rows[0][1] == "0 %"
