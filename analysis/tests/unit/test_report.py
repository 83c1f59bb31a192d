"""The report as a file: self-contained, of limited size, with remarks on missing data."""

import errno
import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from spoolscope.analysis.compare import compare
from spoolscope.report.build import build, replay_page, trace_page
from spoolscope.report.first_screen import replay_hero
from spoolscope.report.sections.environment import _made_on, environment_rows
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.results import Disk, RunResult

pytestmark = pytest.mark.slow

MS = 1_000_000
N = 300
WAIT = "schedule < jbd2_log_wait_commit < ext4_sync_file"
LOCK = "schedule < locks_lock_inode_wait < __do_sys_flock"


@pytest.fixture
def trace(builder):
    for n in range(N):
        waits = ((WAIT, 2 * MS),) if n % 3 == 0 else ()
        builder.call("fsync" if waits else "openat", n * 20 * MS, 1000, waits, path=f"u/tmp/{n}")
    builder.call("flock", 0, 1000, ((LOCK, 10**11),), tid=7, path="queue/pid/unix.smtp")
    builder.commit(0, MS)
    return builder.write()


@pytest.fixture
def replay(trace, new_replay):
    replay = new_replay("out", trace, N + 1)
    for name, scale in (("ext4", 1), ("xfs", 2)):
        replay.run(name, [scale * MS, 10**9, *[scale * MS] * (N - 1)])
    return replay.write()


def test_report_of_a_trace_is_one_file_that_fetches_nothing(trace, tmp_path):
    report = build([trace], tmp_path / "r.html")
    html = report.path.read_text().replace("\u00a0", " ")
    assert report.bytes == report.path.stat().st_size < 8_000_000
    own = html.replace(re.search(r"<script>(?s:.*?)</script>", html).group(), "")
    assert not re.search(r"""(src|href)\s*=\s*["']?\s*(https?:)?//""", own)
    assert "default-src 'none'" in own
    assert report.page.sure in html


def test_waits_for_other_programs_do_not_make_the_headline(trace):
    page = trace_page(trace)
    assert page.headline == "> 99 % of the time is fsync/fdatasync waiting for journal commits."
    assert "100 s waiting for other programs: file locks, vfork; left out here" in page.sure
    table = next(f.table for f in page.figures if f.key == "hero")
    assert ">file lock" in table.heads


def test_every_figure_has_caption_table_and_finding(replay):
    for figure in replay_page([replay], lambda *_: None).figures:
        assert re.search(r"\d", figure.caption), figure.key
        assert figure.finding
        assert figure.table.rows
        assert all(len(row) == len(figure.table.heads) for row in figure.table.rows)


def test_a_report_says_what_replays_were_asked_for(replay):
    """Check the order option: without an order results differ anyway."""
    header = json.loads((replay / "replay.json").read_text())
    for run in header["runs"]:
        run |= {"order": "none", "cache": "warm"}
    (replay / "replay.json").write_text(json.dumps(header | {"pace": "afap"}))
    rows = environment_rows(compare([replay]))
    assert ["order", "none"] in rows
    assert ["options", "--pace afap --order none --cache warm"] in rows


def test_a_report_that_cannot_be_written_leaves_nothing(trace, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "no space")

    (tmp_path / "made").mkdir()
    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(OSError, match="no space"):
        build([trace], tmp_path / "made" / "r.html")
    assert list((tmp_path / "made").iterdir()) == []


def test_tables_are_rectangular(trace, replay):
    for page in (trace_page(trace), replay_page([replay], lambda *_: None)):
        for block in (b for section in page.sections for b in section.blocks):
            rows = getattr(block, "rows", [])
            assert all(len(row) == len(block.heads) for row in rows), block.title


def test_first_screen_of_a_replay_has_verdict_certainty_and_fidelity(replay):
    page = replay_page([replay], lambda *_: None)
    assert page.badge == "indicative"
    assert page.headline.startswith("ext4 looks faster than xfs: 50 % less time")
    assert {fact.label for fact in page.facts} >= {"executed", "other result", "late, p99"}
    assert page.next_command
    assert "The runs were not recorded: causes are left out." in page.problems
    assert "Caches: as in the recording" in page.sure
    assert "Replay of its own filesystem: ext4 took" in page.sure
    assert "not known" in page.hero.caption
    assert page.hero.caption.startswith("300 calls, without file locking, were executed")


def test_bars_say_by_what_they_are_shorter_than_the_times_above(replay):
    found = compare([replay])
    caption = replay_hero(found).caption
    assert "replayer's clock" not in caption
    causes = {"cpu": 200.0 * MS}
    known = {name: replace(one, causes=causes) for name, one in found.candidates.items()}
    caption = replay_hero(replace(found, candidates=known)).caption
    assert "(ext4 300 ms; xfs 600 ms) are by the replayer's clock" in caption


def test_one_candidate_without_causes_has_a_report(trace, new_replay, tmp_path):
    replay = new_replay("alone", trace, N + 1)
    replay.run("dir:/srv/spool", [MS] * (N + 1))
    report = build([replay.write()], tmp_path / "r.html")
    assert report.page.badge == "alone"
    assert report.page.headline == "dir:/srv/spool spent 300 ms in 300 calls."
    assert report.page.sections[0].key == "latency"


def test_a_report_of_an_import_says_what_was_not_recorded(builder):
    builder.call("fsync", 0, 0, ((None, MS),))
    page = trace_page(builder.write(imported={"from": "strace"}, tier="T0"))
    facts = {fact.label: fact.value for fact in page.facts}
    assert (facts["commits"], facts["causes"]) == ("not recorded", "not recorded")
    assert "Only the length of each call was recorded" in page.hero.caption
    assert "split exactly" not in " ".join(figure.caption for figure in page.figures)
    assert "exactly" not in page.sure
    assert "commits" not in {section.key for section in page.sections}


def test_losses_are_stated(builder):
    builder.call("fsync", 0, 1000, ((None, MS),))
    page = trace_page(builder.write(complete=False, lost=5))
    assert page.badge == "partial"
    assert len(page.problems) >= 3
    assert any("5 records were lost" in problem for problem in page.problems)


def test_names_cannot_break_out_of_the_page(builder, tmp_path):
    evil = "u/cur/</script><script>alert(1)</script>"
    for n in range(30):
        builder.call("openat", n, 1000, path=evil, comm="<b>x</b>")
    html = build([builder.write()], tmp_path / "r.html").path.read_text()
    assert "<script>alert" not in html
    assert "<b>x</b>" not in html
    for data in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', html, re.DOTALL):
        json.loads(data)


def test_an_empty_trace_has_a_report(builder, tmp_path):
    report = build([builder.write()], tmp_path / "r.html")
    assert report.page.headline == "No time was spent in calls."


def test_inputs_that_do_not_belong_together_are_refused(trace, replay, tmp_path):
    with pytest.raises(SpoolscopeError) as caught:
        build([trace, replay], tmp_path / "r.html")
    assert caught.value.exit_code == 2
    assert not (tmp_path / "r.html").exists()


def test_a_report_says_what_no_call_shows(builder):
    calls = {"comm": "php-fpm", "pid": 7, "cgroup": "/a/web.service", "calls": 5}
    trace = builder.write(
        compat_calls=1234, calls_unjudged=5, unjudged=[{**calls, "why": "not looked at"}]
    )
    build([trace], trace.with_suffix(".html"))
    text = trace.with_suffix(".html").read_text()
    assert "1,234 calls of 32-bit programs were seen, not decoded" in text
    assert "5 calls by absolute names of php-fpm (process 7, web.service) came before" in text


def test_what_a_filesystem_was_made_on_is_said() -> None:
    disk = Disk(
        name="sdb", model="SPINNER 500", size_bytes=500 << 30, rotational=True,
        scheduler="mq-deadline", write_cache="write back", trimmed=False,
    )  # fmt: skip
    said = "sdb (SPINNER 500, 500.0 GiB, rotates, scheduler mq-deadline, cache write back, "
    said += "not trimmed)"
    made = partial(RunResult, candidate="xfs", fstype="xfs")
    assert _made_on(made()) == "an image"
    assert _made_on(made(fstype="dir")) == "a directory"
    assert _made_on(made(devices=[disk])) == said
    assert _made_on(made(journal_bytes=64 << 20)) == "an image; its journal of 64 MiB on another"
    log = replace(disk, name="nvme0n1p1", model=None, rotational=False, trimmed=True)
    both = _made_on(made(journal_bytes=64 << 20, devices=[disk, log]))
    assert both.startswith(f"{said}; its journal of 64 MiB on nvme0n1p1 (no model, ")
    assert both.endswith("does not rotate, scheduler mq-deadline, cache write back, "
                         "trimmed before each run)")  # fmt: skip
