"""First causes of divergences, and results in which filesystems may differ."""

import errno

import numpy as np
import pytest

from spoolscope.replay.differences import Types, known_differences
from spoolscope.replay.divergences import causes, judge, ties_of
from spoolscope.replay.engine import Engine
from spoolscope.replay.outcomes import DIVERGED, OF_FILESYSTEM, SAME, read_plan
from spoolscope.replay.plan import build
from spoolscope.traces.flat import DTYPES
from spoolscope.traces.trace import Trace

EXT4, XFS = Types(frozenset(["ext4"]), "ext4"), Types(frozenset(["ext4"]), "xfs")
BAD_FD, ERRNO, BYTES = 4, 1, 2
REG, DIR = 0o100600, 0o040700


@pytest.fixture
def judged(script, tmp_path):
    """Return ``judged(types, {call: (ret, reason)})``: verdicts, and first causes as JSON."""

    def judge_(types, wrong):
        trace = Trace.open(script.write(tmp_path / "trace"))
        build(trace, tmp_path / "plan")
        plan = read_plan(tmp_path / "plan")
        outcomes = np.zeros(len(plan.ops), DTYPES["outcome"])
        outcomes["verdict"], outcomes["ret"] = SAME, plan.ops["ret"]
        outcomes["issue_ns"] = plan.ops["start_ns"]
        row_of = {int(call): at for at, call in enumerate(plan.ops["call"])}
        for call, (ret, reason) in wrong.items():
            at = row_of[call]
            outcomes["ret"][at], outcomes["reason"][at] = ret, reason
            outcomes["verdict"][at] = DIVERGED
        file = tmp_path / "outcomes"
        outcomes.tofile(file)
        found = judge(plan, outcomes, types, ties_of(Engine(tmp_path / "plan"), outcomes, file))
        verdicts = {call: int(outcomes["verdict"][row_of[call]]) for call in wrong}
        return verdicts, causes(plan, outcomes, found, types, trace)

    return judge_


def test_what_follows_is_told_from_what_came_first(script, judged):
    script.entry("d", ino=2, mode=DIR)
    script.call(10, 1, "openat", "d/a", ret=3, flags=0o100, ino=7, obj_mode=REG)
    script.call(10, 2, "write", "d/a", ret=9, base=0, fd=3, size=9, ino=7, obj_mode=REG)
    script.fork(10, 11, 3)
    script.call(11, 4, "read", None, ret=9, base=0, fd=3, size=9)  # inherited
    script.call(10, 5, "rmdir", "d", ret=-39)  # full because of d/a
    script.call(12, 6, "stat", "elsewhere", ret=-2)
    script.call(12, 7, "openat", "other", ret=3, flags=0, ino=9, obj_mode=REG)
    script.call(12, 8, "read", None, ret=9, base=0, fd=3, size=9)  # the same number, another file
    bad = (-errno.ENOSYS, BAD_FD)
    _, found = judged(EXT4, {0: (-28, ERRNO), 1: bad, 2: bad, 3: (0, ERRNO), 4: (0, ERRNO),
                             6: (5, BYTES)})  # fmt: skip
    kinds = {root["cause"]: (root["n"], root["followed"]) for root in found["roots"]}
    assert kinds == {
        "openat: ENOSPC instead of success": (1, 3),
        "stat: success instead of ENOENT": (1, 0),
        "read: fewer bytes instead of all bytes": (1, 0),
    }
    assert (found["first_causes"], found["followed"]) == (3, 3)
    first = found["roots"][0]
    assert (first["path_class"], first["filesystem"], first["class"]) == ("other", "ext4", None)
    assert (first["example"]["thread_seq"], first["example"]["path"]) == ("10:0", "d/a")


def test_a_directory_that_was_not_made_explains_all_below(script, judged):
    script.call(10, 1, "mkdir", "box", mode=0o700)
    script.call(11, 2, "mkdir", "box/cur", mode=0o700)
    script.call(12, 3, "stat", "box/cur/x", ret=0, obj_mode=REG)
    script.call(12, 4, "stat", "boxes", ret=0, obj_mode=DIR)
    wrong = dict.fromkeys(range(4), (-2, ERRNO))
    _, found = judged(EXT4, wrong)
    assert [(r["syscall"], r["n"], r["followed"]) for r in found["roots"]] == [
        ("mkdir", 1, 2), ("stat", 1, 0)
    ]  # fmt: skip


@pytest.mark.parametrize("types", [EXT4, XFS])
def test_a_documented_difference_is_of_the_filesystem_between_types_only(script, judged, types):
    script.call(10, 1, "rename", "a", ret=-errno.ENOTEMPTY, path2="b")
    script.call(10, 2, "rename", "a", ret=-errno.ENOENT, path2="b")  # in no class
    verdicts, found = judged(types, {0: (-errno.EEXIST, ERRNO), 1: (-errno.EEXIST, ERRNO)})
    allowed = types is XFS
    assert verdicts == {0: OF_FILESYSTEM if allowed else DIVERGED, 1: DIVERGED}
    name = "rename onto a directory that is not empty"
    assert found["of_filesystem"] == ({name: 1} if allowed else {})
    assert found["followed"] == (0 if allowed else 1)  # a refused rename leaves nothing behind


def test_what_follows_from_the_filesystem_is_of_it_too(script, judged):
    script.call(10, 1, "symlink", "s", path2="t" * 1024, kind2="text")
    script.call(10, 2, "lstat", "s", obj_mode=0o120777)
    script.call(10, 3, "symlink", "t", path2="t" * 1023, kind2="text")
    long = (-errno.ENAMETOOLONG, ERRNO)
    verdicts, found = judged(XFS, {0: long, 1: (-2, ERRNO), 2: long})
    assert verdicts == {0: OF_FILESYSTEM, 1: OF_FILESYSTEM, 2: DIVERGED}
    assert found["of_filesystem"] == {"target of a symlink over 1023 bytes": 1}


def test_every_class_has_a_source_and_two_answers():
    for difference in known_differences():
        assert difference.source
        assert len(difference.results) == 2
        before, after = difference.results.values()
        assert not before & after, difference.name
