"""Comparison of two recordings with known differences, and without unfounded claims."""

import json
import re
from functools import partial

import numpy as np
import pytest
from click.testing import CliRunner

from spoolscope.analysis.explain import explain
from spoolscope.analysis.latency import IN_FLIGHT, SYSCALL_CLASSES
from spoolscope.analysis.recordings.moved import compare_recordings
from spoolscope.analysis.recordings.resampling import Judge, Moved, ratio_of_means, run_length
from spoolscope.analysis.recordings.sentences import headline, limits, reasons, word
from spoolscope.cli.main import group
from spoolscope.traces.book import book_file, remember
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.trace import Trace

pytestmark = pytest.mark.slow

MS = 1_000_000
S = 1000 * MS
COMMIT = "schedule < jbd2_log_wait_commit < ext4_sync_file"
SECONDS = 16
SAMPLE = "traces/samples/postfix-dovecot"


@pytest.fixture
def recording(new_builder):
    """Return ``recording(name, syncs, reads, sync_ns)``, with calls a second, and commits."""

    def make(
        name, syncs=4, reads=20, sync_ns=5 * MS, seconds=SECONDS, comm="lmtp", new_syncs=0, **meta
    ):
        builder = new_builder(name)
        noise = np.random.default_rng(len(name)).normal(1, 0.05, seconds)
        for second in range(seconds):
            for n in range(syncs):
                at, wait = second * S + n * 100 * MS, int(sync_ns * noise[second])
                path = f"a/tmp/{second}.{n}"
                builder.call("fsync", at, 100_000, ((COMMIT, wait),), path=path, comm=comm)
                target = builder.path_id(f"a/new/{second}.{n}")
                at += 50 * MS
                builder.call("rename", at, 50_000, path=path, path2_id=target, comm=comm, ret=0)
            for n in range(new_syncs):
                at = second * S + n * 50 * MS
                builder.call("fsync", at, MS, path="a/tmp/new", tid=300, comm="backup")
            for n in range(reads):
                at = second * S + n * 20 * MS + 1
                builder.call("read", at, 10_000, path="a/cur/1", tid=200, comm="imap")
            builder.commit(second * S, 5 * MS)
        return Trace.open(builder.write(duration_ns=seconds * S, **meta))

    return make


def part(between, kind, name):
    return next(part for part in between.parts[kind] if part.name == name)


def test_what_costs_more_is_named_and_measured(recording):
    between = compare_recordings(recording("monday"), recording("tuesday", sync_ns=10 * MS))
    assert word(between) == "slower"
    weights = {"fsync": 4 / 28, "rename": 4 / 28, "read": 20 / 28}
    before = sum(weights[c] * ns for c, ns in
                 (("fsync", 5.1 * MS), ("rename", 50_000), ("read", 10_000)))  # fmt: skip
    assert between.cost.reference == pytest.approx(before, rel=0.02)
    truth = 1 + weights["fsync"] * 5 * MS / before
    assert between.cost.low < truth < between.cost.high
    assert between.cost.ratio == pytest.approx(truth, rel=0.03)
    assert part(between, "cause", "journal_commit").moved.ratio == pytest.approx(2, rel=0.04)
    assert part(between, "call", "read").moved.difference == pytest.approx(0)
    assert "tuesday than in monday" in headline(between)


def test_parts_add_up_and_factors_multiply(recording):
    between = compare_recordings(recording("a"), recording("b", syncs=6, reads=10, sync_ns=7 * MS))
    for parts in between.parts.values():
        total = sum(part.moved.difference for part in parts)
        assert total == pytest.approx(between.cost.difference)
    factors = between.load.rate.ratio * between.mix_effect * between.cost.ratio
    assert factors == pytest.approx(between.total.ratio)


def test_more_syncs_are_another_mix_and_no_slower_call(recording):
    between = compare_recordings(recording("a"), recording("bb", syncs=16, reads=8))
    assert between.total.ratio > 2
    assert between.mix_effect > 2
    assert word(between) in ("equivalent", "inconclusive")
    assert between.load.mix == pytest.approx(1 - 2 * 4 / 28 - 8 / 40, abs=0.01)
    said = " ".join(limits(between))
    assert "The load was 1.43 times the first one" in said
    assert "The mix of calls differed by" in said


def test_a_delivery_takes_as_many_syncs_whatever_the_load(recording):
    between = compare_recordings(recording("a"), recording("b", syncs=8))
    assert between.load.deliveries == (4 * SECONDS, 8 * SECONDS)
    assert between.per_delivery["syncs"].ratio == pytest.approx(1)
    assert between.per_delivery["commits"].ratio == pytest.approx(0.5)


def test_too_short_recordings_have_no_interval_and_no_verdict(recording):
    between = compare_recordings(recording("a"), recording("b", sync_ns=50 * MS, seconds=5))
    assert between.cost.ratio > 2
    assert (between.cost.low, word(between)) == (None, "inconclusive")
    assert "fewer than 10 give no interval" in " ".join(limits(between))


def test_times_that_a_recording_cannot_have_make_no_windows(recording, new_builder):
    """Check impossible times, which must not take memory, as a trace is untrusted."""
    builder = new_builder("odd")
    for n in range(20):
        builder.call("fsync", n * S, 1000, path="a/tmp/1")
    builder.call("fsync", 10**17, 1000, path="a/tmp/1")
    odd = Trace.open(builder.write(duration_ns=SECONDS * S))
    assert compare_recordings(recording("a"), odd).candidate.n == SECONDS


def test_the_number_of_calls_that_are_left_out_is_stated(recording):
    whole = recording("a")
    start_ns = int(whole.meta["start_ns"])
    # Its first second is before its snapshot: 4 fsync, 4 rename and 20 read.
    later = recording("b", snapshot_ns=start_ns + S)
    said = [line for line in limits(compare_recordings(whole, later)) if "left out" in line]
    assert said == [
        "b has 448 calls, of which 28 are left out: those before its snapshot was taken, file "
        "locking, and calls that had not returned."
    ]


def test_names_of_different_keys_are_not_matched_but_programs_are(recording):
    keys = [{"pseudonymised": True, "key_id": key} for key in ("k1", "k2")]
    between = compare_recordings(recording("a", **keys[0]), recording("b", **keys[1]))
    assert between.boxes is None
    assert {part.name for part in between.parts["program"]} == {"lmtp", "imap"}
    assert "hide names with different keys" in " ".join(limits(between))
    same = compare_recordings(recording("c", **keys[0]), recording("d", **keys[0]))
    assert [box.name for box in same.boxes] == ["a"]


def test_hidden_programs_of_different_keys_count_as_one(recording):
    keys = [{"pseudonymised": True, "key_id": key} for key in ("k1", "k2")]
    one = recording("a", comm="+abc", **keys[0])
    between = compare_recordings(one, recording("b", comm="+xyz", **keys[1]))
    assert part(between, "program", "(hidden)").calls == (8 * SECONDS, 8 * SECONDS)
    same = compare_recordings(one, recording("c", comm="+abc", **keys[0]))
    assert part(same, "program", "+abc").calls == (8 * SECONDS, 8 * SECONDS)


def test_recordings_with_nothing_in_common_have_no_verdict(recording):
    between = compare_recordings(recording("a", reads=0), recording("b", syncs=0))
    assert between.load.covered_time == (0, 0)
    assert word(between) == "inconclusive"


def test_times_are_those_of_explain():
    trace = Trace.open(SAMPLE)
    found = compare_recordings(trace, trace)
    calls = trace.table("syscalls", ["ts_ns", "dur_ns", "syscall", "flags_seen"])
    starts, took, seen = (calls[name].to_numpy() for name in ("ts_ns", "dur_ns", "flags_seen"))
    locks = np.array([name in SYSCALL_CLASSES["lock"] for name in calls["syscall"].to_pylist()])
    kept = took[(starts >= trace.meta["snapshot_ns"]) & ~locks & (seen & IN_FLIGHT == 0)]
    time_ns = found.reference.sums["time_ns"].sum()
    assert found.reference.sums["calls"].sum() == len(kept)
    assert kept.sum() - explain(trace).between_programs_ns <= time_ns <= kept.sum()
    assert found.cost.ratio == 1
    assert word(found) in ("inconclusive", "equivalent")


def test_intervals_cover_the_truth_although_slow_times_last():
    """Check windows that depend on earlier ones, as with a busy disk: the hard case."""
    rng = np.random.default_rng(7)
    n, trials, hits = 60, 200, 0

    def windows(mean):
        noise = np.zeros(n)
        for k in range(1, n):
            noise[k] = 0.5 * noise[k - 1] + rng.normal(0, 0.3)
        calls = rng.poisson(100, n).astype(float)
        return np.column_stack([mean * np.exp(noise) * calls, calls])

    for trial in range(trials):
        judge = Judge(n, n, seed=2 * trial)
        moved = judge.of_sums(lambda drawn: drawn[:, 0] / drawn[:, 1], (windows(1), windows(1.2)))
        hits += moved.low <= 1.2 <= moved.high
    assert 0.9 <= hits / trials <= 0.99
    assert run_length(60) == 8


def test_the_ratio_of_two_means_is_no_surer_than_neighbours_let_it_be():
    """Check means whose ratio is 1 if a slow second is followed by others that are slow."""
    generator, n, missed = np.random.default_rng(3), 30, 0

    def recorded():
        noise = np.zeros(n)
        for k in range(1, n):
            noise[k] = 0.5 * noise[k - 1] + generator.normal(0, 0.3)
        counts = generator.poisson(100, n)
        return np.exp(noise) * counts, counts

    for _ in range(200):
        found = ratio_of_means(recorded(), recorded())
        missed += not found.low <= 1 <= found.high
    # Windows drawn one by one missed a share of 0.24 to 0.32; intervals too wide would miss none.
    assert 0 < missed <= 24
    few = (np.array([2.0, 4.0]), np.array([1, 1]))
    assert (ratio_of_means(few, few).ratio, ratio_of_means(few, few).low) == (1, None)
    assert np.isnan(ratio_of_means(few, (np.zeros(2), np.zeros(2))).ratio)


def test_the_method_says_the_windows_of_each_recording(recording):
    between = compare_recordings(recording("monday"), recording("tuesday"))
    (said,) = [one for one in limits(between) if one.startswith("Method")]
    assert re.search(
        r"cut into \d+ windows of 1 s, drawn \d+ at a time and \d+ windows of 1 s, drawn", said
    )


def test_no_cause_is_named_where_nothing_changed(recording):
    """Check that the furthest of many causes is judged as such, and a real one is still named."""
    assert Judge(60, 60).wider(20) > 1.5 > Judge(60, 60).wider(1) == 1
    between = compare_recordings(recording("monday"), recording("tuesday", sync_ns=10 * MS))
    assert len(reasons(between)) == 1
    assert reasons(between)[0].startswith("journal commit")


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(1.001, 1.06, "inconclusive"), (1.06, 1.2, "slower"), (0.8, 0.9, "faster"),
     (0.9, 0.97, "inconclusive"), (0.96, 1.04, "equivalent")],
)  # fmt: skip
def test_words_need_five_per_cent(low, high, expected):
    assert Moved(100, 100, (low + high) / 2, low, high).word == expected


def test_an_import_is_not_without_commits_but_without_their_record(recording):
    imported = {"from": "strace", "lines": 1}
    ours, theirs = (recording(n, imported=imported).path for n in ("monday", "tuesday"))
    for demand in ("commits > +10 %", "journal commit > +10 %", "flushes > 1"):
        result = run("compare", ours, theirs, "-q", "--json", "--fail-if", demand)
        (decision,) = json.loads(result.stdout)["fail_if"]
        assert (decision["decision"], result.return_value) == ("undecided", 5)
        assert "was imported" in decision["why"]


def test_calls_that_the_first_has_not_are_no_calls_as_fast(recording):
    """Check fsyncs of 1 ms of another program, beside those of 5.1 ms that both have."""
    ours = recording("monday")
    between = compare_recordings(ours, recording("tuesday", new_syncs=9))
    assert between.covered_time(("read",)) == 1
    assert between.covered_time(("fsync",)) == pytest.approx(4 * 5.1 / (4 * 5.1 + 9), rel=0.02)
    assert between.covered_time(("fsync",)) < between.covered_time(())


def run(*arguments):
    return CliRunner().invoke(group, [str(a) for a in arguments], standalone_mode=False)


def test_the_command_says_it_in_80_columns_and_in_json(recording):
    ours, theirs = recording("monday").path, recording("tuesday", sync_ns=10 * MS).path
    result = run("compare", ours, theirs, "-q")
    assert result.return_value == 0, result.exception
    assert max(map(len, result.stdout.splitlines()[:-1])) <= 80
    assert result.stdout.startswith("Calls are slower in tuesday than in monday")
    found = json.loads(run("compare", ours, theirs, "--json", "-q").stdout)
    assert found["verdict"]["word"] == "slower"
    assert found["by_cause"][0]["name"] == "journal_commit"
    assert found["load"]["calls"] == {"reference": 28 * SECONDS, "candidate": 28 * SECONDS}
    assert found["load"]["left"] == {"reference": [], "candidate": []}


def test_real_names_are_shown_and_matched_across_keys(recording, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "spoolscope").mkdir()
    traces = []
    for name, key in (("monday", "0000000a"), ("tuesday", "0000000b")):
        traces.append(recording(name, pseudonymised=True, key_id=key).path)
        names = [(b"a", b"erika")], [(b"imap", b"erikas-imap")]
        assert remember(book_file(None, key), *names) is None
    run = partial(CliRunner().invoke, group, standalone_mode=False, catch_exceptions=False)
    plain = run(["compare", *map(str, traces)]).stdout
    assert "erika" not in plain
    assert "--names shows them" in plain
    real = run(["compare", "--names", *map(str, traces)]).stdout
    assert {"erikas-imap", "erika"} <= set(real.split())
    assert "Real names: do not give away." in real
    assert json.loads(run(["compare", "--names", "--json", *map(str, traces)]).stdout)["names"]


def test_real_names_of_the_second_recording_alone_are_marked(recording, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "spoolscope").mkdir()
    assert remember(book_file(None, "0000000b"), [(b"a", b"erika")], []) is None
    ours = recording("monday", pseudonymised=False).path
    theirs = recording("tuesday", pseudonymised=True, key_id="0000000b").path
    words = ["compare", "--names", "--json", str(ours), str(theirs)]
    done = CliRunner().invoke(group, words, standalone_mode=False, catch_exceptions=False)
    assert json.loads(done.stdout)["names"]


def test_the_report_says_the_same_with_a_figure_and_without_tags_of_names(recording, tmp_path):
    ours = recording("monday", comm="<b>lmtp").path
    theirs = recording("tuesday", sync_ns=10 * MS, comm="<b>lmtp").path
    output = tmp_path / "r.html"
    told = json.loads(run("report", ours, theirs, "-o", output, "-q", "--json").stdout)
    assert told["word"] == "slower"
    assert told["figures"] == 4
    html = output.read_text()
    assert "commits per delivery" in html
    assert "<b>lmtp" not in html
    error = run("report", ours, theirs, ours, "-o", output, "-q", "-f").exception
    assert isinstance(error, SpoolscopeError)
    assert error.exit_code == 2


def test_other_numbers_of_traces_and_options_of_replays_are_refused(recording):
    ours = recording("a").path
    for words in ((ours,), (ours, ours, ours), (ours, ours, "--reference", "x")):
        error = run("compare", *words, "-q").exception
        assert isinstance(error, SpoolscopeError)
        assert error.exit_code == 2


def test_a_share_of_none_is_bounded_by_the_number_of_windows(recording):
    ours, theirs = recording("monday").path, recording("tuesday").path
    wanted = {"calls over 1 s > 1 %": "undecided", "calls over 1 s > 20 %": "passes"}
    words = [word for demand in wanted for word in ("--fail-if", demand)]
    decisions = json.loads(run("compare", ours, theirs, "-q", "--json", *words).stdout)["fail_if"]
    assert {one["expression"]: one["decision"] for one in decisions} == wanted
    assert {one["high"] for one in decisions} == {3 / SECONDS}


def test_fail_if_decides_by_the_interval(recording):
    ours, theirs = recording("monday").path, recording("tuesday", sync_ns=10 * MS).path
    wanted = {
        "time > +10 %": "fails",
        "time > +300 %": "passes",
        "time of read > +10 %": "passes",
        "journal commit > 1.5 x": "fails",
        "mean of fsync > 7 ms": "fails",
        "mean of fsync > 20 ms": "passes",
        "calls over 8 ms > +50 %": "fails",
        "commits > +10 %": "passes",
        "commits per delivery < -50 %": "passes",
        "p99 of fsync > 1 ms": "undecided",
        "time < -1 %": "passes",
    }
    words = [word for demand in wanted for word in ("--fail-if", demand)]
    result = run("compare", ours, theirs, "-q", "--json", *words)
    decisions = json.loads(result.stdout)["fail_if"]
    assert {one["expression"]: one["decision"] for one in decisions} == wanted
    assert all((one["why"] == "") == (one["decision"] != "undecided") for one in decisions)
    assert result.return_value == 4
    for demand, code in (("time > +300 %", 0), ("p99 of fsync > 1 ms", 5)):
        alone = run("compare", ours, theirs, "-q", "--json", "--fail-if", demand)
        assert alone.return_value == code
