"""The cost of a directory: its path, size and index."""

import pytest

from spoolscope.analysis.explain import explain
from spoolscope.analysis.lookups import LookupCost, worth_saying
from spoolscope.analysis.study import study
from spoolscope.report.inputs import Inputs
from spoolscope.report.sections import files

pytestmark = pytest.mark.slow

LOOKUP = "io_schedule < bit_wait_io < __ext4_find_entry < ext4_lookup"
LOCKED = "rwsem_down_write_slowpath < filename_create < do_linkat"
SPOOL = {"mount": "/spool", "fstype": "ext4", "options": "rw", "source": "x", "dev": 1,
         "size_bytes": 1}  # fmt: skip


def name(builder, path, **columns):
    builder.add("tree", path_id=builder.path_id(path), **columns)


@pytest.mark.parametrize(
    ("spool", "index"),
    [
        (SPOOL | {"features": ["has_journal", "dir_index"]}, "hash"),
        (SPOOL | {"features": ["has_journal"]}, "none"),
        (SPOOL, "unknown"),
        (SPOOL | {"features": None}, "unknown"),
        (SPOOL | {"fstype": "xfs", "features": None}, "tree"),
    ],
)
def test_size_and_index_are_said(builder, spool, index):
    for n in range(1200):
        name(builder, f"box/new/{n}")
    name(builder, "box/cur/1")
    builder.call("stat", 0, 1000, ((LOOKUP, 3000),), path="box/new/7")
    builder.call("unlink", 10_000, 6000, path="box/new/8")
    (cost,) = explain(builder.write(spools=[spool])).lookups
    assert (cost.path, cost.entries, cost.index) == ("box/new", 1200, index)
    assert (cost.lookup_io_ns, cost.dir_lock_ns, cost.n) == (3000, 0, 1)
    assert cost.share == 0.3
    without = " and without dir_index" if index == "none" else ""
    assert worth_saying([cost]) == [
        f"The directory box/new with 1,200 names{without} costs 30 % of the time in calls by "
        "finding names in it. Mostly it waits for its blocks, 100 % for 7."
    ]


def test_names_made_meanwhile_count(builder):
    name(builder, "box/new/1")
    builder.call("stat", 0, 10, ((LOOKUP, 3000),), path="box/new/1")
    for n in range(5):
        builder.call("openat", 10_000 + n, 10, path=f"box/tmp/{n}", flags=0o300)
        builder.call("link", 20_000 + n, 10, path=f"box/tmp/{n}",
                     path2_id=builder.path_id(f"box/new/n{n}"))  # fmt: skip
    builder.call("unlink", 30_000, 10, path="box/new/1")
    (cost,) = explain(builder.write()).lookups
    assert cost.entries == 1 + 5 - 1


def test_a_file_replaced_again_and_again_is_one_name(builder):
    name(builder, "box/index")
    builder.call("stat", 0, 10, ((LOOKUP, 3000),), path="box/index")
    for n in range(50):
        at = 10_000 + 100 * n
        builder.call("openat", at, 10, path="box/index.tmp", flags=0o301)
        builder.call("rename", at + 50, 10, path="box/index.tmp",
                     path2_id=builder.path_id("box/index"))  # fmt: skip
    (cost,) = explain(builder.write()).lookups
    assert cost.entries == 1


@pytest.mark.parametrize(
    ("call", "columns"), [("openat", {"flags": 0o101}), ("creat", {}), ("mkdir", {})]
)
def test_every_call_that_makes_a_name_counts_once(builder, call, columns):
    name(builder, "box/0")
    builder.call("stat", 0, 10, ((LOOKUP, 3000),), path="box/0")
    for n in range(2, 8):  # each twice
        builder.call(call, 10_000 + n, 10, path=f"box/{n // 2}", **columns)
    builder.call("openat", 20_000, 10, path="box/opened", flags=0o1)
    (cost,) = explain(builder.write()).lookups
    assert cost.entries == 1 + 3


def test_names_that_are_exchanged_both_stay(builder):
    for n in ("a", "b", "c"):
        name(builder, f"box/{n}")
    builder.call("stat", 0, 10, ((LOOKUP, 3000),), path="box/a")
    builder.call("renameat2", 10_000, 10, path="box/a", path2_id=builder.path_id("box/b"), flags=2)
    builder.call("openat", 20_000, 10, path="box/d", flags=0o101)
    (cost,) = explain(builder.write()).lookups
    assert cost.entries == 4


def test_directories_of_two_spools_with_one_path_are_apart(builder):
    spools = [SPOOL | {"mount": "/a", "features": ["has_journal"]},
              SPOOL | {"mount": "/b", "fstype": "xfs", "features": None}]  # fmt: skip
    for number, n in ((0, 5), (1, 60)):
        for k in range(n):
            at = 1000 * number + k
            builder.add("paths", path_id=at + 100, path=f"in/{k}", kind="spool", spool=number)
            name_ = builder.add("tree", path_id=at + 100)
            assert name_
        builder.call("stat", number * 10**6, 1000, ((LOOKUP, 3000 + number),),
                     path_id=1000 * number + 100, tid=100 + number)  # fmt: skip
    trace = builder.write(spools=spools)
    found = study(trace)
    costs = {c.path: (c.entries, c.index, c.lookup_io_ns) for c in found.explanation.lookups}
    assert costs == {"/a/in": (5, "none", 3000), "/b/in": (60, "tree", 3001)}
    assert {d.path: (d.entries, d.n) for d in found.directories} == {
        "/a/in": (5, 1), "/b/in": (60, 1),
    }  # fmt: skip
    assert {b.name: b.n for b in found.explanation.callers.by_mailbox} == {"/a/in": 1, "/b/in": 1}


def test_the_names_of_a_directory_that_costs_little_are_counted_too(builder):
    for n in range(30):
        name(builder, f"box/new/{n}")
    builder.call("stat", 0, 10, ((LOOKUP, 10),), path="box/new/7")
    builder.call("fsync", 100, 1_000_000)
    (cost,) = explain(builder.write()).lookups
    assert (cost.entries, worth_saying([cost])) == (30, [])


def test_a_lock_belongs_to_the_directory_that_was_locked(builder):
    name(builder, "other/busy", ino=44, dev=1, mode=0o40755)
    builder.call("link", 0, 10, ((LOCKED, 500),), tid=2, path="box/tmp/1")
    builder.lock_wait(2, -10, 520, "rwsem_write", dev=1, ino=44, owner_pid=1, owner_tid=1)
    builder.call("link", 5000, 10, ((LOCKED, 300),), tid=2, path="box/tmp/2")
    costs = {c.path: c.dir_lock_ns for c in explain(builder.write()).lookups}
    assert costs == {"other/busy": 500, "box/tmp": 300}


def test_the_directory_that_was_searched_is_the_recorded_one(builder):
    builder.call("stat", 0, 10, ((LOOKUP, 500),), path="a/b/c/file")
    builder.rows["segments"][-1]["dir_id"] = builder.path_id("a")
    (cost,) = explain(builder.write()).lookups
    assert (cost.path, cost.entries) == ("a", None)
    assert (cost.name, cost.name_ns, cost.reads_for) == (None, 0, "")


def searched(builder, at_ns, ns, path, directory, looked_up, **columns):
    builder.call("openat", at_ns, 10, ((LOOKUP, ns),), path=path, **columns)
    ids = {"dir_id": builder.path_id(directory), "name_id": builder.path_id(looked_up)}
    builder.rows["segments"][-1] |= ids


def test_the_name_that_most_reads_were_for_is_said(builder):
    searched(builder, 0, 930, "box/cur/1", "box", "box/cur")
    # The call failed further down the path: that shows nothing about the name here.
    searched(builder, 10_000, 70, "box/new/2", "box", "box/new", errno=2)
    (cost,) = explain(builder.write()).lookups
    assert (cost.path, cost.name, cost.name_ns, cost.absent_ns) == ("box", "cur", 930, 0)
    assert cost.sentence.endswith(" Mostly it waits for its blocks, 93 % for cur.")


def test_names_that_were_not_there_are_told_from_those_that_were(builder):
    for n in range(4):
        searched(builder, n * 1000, 200, f"box/lock{n}", "box", f"box/lock{n}", errno=2)
    searched(builder, 10_000, 100, "box/made", "box", "box/made", flags=0o301)
    searched(builder, 20_000, 100, "box/opened", "box", "box/opened", flags=0o101)
    (cost,) = explain(builder.write()).lookups
    assert (cost.lookup_io_ns, cost.absent_ns, cost.name_ns) == (1000, 900, 200)
    assert cost.reads_for == "90 % for names that were not there"


def test_without_a_walk_the_name_is_that_of_the_call(builder):
    builder.call("unlink", 0, 10, ((LOOKUP, 500),), path="box/gone", errno=2)
    (cost,) = explain(builder.write()).lookups
    assert (cost.path, cost.name, cost.absent_ns) == ("box", "gone", 500)


def test_what_few_samples_alone_tell_is_left_out_of_the_report(builder):
    builder.call("stat", 0, 1000, path="box/new/7")
    found = study(builder.write())
    found.explanation.lookups[:] = [
        LookupCost("measured", None, "hash", 3000, 0, 10**7, 2, 0.3, samples=1),
        LookupCost("sampled", None, "hash", 0, 0, 5 * 10**7, 5, 0.2, samples=5),
        LookupCost("guessed", None, "hash", 0, 0, 10**7, 1, 0.1, samples=1),
    ]
    blocks = files.make(Inputs({"one": found})).blocks
    (table,) = [block for block in blocks if block.title.startswith("Directory lookups")]
    assert [row[1] for row in table.rows] == ["measured", "sampled"]
    assert table.caption.endswith("Left out: 1 known from fewer than 5 samples only.")


def test_directories_of_known_size_are_drawn_by_it(builder):
    builder.call("stat", 0, 1000, path="box/new/7")
    found = study(builder.write())
    found.explanation.lookups[:] = [
        LookupCost("large", 90_000, "none", 4000, 500, 0, 2, 0.3),
        LookupCost("small", 7, "none", 30, 0, 0, 2, 0.02),
        LookupCost("unknown", None, "none", 10, 0, 0, 1, 0.01),
    ]
    (figure,) = [block for block in files.make(Inputs({"one": found})).blocks
                 if block.title.startswith("Directory lookups")]  # fmt: skip
    (points,) = figure.plot.data
    assert list(zip(points.x, points.y, strict=True)) == [(90_000, 4500), (7, 30)]
    assert [row[1] for row in figure.table.rows] == ["large", "small", "unknown"]
    assert figure.finding.startswith("The directory large with 90,000 names")
    assert figure.caption.startswith("2 directories. The directory small with 7 names")
