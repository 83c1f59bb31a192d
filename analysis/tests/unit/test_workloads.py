"""Workloads of the published comparisons: their data, verdicts on claims, wrong usage."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from spoolscope.analysis.stats import Estimate
from spoolscope.cli.elsewhere import words_of
from spoolscope.cli.mailserver import command as mailserver
from spoolscope.cli.workload import command
from spoolscope.lab.vm.running import SCRATCH
from spoolscope.lab.workloads.catalog import WORKLOADS, Workload, workload
from spoolscope.lab.workloads.daemons import figures_of
from spoolscope.lab.workloads.judging import Results, relation_holds
from spoolscope.lab.workloads.needs import Needs
from spoolscope.lab.workloads.published import Claim, Pair, comparisons
from spoolscope.lab.workloads.running import Asked, check_room
from spoolscope.lab.workloads.text import lines, number
from spoolscope.lab.workloads.throughput import by_step, mb_per_s
from spoolscope.replay.candidate import Candidate
from spoolscope.replay.candidates import parse
from spoolscope.replay.presets import presets
from spoolscope.traces.errors import SpoolscopeError

LESS = Pair(("a", "m"), ("b", "m"), "less", 1)
TWICE = Pair(("a", "m"), ("b", "m"), "less", 2)
ALIKE = Pair(("a", "m"), ("b", "m"), "alike", 1.25)


def runs(**values):
    return [
        {"candidate": name, "round": number, "figures": {"m": value}}
        for name, of_rounds in values.items()
        for number, value in enumerate(of_rounds, 1)
    ]


@pytest.mark.parametrize("name", comparisons())
def test_a_comparison_is_of_candidates_that_there_are(name):
    comparison = comparisons()[name]
    rows = {row for table in comparison.tables for row in table.rows}
    named = {one for claim in comparison.claims for one in claim.candidates}
    assert rows | named | set(comparison.like) <= set(presets())
    assert named <= rows
    assert set(comparison.like.values()) <= rows
    assert all(row.startswith(f"{name.lower()}-") for row in rows)
    for table in comparison.tables:
        metrics = {column.metric for column in table.columns}
        assert all(metrics >= set(figures) for figures in table.rows.values())


def test_published_figures_support_the_claims_that_were_made_of_them():
    checked = 0
    for comparison in comparisons().values():
        for claim in comparison.claims:
            for pair in claim.pairs:
                for table in comparison.tables:
                    left, right = (
                        table.rows.get(candidate, {}).get(metric)
                        for candidate, metric in (pair.left, pair.right)
                    )
                    if left is None or right is None:
                        continue
                    checked += 1
                    if pair.relation == "alike":
                        assert 1 / pair.times <= left / right <= pair.times, claim
                    else:
                        # "14 times" was 13.75, rounded in the text.
                        assert left * pair.times <= right * 1.05, claim
    assert checked > 20


@pytest.mark.parametrize(
    ("pair", "low", "high", "verdict"),
    [
        (LESS, 0.5, 0.9, "held"),
        (LESS, 0.94, 0.96, "not decided"),
        (LESS, 0.96, 1.02, "does not hold"),
        (LESS, 1.1, 1.2, "does not hold"),
        (LESS, 0.5, 1.5, "not decided"),
        (TWICE, 0.3, 0.45, "held"),
        (TWICE, 0.4, 0.6, "not decided"),
        (TWICE, 0.6, 0.7, "does not hold"),
        (ALIKE, 0.9, 1.1, "held"),
        (ALIKE, 0.7, 1.1, "not decided"),
        (ALIKE, 1.3, 1.4, "does not hold"),
        (ALIKE, 0.5, 0.6, "does not hold"),
    ],
)
def test_the_interval_says_whether_a_relation_holds(pair, low, high, verdict):
    assert relation_holds(pair, Estimate((low + high) / 2, low, high, 3, 0, "paired-t")) == verdict


def test_too_few_rounds_decide_nothing():
    assert relation_holds(LESS, Estimate(0.1, 0.09, 0.11, 2, 2, "paired-t")) == "not decided"
    assert relation_holds(LESS, Estimate(0.1, None, None, 1, 1, "none")) == "not decided"


def test_a_claim_holds_if_all_of_it_does():
    rows = runs(a=[1, 1.01, 1.02], b=[2, 2.02, 2.01], c=[1, 1.02, 1.01])
    results = Results(None, rows, "a")
    one = Pair(("a", "m"), ("b", "m"), "less", 1)
    other = Pair(("b", "m"), ("c", "m"), "less", 1)
    assert results.judge(Claim("", (one,))).verdict == "held"
    assert results.judge(Claim("", (one, other))).verdict == "does not hold"
    assert results.judge(Claim("", (one,))).n == 3
    unknown = Pair(("d", "m"), ("a", "m"), "less", 1)
    missing = results.judge(Claim("", (one, unknown)))
    assert (missing.verdict, missing.why, missing.missing) == ("not decided", "not run: d", ("d",))
    # One relation that does not hold is enough, even if others were not run.
    assert results.judge(Claim("", (other, unknown))).verdict == "does not hold"


def test_a_small_load_does_not_refute_what_is_said_of_a_large_directory():
    slower = [{**row, "scale": 0.01} for row in runs(a=[2, 2.01, 2.02], b=[1, 1.01, 1.02])]
    claim = Claim("", (LESS,), least_scale=1)
    found = Results(None, slower, "a").judge(claim)
    assert (found.verdict, found.missing) == ("not decided", ())
    assert "--scale 1" in found.why
    assert Results(None, [{**row, "scale": 1} for row in slower], "a").judge(claim).verdict == (
        "does not hold"
    )
    faster = [{**row, "scale": 0.01} for row in runs(a=[1, 1.01, 1.02], b=[2, 2.01, 2.02])]
    assert Results(None, faster, "a").judge(claim).verdict == "held"


def test_a_candidate_on_a_device_model_stands_for_its_claims():
    rows = runs(**{"a@hdd10k": [1, 1.01, 1.02], "b@hdd10k": [2, 2.02, 2.01]})
    assert Results(None, rows, "a@hdd10k").judge(Claim("", (LESS,))).verdict == "held"


def test_plain_names_decide_what_is_not_about_options(tmp_path):
    comparison = comparisons()["C2007"]
    rows = [
        {"candidate": name, "round": round_, "figures": {"smtp_per_min": figure + round_}}
        for name, figure in (("ext3", 100), ("xfs", 300), ("ext4", 200))
        for round_ in (1, 2, 3)
    ]
    results = Results(comparison, rows, "ext4")
    twice, others = (results.judge(claim) for claim in comparison.claims[:2])
    assert (twice.verdict, twice.today) == ("held", ("ext3", "xfs"))
    assert (others.verdict, others.missing) == ("not decided", ("jfs", "reiserfs"))
    said = "\n".join(lines(Asked(WORKLOADS["postfix-courier"], [], tmp_path, 1, 3), results, "6"))
    assert "of ext3, xfs with today's options" in " ".join(said.split())
    assert said.endswith("To decide 2 of the 4 claims of 2007, add --on jfs --on reiserfs --vm 6.1")
    # A published candidate alone decides no claim on two.
    rows += [{**row, "candidate": f"c2007-{row['candidate']}"} for row in rows[3:6]]
    found = Results(comparison, rows, "ext4").judge(comparison.claims[0])
    assert (found.today, found.verdict) == (("ext3", "xfs"), "held")


def test_what_is_about_options_is_decided_by_the_published_candidates_only(tmp_path):
    comparison = comparisons()["C2005"]
    by_claim = {claim.text: comparison.plain(claim) for claim in comparison.claims}
    assert by_claim["noatime hardly changes reading"] is None
    assert by_claim["ext3 without dir_index writes slower than with it"] is None
    assert by_claim["ext3 with dir_index reads slower than reiserfs"] == {
        "c2005-reiserfs": "reiserfs",
        "c2005-ext3-dir-index": "ext3",
    }
    rows = [{"candidate": "ext4", "round": 1, "figures": {"write_s": 1.0}}]
    asked = Asked(WORKLOADS["cyrus-archive"], [], tmp_path, 0.01)
    said = list(lines(asked, Results(comparison, rows, "ext4"), "6.18"))
    assert not any(line.startswith("  not decided") for line in said)
    end = " ".join(" ".join(said).split()).partition("To decide ")[2]
    assert end.startswith("6 of the 6 claims of 2005, add --on c2005-reiserfs --on")
    assert end.endswith("--vm 6.1 --rounds 3")


def test_a_figure_stands_beside_that_of_its_row():
    comparison = comparisons()["C2004"]
    table, raid = comparison.tables
    rows = [
        {"candidate": name, "round": 1, "figures": {"io_s": value}}
        for name, value in (("c2004-ext3", 3.0), ("c2004-ext2@hdd10k", 1.5))
    ]
    results = Results(comparison, rows, "c2004-ext3")
    found = results.figure(table, "c2004-ext2@hdd10k", "io_s")
    assert (found.then, found.now, found.rounds) == (613, 1.5, (1.5,))
    assert found.then_ratio == pytest.approx(613 / 946)
    assert found.ratio.ratio == pytest.approx(0.5)
    assert results.figure(raid, "c2004-ext3", "unpack_s").then is None


def test_a_table_fits_a_terminal_and_has_both_figures(tmp_path):
    rows = [
        {"candidate": name, "round": round_, "figures": {"unpack_s": 1 + round_ / 10}}
        for name in ("c2004-ext3", "c2004-ext3-dir-index")
        for round_ in (1, 2, 3)
    ]
    asked = Asked(WORKLOADS["maildir-io"], [], tmp_path, 0.01, rounds=3)
    results = Results(comparisons()["C2004"], rows, "c2004-ext3")
    said = list(lines(asked, results, "6.18"))
    assert max(map(len, said)) <= 80
    [line] = [line for line in said if line.startswith("  c2004-ext3-dir-index")][:1]
    assert line.split()[1:] == ["28", "0.0727", "1.20", "1.00", "+0.0", "%", "to", "+0.0", "%"]
    assert "  does not hold with dir_index ext3 unpacks a large directory faster" in said


def test_throughput_is_shown_in_parts_of_the_time():
    def sample(at_s, read, written):
        return {"at_ns": at_s * 10**9, "read_bytes": read, "written_bytes": written}

    # 10 MB in the first of four seconds, nothing in the next two, 30 MB in the last.
    samples = [
        sample(0, 0, 0),
        sample(1, 0, 10**7),
        sample(3, 0, 10**7),
        sample(4, 3 * 10**7, 10**7),
    ]
    assert mb_per_s(samples, 4) == pytest.approx([10, 0, 0, 30])
    assert mb_per_s(samples[:1], 2) == [0, 0]
    rows = [{"candidate": "a", "throughput": {"write": samples}}] * 2
    assert by_step(rows)["write"]["a"] == pytest.approx(mb_per_s(samples))


def test_numbers_have_three_digits():
    shown = [number(value) for value in (None, 0, 0.00123, 0.02, 2.5, 38.2, 385, 1441)]
    assert shown == ["-", "0", "0.00123", "0.0200", "2.50", "38.2", "385", "1,441"]


def test_a_device_model_may_be_named_with_the_candidate():
    assert (parse("ext4@hdd10k").model, parse("ext4@hdd10k").name) == ("hdd10k", "ext4")
    with pytest.raises(SpoolscopeError, match="unknown candidate"):
        parse("ext4@floppy")


def test_help_fits_a_terminal_and_names_every_workload():
    said = CliRunner().invoke(command, ["--help"]).output
    assert max(map(len, said.splitlines())) <= 80
    assert all(f"    {name} " in said for name in WORKLOADS)


def test_each_workload_can_be_named_and_says_what_it_needs():
    for name in WORKLOADS:
        small, large = (workload(name).needs(name, scale) for scale in (0.01, 1))
        assert 0 < small.bytes < large.bytes
        assert 0 < small.names < large.names


def said_of(*words):
    result = CliRunner().invoke(command, list(words), standalone_mode=False)
    error = result.exception
    return f"{error.message}; {error.remedy}" if isinstance(error, SpoolscopeError) else str(error)


def test_what_is_wrong_is_refused_by_name(tmp_path):
    on = ("--on", f"dir:{tmp_path}")
    assert "did you mean maildir-io" in said_of("maildirio", *on, "--scale", "1")
    assert "is no number from 0.0001" in said_of("maildir-io", *on, "--scale", "0")
    assert "no candidate given" in said_of("maildir-io", "--scale", "1")
    assert "unknown candidate 'ext5'" in said_of("maildir-io", "--on", "ext5", "--scale", "1")
    assert "no mailboxes" in said_of("varmail", *on, "--scale", "1", "--format", "mbox")
    wrong = said_of("varmail", *on, "--scale", "1", "--reference", "xfs")
    assert "is no candidate of this workload" in wrong


def test_room_is_checked_before_and_said(tmp_path):
    def huge(_name: str, _scale: float) -> Needs:
        return Needs(1 << 60, 10)

    asked = Asked(Workload("w", "", lambda _: None, needs=huge), [], tmp_path, 2)
    with pytest.raises(SpoolscopeError, match=r"w at scale 2 needs [\d,]+ MiB in .* MiB free"):
        check_room([Candidate("ext4", "ext4")], asked, Needs(1 << 60, 10), None)
    free = os.statvfs(tmp_path).f_favail
    if free:
        where = Candidate("dir", "dir", directory=tmp_path)
        with pytest.raises(SpoolscopeError, match="has room for"):
            check_room([where], asked, Needs(0, free + 1), None)


def test_one_runs_in_a_directory_and_leaves_nothing_in_it(tmp_path):
    place, out = tmp_path / "place", tmp_path / "out"
    place.mkdir()
    words = ["qmail", "--on", f"dir:{place}", "--scale", "0.002", "-o", str(out), "--json", "-q"]
    result = CliRunner().invoke(command, words, standalone_mode=False)
    assert result.exception is None
    found = json.loads(result.output)
    assert found["comparison"] is None
    assert not list(place.iterdir())
    [run] = [path for path in out.iterdir() if path.is_dir()]
    told = json.loads(Path(run, "run.json").read_text())
    assert told["caches"] == "as they were"
    assert told["steps"]["deliver"]["laps"]["deliver"]["n"] == 40
    assert told["figures"]["deliver_deliver_ms"] > 0


def test_the_command_in_a_machine_is_the_one_that_was_given(tmp_path):
    given = ["fsbench", "--on", "c2008-jfs", "--on", "ext4[-J size=64; data=journal]", "--scale"]
    given += ["0.005", "--rounds", "3", "--seed", "7", "--format", "mbox", "--record", "--json"]
    assert_same_inside(command, "workload", given, tmp_path)
    given = ["--server", "exim", "--on", "jfs", "--rate", "max", "--beside", "cp -r a b"]
    given += ["--package", "rsync", "--package", "borgbackup", "--elsewhere", "--keep-names"]
    assert_same_inside(mailserver, "mailserver", given, tmp_path)
    given = ["--server", "exim", "--on", "jfs", "--rate", "0.01", "--think", "0.000001", "-q"]
    assert_same_inside(mailserver, "mailserver", given, tmp_path)


def assert_same_inside(verb, name, given, output):
    outside = [*given, "--vm", "6.1", "--memory", "3000", "--icount", "--force", "--work", "/w"]
    context = verb.make_context(name, outside)
    with context:
        words = words_of(context, context.params, output)
    assert words[:2] == ["lab", name]
    inside = verb.make_context(name, words[2:]).params
    of_machine = {"vm": None, "memory_mib": 2048, "icount": False, "force": False}
    assert inside == context.params | of_machine | {"work": SCRATCH, "output": output}


def test_clocks_of_instructions_are_those_of_machines():
    assert "add --vm 6.1" in said_of("fsbench", "--on", "ext4", "--scale", "1", "--icount")


def test_a_directory_of_this_machine_is_not_taken_into_another(tmp_path):
    on = ("--on", f"dir:{tmp_path}", "--scale", "0.01", "--vm", "6.1")
    assert "is on this machine" in said_of("fsbench", *on)


def test_figures_of_daemons_are_of_a_minute():
    laps = {"smtp": {"n": 30}, "pop": {"n": 10}}
    ticks = {"busy_ticks": 30, "iowait_ticks": 50, "all_ticks": 100}
    found = figures_of({"laps": laps, "counts": {"smtp_bytes": 9e6, **ticks}}, 120.0)
    assert (found["smtp_per_min"], found["pop_per_min"]) == (15, 5)
    assert (found["smtp_mb_per_min"], found["pop_errors_per_min"]) == (4.5, 0)
    assert (found["cpu_pct"], found["iowait_pct"]) == (30, 50)
