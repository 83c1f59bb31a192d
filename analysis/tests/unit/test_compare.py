"""Comparison of candidates over the same calls, by runs, and its words."""

import json
import shutil
from pathlib import Path

import pytest

from spoolscope.analysis.compare import compare
from spoolscope.analysis.demands.language import parse_demand
from spoolscope.analysis.demands.of_replays import decide_replays
from spoolscope.replay.whatif import parse, parse_scale
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.trace import Trace

MS = 1_000_000
N = 400
EXT4_WAIT = "schedule < jbd2_log_wait_commit < ext4_sync_file"
BTRFS_WAIT = "schedule < wait_log_commit < btrfs_sync_log"


@pytest.fixture
def trace(builder):
    for n in range(N):
        builder.call("fsync" if n % 4 == 0 else "openat", n * 50 * MS, oncpu_ns=MS)
    return builder.write()


def latencies(scale, noise=0):
    return [int(scale * MS * (1 + 0.3 * ((n + noise) % 7) / 7)) for n in range(N)]


def recorded(new_builder, directory, stack, wait_ns):
    builder = new_builder("unused")
    builder.path = directory / "trace"
    builder.call("fsync", 0, MS, ((stack, wait_ns),))
    builder.call("openat", 0, 2 * MS)
    builder.write()


def test_one_round_is_indicative_and_says_what_to_run(trace, new_replay, new_builder):
    replay = new_replay("out", trace, N)
    recorded(new_builder, replay.run("btrfs", latencies(3)), BTRFS_WAIT, 900 * MS)
    recorded(new_builder, replay.run("ext4", latencies(1)), EXT4_WAIT, 100 * MS)
    found = compare([replay.write()])
    verdict = found.verdict
    assert (verdict.word, verdict.best, verdict.other) == ("indicative", "ext4", "btrfs")
    assert verdict.headline.startswith("ext4 looks faster than btrfs: 67 % less time")
    assert "one round" in verdict.sure
    assert "Within this run" in verdict.sure
    assert verdict.next_command.endswith("--on btrfs --on ext4 --rounds 10 -o OUT")
    assert verdict.reasons == [
        "fsync/fdatasync waits 800 ms less for journal commits on ext4 than on btrfs."
    ]
    (pair,) = found.pairs
    assert (pair.candidate, pair.reference, found.reference) == ("btrfs", "ext4", "ext4")
    assert pair.primary.ratio == pytest.approx(3, rel=1e-6)
    assert pair.why[0].text == (
        "fsync/fdatasync waits 800 ms more for log commits on btrfs than on ext4"
    )
    assert pair.cause_deltas == {"journal_commit": 800 * MS}
    assert json.loads(json.dumps(found.to_json(), default=str))["ranking"] == ["ext4", "btrfs"]


def test_three_clear_rounds_give_a_verdict(trace, new_replay):
    replay = new_replay("out", trace, N, rounds=3)
    for round_ in range(3):
        replay.run("xfs", latencies(0.7, round_), round_)
        replay.run("ext4", latencies(1, round_ + 1), round_)
    verdict = compare([replay.write()]).verdict
    assert (verdict.word, verdict.best) == ("faster", "xfs")
    assert "3 paired rounds, lower in 3/3" in verdict.sure
    assert verdict.next_command is None


def test_noisy_rounds_give_no_verdict(trace, new_replay):
    replay = new_replay("out", trace, N, rounds=3)
    for round_, scale in enumerate((0.6, 1.4, 0.8)):
        replay.run("xfs", latencies(scale), round_)
        replay.run("ext4", latencies(1), round_)
    verdict = compare([replay.write()]).verdict
    assert verdict.word == "inconclusive"
    assert "--rounds" in verdict.next_command


def test_an_interval_that_holds_1_is_undecided_first(trace, new_replay):
    """Check one round whose seconds differ far more than its sum: no "looks faster: 7 %"."""
    replay = new_replay("out", trace, N)
    replay.run("xfs", [int(MS * (0.3 if n // 40 % 2 else 1.55)) for n in range(N)])
    replay.run("ext4", latencies(0.885))
    found = compare([replay.write()])
    pair = found.pairs[0].primary
    assert pair.low < 1 < pair.high
    assert found.verdict.word == "inconclusive"
    assert found.verdict.headline.startswith("Undecided between xfs and ext4: anything from -")
    assert "looks faster" not in found.verdict.headline


@pytest.mark.parametrize("rounds", [1, 2])
def test_what_is_clearly_slower_in_few_rounds_is_not_called_alike(trace, new_replay, rounds):
    """Check three candidates, of which only one is within 5 % of the best."""
    replay = new_replay("out", trace, N, rounds=rounds)
    for round_ in range(rounds):
        replay.run("xfs", latencies(1, round_), round_)
        replay.run("ext4", latencies(1.02, round_), round_)
        replay.run("btrfs", latencies(5.8, round_), round_)
    found = compare([replay.write()])
    verdict = found.verdict
    assert [pair.word for pair in found.pairs] == ["indicative"] * 2
    assert verdict.sure.endswith(
        "Not told apart from xfs: ext4. btrfs looks slower than xfs. A verdict needs 3 rounds."
    )
    assert verdict.headline.startswith("xfs may be faster than ext4: 2.0 % less time")
    assert "--on btrfs" in verdict.next_command  # more rounds would give a verdict


def test_all_that_look_slower_are_one_sentence(trace, new_replay):
    replay = new_replay("out", trace, N)
    for name, scale in (("xfs", 1), ("ext4", 1.5), ("btrfs", 3)):
        replay.run(name, latencies(scale))
    said = compare([replay.write()]).verdict.sure
    assert said.endswith("All 2 others look slower than xfs. A verdict needs 3 rounds.")


@pytest.mark.slow
def test_what_other_programs_took_is_no_merit(trace, new_replay, new_builder):
    """Check btrfs, slower only as its calls waited for a CPU that a compiler had."""
    replay = new_replay("out", trace, N, rounds=3)
    for round_ in range(3):
        for name, scale, taken in (("btrfs", 1.5, 250 * MS), ("ext4", 1, MS)):
            directory = replay.run(name, latencies(scale, round_ + scale), round_)
            builder = new_builder("unused")
            builder.path = directory / "trace"
            builder.call("fsync", 0, MS, runq_ns=taken)
            builder.held(9, 0, taken, comm="cc1")
            builder.call("fsync", 900 * MS, MS, runq_ns=50 * MS)
            builder.held(8, 0, 50 * MS, comm="kworker/0:1")  # the filesystem's own
            builder.write()
    found = compare([replay.write()])
    (pair,) = found.pairs
    assert pair.primary.low > 1.05
    assert pair.strangers_ns == 249 * MS
    assert found.verdict.word == "inconclusive"
    assert found.verdict.headline.startswith(
        "Undecided between ext4 and btrfs: 35 % less time, but about as much of it was waiting "
        "for CPUs that programs outside the replay had"
    )
    assert found.verdict.reasons == [
        "No merit of ext4: calls waited 249 ms less on it than on btrfs for CPUs that "
        "programs outside the replay, the recorder included, had."
    ]
    assert pair.cause_deltas == {}
    (decision,) = decide_replays(found, parse_demand("time > +10 %"))
    assert (decision.candidate, decision.decision) == ("btrfs", "undecided")
    assert decision.why.endswith("CPUs that programs outside the replay had")


@pytest.mark.parametrize(
    "row",
    [
        {"divergent": 3},
        {"final_state": {"checked": 10, "mismatched": 1}},
        {"lateness_p99_ns": 400 * MS},
    ],
)
def test_a_bad_replay_gets_no_verdict(trace, new_replay, row):
    replay = new_replay("out", trace, N, rounds=3)
    for round_ in range(3):
        replay.run("xfs", latencies(0.7), round_, **row)
        replay.run("ext4", latencies(1), round_)
    verdict = compare([replay.write()]).verdict
    assert verdict.word == "inconclusive"
    assert verdict.problems[0].startswith("xfs: ")
    assert verdict.headline.startswith("xfs is not replayed faithfully: ")
    assert "Undecided between xfs and ext4: such runs carry no verdict" in verdict.headline
    assert ("--pace scaled=0.5" in verdict.next_command) == ("lateness_p99_ns" in row)


def test_lateness_is_no_fault_when_the_pace_is_as_fast_as_possible(trace, new_replay):
    replay = new_replay("out", trace, N, pace="afap")
    replay.run("ext4", latencies(1), lateness_p99_ns=400 * MS)
    assert compare([replay.write()]).verdict.problems == []


def test_only_calls_executed_everywhere_count(trace, new_replay):
    replay = new_replay("out", trace, N)
    replay.run("ext4", [MS] * N, skipped=(0, 1))
    replay.run("xfs", [MS] * N, skipped=(1, 2))
    found = compare([replay.write()])
    assert found.n_calls == N - 3
    assert {c.metrics["total_ns"] for c in found.candidates.values()} == {(N - 3) * MS}


def test_metrics_without_enough_events_are_missing(trace, new_replay):
    replay = new_replay("out", trace, N)
    replay.run("ext4", [20 * MS] * N)
    metrics = compare([replay.write()]).candidates["ext4"].metrics
    assert metrics["open_p99_ns"] is None  # 300 opens are fewer than 1,000
    assert metrics["sync_mean_ns"] == 20 * MS
    assert (metrics["over_10ms_share"], metrics["over_100ms_share"]) == (1.0, 0.0)


def test_replays_of_one_trace_are_joined_and_of_two_refused(trace, new_replay, tmp_path):
    first, second = new_replay("a", trace, N), new_replay("b", trace, N)
    first.run("ext4", latencies(1))
    second.run("xfs", latencies(2))
    found = compare([first.write(), second.write()])
    assert list(found.candidates) == ["ext4", "xfs"]
    assert found.pairs[0].primary.ratio == pytest.approx(2, rel=1e-6)
    other = new_replay("c", tmp_path / "elsewhere", N)
    other.run("ext4", latencies(1))
    with pytest.raises(SpoolscopeError, match="different traces"):
        compare([first.path, other.write()])


def test_a_moved_replay_is_still_read(trace, new_replay, tmp_path):
    replay = new_replay("out", trace, N)
    replay.run("ext4", latencies(1))
    moved = replay.write().rename(tmp_path / "moved")
    assert compare([moved]).candidates["ext4"].directories == [moved / "ext4-r0"]


def test_a_copied_replay_takes_its_trace_from_where_it_is_now(trace, new_replay, tmp_path):
    """Check that the moved trace is found, and not another trace in the old place."""
    identity = Trace.open(trace).identity
    replay = new_replay("out", Path("../mail.trace"), N, trace_identity=identity)
    replay.run("ext4", latencies(1))
    out = replay.write()
    assert compare([out]).replay.trace is None
    found = compare([out], trace=trace)
    assert found.replay.trace.path == trace
    assert found.to_json()["trace"] == str(trace)
    shutil.copytree(trace, tmp_path / "mail.trace")
    assert compare([out]).replay.trace.path.samefile(tmp_path / "mail.trace")
    meta = json.loads((tmp_path / "mail.trace" / "meta.json").read_text())
    other = json.dumps(meta | {"start_ns": meta["start_ns"] + 1})
    (tmp_path / "mail.trace" / "meta.json").write_text(other)
    assert compare([out]).replay.trace is None
    with pytest.raises(SpoolscopeError, match="not the trace that was replayed"):
        compare([out], trace=tmp_path / "mail.trace")


def test_what_is_not_a_replay_is_refused(tmp_path, trace):
    for path in (tmp_path / "nothing", trace):
        with pytest.raises(SpoolscopeError) as caught:
            compare([path])
        assert caught.value.exit_code == 2
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "replay.json").write_text('{"trace": "x", "runs": []}')
    with pytest.raises(SpoolscopeError, match="no finished run"):
        compare([empty])


def test_an_unknown_reference_is_refused(trace, new_replay):
    replay = new_replay("out", trace, N)
    replay.run("ext4", latencies(1))
    with pytest.raises(SpoolscopeError, match="no candidate 'zfs'"):
        compare([replay.write()], reference="zfs")


def test_calls_on_descriptors_the_replay_lacks_do_not_count(trace, new_replay):
    replay = new_replay("out", trace, N)
    replay.run("ext4", [MS] * N, reasons=["bad_fd"] * 5 + ["none"] * (N - 5))
    assert compare([replay.write()]).n_calls == N - 5


def test_file_locking_is_not_compared(builder, new_replay):
    for n in range(N):
        builder.call("flock" if n == 0 else "fsync", n * 50 * MS, oncpu_ns=MS)
    replay = new_replay("out", builder.write(), N)
    replay.run("ext4", [10**12] + [MS] * (N - 1))
    found = compare([replay.write()])
    assert found.n_calls == N - 1
    assert found.candidates["ext4"].metrics["total_ns"] == (N - 1) * MS


def test_threads_of_a_run_stand_for_recorded_processes(trace, new_replay):
    replay = new_replay("out", trace, N)
    replay.run("ext4", [MS] * N)
    found = compare([replay.write()]).replay
    assert found.recorded_comms(found.runs[0]) == {5000: "lmtp"}


AGED = {"seed": 7, "factor": 2.0, "bytes_made": 1}


@pytest.mark.parametrize(
    ("header", "row", "said"),
    [
        ({"pace": "afap"}, {}, r"pace \(original in .*a, afap in .*b\)"),
        ({}, {"order": "none"}, "order"),
        ({}, {"cache": "warm"}, r"cache \(recorded in"),
        ({}, {"age": AGED}, r"age \(none in .*a, 2 in .*b\)"),
        ({}, {"compressible": 50}, "compressible"),
        ({}, {"duplicate": 50}, "duplicate"),
        ({}, {"recorded": True}, r"recorded \(no in .*a, yes in .*b\)"),
    ],
)
def test_replays_made_otherwise_are_not_pooled(trace, new_replay, header, row, said):
    first, second = new_replay("a", trace, N), new_replay("b", trace, N, **header)
    first.run("ext4", latencies(1), recorded=False)
    second.run("ext4", latencies(2), **{"recorded": False} | row)
    with pytest.raises(SpoolscopeError, match=f"not made alike: {said}") as caught:
        compare([first.write(), second.write()])
    assert caught.value.exit_code == 2


def test_what_was_not_asked_for_otherwise_may_differ(trace, new_replay):
    first, second = new_replay("a", trace, N), new_replay("b", trace, N)
    first.run("ext4", latencies(1), cache="cold", age=AGED)
    second.run("xfs", latencies(2), cache="as it was", age=AGED | {"bytes_made": 2})
    assert len(compare([first.write(), second.write()]).candidates) == 2


def test_the_next_command_repeats_the_conditions(trace, new_replay):
    row = {"order": "none", "cache": "warm", "age": AGED, "recorded": False, "realtime": True}
    replay = new_replay("out", trace, N, pace="scaled=2")
    for number, name in enumerate(("dir:/with a space", "dir:/b")):
        directory = replay.run(f"run{number}", latencies(1 + number), **row)
        replay.runs[-1] |= {"candidate": name, "run": str(directory)}
    assert compare([replay.write()]).verdict.next_command == (
        f"spoolscope replay {trace} --on 'dir:/with a space' --on dir:/b --pace scaled=2 "
        "--order none --cache warm --age 2 --seed 7 --realtime --no-record --rounds 10 -o OUT"
    )


def test_the_next_command_asks_for_an_idle_machine_after_disturbed_runs(trace, new_replay):
    busy = {"why": ["programs outside the replay had 87 % of the CPUs' time"]}
    replay = new_replay("out", trace, N, rounds=2)
    for round_ in range(2):
        replay.run("ext4", latencies(1 + round_), round_, disturbance=busy)
        replay.run("xfs", latencies(2 - round_), round_, disturbance=busy)
    verdict = compare([replay.write()]).verdict
    assert verdict.word not in ("faster", "equivalent")
    assert verdict.next_command.endswith(" -o OUT  # on an idle machine")
    assert "--pace" not in verdict.next_command


def test_the_next_commands_ask_for_what_was_left_out(trace, new_replay):
    whole, less = new_replay("a", trace, N), new_replay("b", trace, N)
    label = "without fsync and with every 3. fsync"
    words = ["--skip", "fsync", "--fsync-every", "3"]
    told = {"label": label, "options": words, "left_out": {}, "sentence": "WHAT IF: less."}
    whole.run("ext4", latencies(2))
    less.run("ext4", latencies(1), what_if=told)
    outputs = [whole.write(), less.write()]
    first, second = compare(outputs).verdict.next_command.split("; ")
    assert first == f"sudo spoolscope replay {trace} --on ext4 --rounds 10 -o OUT1"
    assert second == (
        f"sudo spoolscope replay {trace} --on ext4 --skip fsync --fsync-every 3 --rounds 10 -o OUT2"
    )
    # Earlier versions did not store its options: no command is better than a wrong one.
    del told["options"]
    less.write()
    assert compare(outputs).verdict.next_command is None


def test_the_next_command_asks_for_parts_and_copies_again(trace, new_replay):
    asked = parse([], 1, "1.5..90", ["imap*"], parse_scale(3, "500ms", 7))
    told = asked.entry({}, {"before": 0, "after": 0, "skipped": 0},
                      {"chosen": 1, "given": 0, "left_out": 0}, None)  # fmt: skip
    replay = new_replay("out", trace, N, seed=7)
    for name, n in (("ext4", 1), ("xfs", 2)):
        what_if = told | {"scale": {"users": 3, "phases_ns": []}}
        replay.run(name, latencies(n), what_if=what_if)
    assert compare([replay.write()]).verdict.next_command == (
        f"sudo spoolscope replay {trace} --on ext4 --on xfs --seed 7 --slice 1.5..90 "
        "--only 'imap*' --scale-users 3 --scale-window 0.5 --rounds 10 -o OUT"
    )


def test_what_is_not_compared_is_said(trace, new_replay):
    replay = new_replay("out", trace, N)
    for name, scale in (("ext4", 1), ("xfs", 2)):
        replay.run(name, latencies(scale))
    assert "on each, file locking left out" in compare([replay.write()]).verdict.sure


@pytest.mark.parametrize("broken", [0, 2])
def test_the_run_that_executed_least_counts_whichever_round_it_is(trace, new_replay, broken):
    replay = new_replay("out", trace, N, rounds=3)
    for round_ in range(3):
        replay.run("xfs", latencies(0.7), round_, range(200) if round_ == broken else ())
        replay.run("ext4", latencies(1), round_)
    found = compare([replay.write()])
    assert found.verdict.word == "inconclusive"
    assert found.candidates["xfs"].fidelity.executed_share == 0.5
    assert found.verdict.problems == ["xfs: only 50.0 % of calls were executed."]


def test_a_third_candidate_that_failed_leaves_the_verdict_on_the_others(trace, new_replay):
    """Check with calls of which the first tenth speaks for the other one."""
    slow_later = [MS // 2] * 40 + [2 * MS] * (N - 40)
    replay = new_replay("out", trace, N, rounds=3)
    for round_ in range(3):
        replay.run("xfs", slow_later, round_)
        replay.run("ext4", latencies(1), round_)
        replay.run("btrfs", latencies(1), round_, range(40, N))
    found = compare([replay.write()])
    assert (found.verdict.word, found.verdict.best, found.n_calls) == ("faster", "ext4", N)
    assert list(found.candidates) == ["ext4", "xfs", "btrfs"]
    assert found.candidates["btrfs"].metrics["total_ns"] is None
    assert json.loads(json.dumps(found.to_json(), allow_nan=False, default=str))


def test_calls_left_out_on_purpose_were_not_to_be_made(trace, new_replay):
    replay = new_replay("out", trace, N, rounds=3)
    for round_ in range(3):
        for name, scale in (("xfs", 0.7), ("ext4", 1)):
            replay.run(name, latencies(scale), round_, executed=300)
    assert compare([replay.write()]).verdict.word == "faster"


def test_rounds_of_different_days_are_not_called_paired(trace, new_replay):
    outputs = []
    for day, name, scale in ((1, "xfs", 1), (2, "btrfs", 1.3)):
        replay = new_replay(f"day{day}", trace, N, rounds=3)
        for round_ in range(3):
            replay.run(name, latencies(scale), round_)
        outputs.append(replay.write())
    verdict = compare(outputs).verdict
    assert "3 rounds of each, lower in 3/3" in verdict.sure
    assert any("not replayed in turns" in problem for problem in verdict.problems)


def test_an_unfinished_round_changes_neither_order_nor_times(trace, new_replay):
    replay = new_replay("out", trace, N, rounds=4)
    for round_, (xfs, ext4) in enumerate(((1.1, 1.0), (1.1, 1.0), (1.1, 1.0))):
        replay.run("xfs", latencies(xfs), round_)
        replay.run("ext4", latencies(ext4), round_)
    replay.run("ext4", latencies(3), 3)
    found = compare([replay.write()])
    assert (found.verdict.word, found.verdict.best) == ("faster", "ext4")
    totals = [candidate.metrics["total_ns"] for candidate in found.candidates.values()]
    assert totals[1] / totals[0] == pytest.approx(1.1)


@pytest.mark.parametrize(
    ("pace", "word"), [("scaled=0.5", "inconclusive"), ("think", "faster"), ("afap", "faster")]
)
def test_lateness_counts_where_a_schedule_is_kept(trace, new_replay, pace, word):
    replay = new_replay("out", trace, N, rounds=3, pace=pace)
    for round_ in range(3):
        replay.run("xfs", latencies(0.7), round_, lateness_p99_ns=400 * MS, pace=pace)
        replay.run("ext4", latencies(1), round_, pace=pace)
    assert compare([replay.write()]).verdict.word == word
