"""explain, compare and report as commands: text, JSON, exit codes, errors."""

import json

import pytest
from click.testing import CliRunner

from spoolscope.cli.main import group
from spoolscope.traces.errors import SpoolscopeError

pytestmark = pytest.mark.slow

MS = 1_000_000
N = 200
WAIT = "schedule < jbd2_log_wait_commit < ext4_sync_file"
UNKNOWN = "schedule < do_nanosleep < hrtimer_nanosleep"


def run(*arguments):
    return CliRunner().invoke(group, [str(a) for a in arguments], standalone_mode=False)


def text_of(result):
    assert result.exception is None, result.exception
    # The next command contains the user's paths.
    lines = [line for line in result.stdout.splitlines() if not line.startswith("Next: ")]
    assert max(map(len, lines)) <= 80
    return result.stdout


@pytest.fixture
def trace(builder):
    for n in range(N):
        stack = UNKNOWN if n == 7 else WAIT
        builder.call("fsync", n * 10 * MS, 1000, ((stack, MS),), path=f"box/new/{n}", comm="lmtp")
    builder.commit(0, MS, trigger="call", trigger_pid=100, trigger_tid=100, trigger_seq=0,
                   trigger_comm="lmtp", locking_ns=1, flushing_ns=1, logging_ns=MS - 2)  # fmt: skip
    return builder.write()


@pytest.fixture
def replay(trace, new_replay):
    replay = new_replay("out", trace, N)
    replay.run("ext4", [MS] * N)
    replay.run("a-candidate-with-a-long-name", [3 * MS] * N)
    return replay.write()


def test_explain_text(trace):
    result = run("explain", trace, "--blame", "--unknown")
    text = text_of(result)
    assert result.return_value == 0
    assert "journal commit" in text
    assert "The parts of every call add up exactly." in text
    assert "do_nanosleep < hrtimer_nanosleep" in text
    assert "message file in new" in text
    assert text.splitlines()[-1] == f"Next: spoolscope report {trace}"


def test_explain_says_what_brackets_in_the_blame_mean(builder):
    builder.call("fsync", 0, 1000)
    builder.commit(0, MS, trigger="other", trigger_comm="python3")
    text = text_of(run("explain", builder.write(), "--blame"))
    assert "(other: python3)" in text
    assert "In brackets: what asked for commits and is no recorded call;" in text


def test_explain_says_that_commits_were_not_recorded(builder):
    builder.call("fsync", 0, 1000)
    assert "Journal commits were not recorded." in text_of(run("explain", builder.write(tier="T0")))


def test_explain_json_has_the_fields_of_the_contract(trace):
    found = json.loads(run("explain", trace, "--json").stdout)
    assert found["sum_error_ns"] == 0
    assert found["latency_ns"] == N * (MS + 1000) == sum(found["causes"].values())
    assert found["blocked_ns"] == N * MS
    assert found["blocked_named_ns"] == (N - 1) * MS
    assert found["commits"]["n"] == found["commits"]["trigger_named"] == 1
    assert (found["complete"], found["lost"], found["tier"]) == (True, 0, "T2")
    fsync = found["by_syscall"]["fsync"]
    assert (fsync["n"], fsync["p50_ns"], fsync["p99_ns"]) == (N, MS + 1000, None)
    assert sum(fsync["causes"].values()) == fsync["total_ns"]
    assert found["unknown_stacks"][0]["frames"] == ["do_nanosleep", "hrtimer_nanosleep"]


def test_a_rule_in_one_line_names_an_unknown_stack(trace, tmp_path):
    rules = tmp_path / "mine.toml"
    line = json.loads(run("explain", trace, "--json").stdout)["unknown_stacks"][0]["rule"]
    rules.write_text(f"rules = [\n{line.replace('CAUSE', 'block_device')}\n]\n")
    found = json.loads(run("explain", trace, "--json", "--rules", rules).stdout)
    assert found["blocked_named_ns"] == found["blocked_ns"]
    assert found["causes"]["block_device"] == MS


def test_explain_of_a_lossy_trace_is_partial_and_exits_3(builder):
    builder.call("fsync", 0, 1000, ((None, MS),))
    result = run("explain", builder.write(complete=False, lost=2))
    assert result.return_value == 3
    assert "Partial: 2 records were lost" in text_of(result)
    assert "NOT complete" in result.stdout


def test_candidates_whose_names_end_alike_are_told_apart(trace, new_replay):
    replay = new_replay("out", trace, N)
    for n, name in enumerate(("dir:/srv/mail/xfs", "dir:/srv/mail/ext4"), 1):
        replay.run(f"{name} from 0 s to 2 s", [n * MS] * N)
    text = text_of(run("compare", replay.write(), "-q"))
    for label in ("dir:…v/mail/xfs ", "dir:…/mail/ext4 ", "dir:…rv/mail/xfs ", "dir:…v/mail/ext4 "):
        assert label in text


def test_compare_text_and_json(replay):
    result = run("compare", replay, "-q")
    text = text_of(result)
    assert result.return_value == 0
    assert text.startswith("ext4 looks faster than a-candidate-with-a-long-name: 67 % less")
    assert text.splitlines()[-1].startswith("Next: sudo spoolscope replay ")
    assert "--rounds 10" in text.splitlines()[-1]
    found = json.loads(run("compare", replay, "--json", "-q").stdout)
    assert found["ranking"] == ["ext4", "a-candidate-with-a-long-name"]
    assert found["verdict"]["word"] == "indicative"
    assert found["pairs"][0]["primary"]["ratio"] == pytest.approx(3)


def test_compare_of_a_diverged_replay_exits_3(trace, new_replay):
    replay = new_replay("bad", trace, N)
    replay.run("ext4", [MS] * N, divergent=20)
    result = run("compare", replay.write(), "-q")
    assert result.return_value == 3
    assert "Weak: ext4: 10.0 % of calls had another result." in result.stdout


def test_report_is_written_once(trace, tmp_path):
    output = tmp_path / "r.html"
    result = run("report", trace, "-o", output, "-q")
    assert f"Wrote {output}" in result.stdout
    assert "Next: sudo spoolscope replay" in result.stdout
    with pytest.raises(SpoolscopeError, match="exists") as caught:
        raise run("report", trace, "-o", output, "-q").exception
    assert "--force" in caught.value.remedy
    found = json.loads(run("report", trace, "-o", output, "-q", "--force", "--json").stdout)
    assert found["bytes"] == output.stat().st_size
    assert found["word"] == "exact"


@pytest.mark.parametrize("verb", ["explain", "compare", "report"])
def test_a_foreign_directory_is_refused_with_exit_2(verb, tmp_path):
    output = ["-o", tmp_path / "r.html"] if verb == "report" else []
    error = run(verb, tmp_path, *output).exception
    assert isinstance(error, SpoolscopeError)
    assert error.exit_code == 2
    assert error.remedy
    assert not (tmp_path / "r.html").exists()


def test_the_plan_ends_with_a_command_that_has_its_options(trace):
    words = ("--skip", "sync", "--slice", "0..1s")
    text = run("plan", trace, "-q", *words).stdout
    (then,) = [line for line in text.splitlines() if line.startswith("Next:")]
    assert "--skip sync --slice 0..1 --on ext4" in then


@pytest.mark.parametrize(
    ("topic", "page"), [("journal_commit", "causes"), ("J03", "insights"), ("causses", None)]
)
def test_help_knows_where_a_name_is_explained(topic, page):
    said = str(run("help", topic).exception)
    remedy = getattr(run("help", topic).exception, "remedy", "")
    assert f"no topic '{topic}'" in said
    assert remedy == (f"'spoolscope help {page}' has it" if page else "did you mean 'causes'?")
