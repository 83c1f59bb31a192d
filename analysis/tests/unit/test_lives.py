"""The lives of filesystems are shown as medians with ranges; unknown values are left out."""

import pytest

from spoolscope.analysis.compare import compare
from spoolscope.analysis.lives import MEASURES, Spread
from spoolscope.cli.compare import text
from spoolscope.report.build import replay_page
from spoolscope.report.page import Ranged

MS = 1_000_000
N = 100


def life(scale, *, built=True, clean=True):
    steps = {"check": 30, "remove": 200, "umount": 50, "mount_filled": 4}
    steps |= {"mkfs": 5, "mount": 2, "fill": 800} if built else {"mount_copied": 20}
    size = {"total_bytes": 10 << 30, "available_bytes": 9 << 30}
    found = {
        "steps": {
            name: {"ns": scale * ms * MS, "cpu_ns": ms * MS, "kernel_cpu_ns": MS}
            for name, ms in steps.items()
        },
        "device": {"replay": {"written_bytes": scale * (8 << 20)}},
        "mail_bytes": {"fill": 1 << 30, "replay": 1 << 20},
        "capacity": {"after_removal": size} | ({"after_mkfs": size} if built else {}),
        "dirty": {"before_bytes": 1 << 20, "peak_bytes": 300 << 20},
        "check": {
            "words": "e2fsck -f -n",
            "clean": clean,
            "said": [] if clean else ["bad inode 12"],
        },
    }  # fmt: skip
    return {"life": found}


@pytest.fixture
def trace(builder):
    for n in range(N):
        builder.call("fsync", n * 50 * MS, oncpu_ns=MS)
    return builder.write()


def replayed(new_replay, trace, **second):
    replay = new_replay("out", trace, N, rounds=3)
    for round_, scale in enumerate((1, 4, 2)):
        replay.run("ext4", [MS] * N, round_, **life(scale, built=not round_))
        replay.run("xfs", [MS] * N, round_, **second)
    return replay.write()


def test_a_number_is_the_median_of_the_runs_that_have_it(new_replay, trace):
    ext4 = compare([replayed(new_replay, trace)]).candidates["ext4"]
    assert ext4.life["check_ns"] == Spread(60 * MS, 30 * MS, 120 * MS, 3)
    assert ext4.life["mkfs_ns"] == Spread(5 * MS, 5 * MS, 5 * MS, 1)
    assert ext4.life["remove_cpu_ns"].median == 201 * MS  # programs and kernel threads
    assert ext4.life["replay_writes"] == Spread(16, 8, 32, 3)
    assert "fill_writes" not in ext4.life  # not counted
    assert MEASURES["dirty_bytes"].shown(ext4.life["dirty_bytes"].median) == "300 MiB"
    assert ext4.damage is None


def test_what_an_older_replay_does_not_know_is_left_blank(new_replay, trace):
    out = replayed(new_replay, trace)
    lines = list(text(compare([out])))
    (row,) = [line for line in lines if line.startswith("xfs") and line.endswith("-      -")]
    assert set(row.split()[1:]) == {"-"}
    (row,) = [line for line in lines if "120ms" in line or "60.0ms" in line]
    assert row.split() == ["ext4", "5.00ms", "800ms", "8.00ms", "100ms", "60.0ms", "400ms",
                           "9.00G", "16.0x", "300M"]  # fmt: skip


def test_damage_weakens_what_is_said(new_replay, trace):
    found = compare([replayed(new_replay, trace, **life(1, clean=False))])
    said = "xfs: e2fsck -f -n found errors after 3 of 3 runs: bad inode 12."
    assert said in found.verdict.problems


def test_the_report_has_a_row_for_each_candidate(new_replay, trace):
    out = replayed(new_replay, trace, **life(1))
    page = replay_page([out], lambda _what, _done: None)
    (section,) = [section for section in page.sections if section.key == "life"]
    times, cpu, space = section.blocks
    assert [row[0] for row in times.rows] == list(compare([out]).candidates)
    cells = dict(zip(times.heads, next(r for r in times.rows if r[0] == "ext4"), strict=True))
    assert cells[">check"] == Ranged("60.0 ms", "30.0 ms to 120 ms")
    assert (cells[">n, new"], cells[">n"]) == ("1", "3")
    assert cells[">fill"] == "800 ms"
    assert ">fill" in cpu.heads
    assert ">usable, new" in space.heads
    assert ">data" not in space.heads  # not recorded
