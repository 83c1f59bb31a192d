"""Rules of insights: each has all fields, and fires where it should, not in similar cases."""

import math

import pytest
from click.testing import CliRunner
from insight_scenarios import PAIRS

from spoolscope.analysis.explain import explain
from spoolscope.analysis.insight_stages import INSIGHT_STAGES
from spoolscope.analysis.insights import OF, apply, insight_rules, values_of
from spoolscope.analysis.stages import begin
from spoolscope.cli.explain import command, insight_lines
from spoolscope.report.sections import SECTIONS
from spoolscope.traces.native import source_root
from spoolscope.traces.trace import Trace

pytestmark = pytest.mark.slow

RULES = {rule.kind: rule for rule in insight_rules()}
SAMPLES = sorted(path.parent for path in (source_root() / "traces" / "samples").glob("*/meta.json"))
FIRST_LINES = 8
EVIDENCE = next(stage for stage in INSIGHT_STAGES if stage.name == "evidence")


def found_by(rule, builder, scene):
    """Return a rule's insights; only rules on facts from Python need a whole explanation."""
    scene(builder)
    trace = Trace.open(builder.write())
    if set(EVIDENCE.tables) & set(rule.needs):
        return [insight for insight in explain(trace).insights if insight.kind == rule.kind]
    with trace.connect() as con:
        return apply(begin(con, trace.meta), rule)


def test_there_are_enough_rules_and_each_is_proven():
    assert len(RULES) == len(insight_rules()) >= 25
    assert PAIRS.keys() == RULES.keys()
    codes = [rule.code for rule in insight_rules()]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_a_rule_has_all_that_is_shown_of_it(rule, builder):
    for words in (rule.title, rule.culprit, rule.mechanism, rule.remedy, rule.price):
        assert words.strip()
    assert rule.remedy.endswith(".")
    assert rule.price.endswith(".")
    assert not rule.mechanism.endswith(".")
    assert rule.of in OF
    assert 0 <= rule.least_share < 1
    assert rule.section in {section.anchor for section in SECTIONS}
    builder.call("read", 0)
    with Trace.open(builder.write()).connect() as con:
        work = begin(con)
        work.make(*rule.needs)
        columns = {row[0] for row in con.execute(f"DESCRIBE {rule.sql}").fetchall()}
    assert {"at_stake_ns", "of_ns"} <= columns
    for words in (rule.culprit, rule.mechanism, rule.remedy, rule.price):
        assert values_of(words) <= columns


@pytest.mark.parametrize("kind", RULES)
def test_a_rule_fires_and_not_on_what_looks_alike(kind, new_builder):
    pair, rule = PAIRS[kind], RULES[kind]
    assert not found_by(rule, new_builder("alike"), pair.alike)
    found = found_by(rule, new_builder("fires"), pair.fires)
    assert found
    for insight in found:
        assert 0 <= insight.share <= 1
        assert insight.severity in ("high", "medium", "low")
        assert "None" not in insight.text
        assert "{" not in insight.text + insight.price
        lines = insight_lines(insight)
        assert len(lines) <= FIRST_LINES
        assert max(map(len, lines)) <= 80


def test_explain_begins_with_culprit_mechanism_remedy_and_price():
    found = explain(SAMPLES[0])
    lines = CliRunner().invoke(command, [str(SAMPLES[0])]).stdout.splitlines()
    first = found.insights[0]
    said = " ".join(" ".join(lines[:FIRST_LINES]).split())
    assert f"{first.culprit} {first.mechanism} ({first.stake})." in said
    assert f"Try: {first.remedy}" in said
    assert f"Price: {first.price}" in said


def test_one_wait_of_one_process_is_said_in_the_singular(builder):
    waited = f"{'schedule < locks_lock_inode_wait < fcntl_setlk'} < do_fcntl"
    builder.call("fcntl", 0, 1000, ((waited, 30_000_000),), path="u/index.lock")
    (found,) = [one for one in explain(builder.write()).insights if one.kind == "file_lock"]
    assert found.text.startswith("A program that is not known held the lock of u/index.lock, ")
    assert "for which 1 process waited 30.0 ms in 1 call; meanwhile" in found.text


def test_pauses_of_log_commits_are_not_said_to_be_commits_before(builder):
    pause = "schedule < schedule_timeout < btrfs_sync_log < btrfs_sync_file"
    join = "schedule < wait_log_commit < btrfs_sync_log < btrfs_sync_file"
    builder.call("fsync", 0, 10, ((pause, 90_000_000),), tid=1)
    builder.call("fsync", 10, 10, ((join, 90_000_000),), tid=2)
    builder.commit(0, 91_000_000, "btrfs_log_commit", tid=1, logging_ns=100)
    found = [one for one in explain(builder.write()).insights if one.kind == "log_tree_queue"]
    (evidence,) = [one.evidence for one in found]
    assert evidence["behind_ns"] == 0
    assert evidence["pause_ns"] == found[0].at_stake_ns > 170_000_000
    assert "0 of it to commits before theirs, 180 ms to pauses" in found[0].text


def test_nothing_is_found_in_a_healthy_trace(builder):
    builder.call("read", 0, 1_000_000)
    assert explain(builder.write()).insights == []


def test_insights_are_sorted_by_the_time_at_stake(builder):
    PAIRS["full_journal"].fires(builder)
    PAIRS["frozen_filesystem"].fires(builder)
    PAIRS["frozen_filesystem"].fires(builder)
    found = explain(builder.write())
    assert [i.kind for i in found.insights][:2] == ["frozen_filesystem", "full_journal"]
    told = found.to_json()
    assert told["insights"][0]["code"] == "P01"
    assert told["insights"][0]["evidence"]["of_ns"] == found.filesystem_ns


@pytest.mark.parametrize("sample", SAMPLES, ids=[sample.name for sample in SAMPLES])
def test_every_rule_runs_on_every_sample(sample):
    with (trace := Trace.open(sample)).connect() as con:
        work = begin(con, trace.meta)
        for rule in insight_rules():
            for insight in apply(work, rule):
                assert math.isfinite(insight.share)
