"""Bad and partial input is named in plain words, and the answer is marked as partial."""

import pytest
from click.testing import CliRunner

from spoolscope.analysis.explain import explain
from spoolscope.cli.main import group
from spoolscope.traces.errors import INCOMPLETE, SpoolscopeError

pytestmark = pytest.mark.slow

COMMIT = "schedule < jbd2_log_wait_commit < ext4_sync_file"
STRANGE = "schedule < a_function_of_another_kernel < do_fsync"


def run(*arguments):
    return CliRunner().invoke(group, [str(a) for a in arguments], standalone_mode=False)


def test_a_whole_trace_has_no_remarks(builder):
    builder.call("fsync", 0, 10, ((COMMIT, 1000),))
    assert explain(builder.write(), blame=True).remarks == []


def test_a_trace_without_segments_keeps_its_sums(builder):
    builder.call("fsync", 0, 10, ((None, 1000),))
    found = explain(builder.write(tier="T0"), blame=True)
    assert found.split.sum_error_ns == 0
    assert found.causes == {"cpu": 10, "unexplained": 1000}
    assert any("100.0 % of blocked time has no segment" in said for said in found.remarks)
    assert any("Tier T0" in said for said in found.remarks)
    assert run("explain", builder.path).return_value == INCOMPLETE


def test_losses_of_every_kind_are_said(builder):
    builder.call("fsync", 0, 10)
    builder.add("losses", kind="journal", n=12)
    builder.add("losses", kind="wait", n=3)
    builder.add("losses", kind="syscall", pid=1, tid=1, first_seq=1, last_seq=4, n=4)
    (first, second, third) = explain(builder.write(lost=4, complete=False)).remarks
    assert first.startswith("4 records were lost")
    assert "journal 12, wait 3" in second
    assert "complete" in third


@pytest.mark.parametrize(("nameless", "said"), [(1, False), (2, True)])
def test_calls_without_names_are_said(nameless, said, builder):
    for seq in range(100):
        builder.call("fsync", seq * 100, 10)
    found = explain(builder.write(paths_unresolved=nameless))
    assert found.remarks == (
        [
            f"The names of {nameless} of 100 calls are not known: they are in no sum by directory, "
            "mailbox or file, and a replay cannot make those calls that need them."
        ]
        if said
        else []
    )


def test_stacks_without_symbols_are_said(builder):
    builder.call("fsync", 0, 10, (("0xffffffff81000000 < 0xffffffff82000000", 1000),))
    found = explain(builder.write())
    assert found.causes["unexplained"] == 1000
    assert any("stacks without names of functions" in said for said in found.remarks)


@pytest.mark.parametrize(
    ("kernel", "frames", "said"),
    [
        ("4.19.0-27-amd64", STRANGE, True),
        ("4.19.0-27-amd64", COMMIT, False),
        ("6.18.44", STRANGE, False),
        ("not a version", STRANGE, False),
    ],
)
def test_a_kernel_that_the_rules_were_not_written_for(builder, kernel, frames, said):
    builder.call("fsync", 0, 10, ((frames, 1000),))
    found = explain(builder.write(kernel=kernel)).remarks
    assert any("4.19" in text and "--unknown" in text for text in found) == said


def test_the_blame_says_what_was_not_recorded(builder):
    builder.call("fsync", 0, 10, ((COMMIT, 1000),))
    missing = {"on_contention": "no such tracepoint", "on_btrfs_sync_file": "no btrfs"}
    programs = {"attached": [], "missing": missing, "unloaded": ["on_btrfs_sync_file"]}
    path = builder.write(programs=programs)
    (said,) = explain(path, blame=True).remarks
    assert "which thread held a lock" in said
    assert "btrfs" not in said
    assert explain(path).remarks == []


def test_rules_that_do_not_parse_are_refused_with_their_place(builder, tmp_path):
    builder.call("fsync", 0, 10)
    rules = tmp_path / "mine.toml"
    rules.write_text('rules = [ { cause = "flush" stack = "x" } ]')
    result = run("explain", builder.write(), "--rules", rules)
    assert isinstance(result.exception, SpoolscopeError)
    assert "mine.toml" in str(result.exception)
