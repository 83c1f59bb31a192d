"""Groups of processes, and their charges."""

import duckdb
import pytest

from spoolscope.analysis.explain import explain
from spoolscope.analysis.families import (
    PARENT,
    PROCESS,
    PROGRAM,
    UNIT,
    Families,
    grouped,
    narrowest,
)

MS = 1_000_000
COMMIT = "jbd2_log_wait_commit < ext4_sync_file < do_fsync"


def families(*rows):
    """Return the families of ``rows``: pid, parent, name and control group of each process."""
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE threads (tid INT, pid INT, parent_pid INT, comm VARCHAR, cgroup VARCHAR, "
        "kind VARCHAR)"
    )
    for pid, parent, comm, group in rows:
        con.execute(
            "INSERT INTO threads VALUES (?, ?, ?, ?, ?, 'task')", [pid, pid, parent, comm, group]
        )
    return Families(con)


def chosen(charges, known):
    groups = grouped(charges, known)
    return narrowest(
        (groups[level][0], groups[level][0].charged) for level in groups if groups[level]
    )


def test_short_processes_of_one_program_are_named_with_who_started_them():
    known = families(
        *((pid, 9, "dd", "/cron") for pid in range(10, 50)), (9, 1, "night.sh", "/cron")
    )
    found = chosen({(pid, "dd"): 1 for pid in range(10, 50)} | {(7, "lmtp"): 20}, known)
    assert (found.level, found.charged) == (PROGRAM, 40)
    assert found.words == "dd (40 processes started by night.sh, process 9)"


def test_a_script_of_several_programs_is_named_itself():
    rows = [(10 + i, 9, ("dd", "cp", "gzip")[i % 3], None) for i in range(30)]
    found = chosen(
        {(pid, comm): 1 for pid, _, comm, _ in rows}, families(*rows, (9, 1, "night.sh", None))
    )
    assert found.level == PARENT
    assert found.words == "night.sh (process 9) with what it started (30 processes: cp, dd, gzip)"


def test_a_unit_is_named_where_no_process_started_it_all():
    rows = [(10 + i, 100 + i, f"job{i}", "/system.slice/cron.service") for i in range(5)]
    found = chosen({(pid, comm): 1 for pid, _, comm, _ in rows}, families(*rows))
    assert found.level == UNIT
    assert found.words.startswith("/system.slice/cron.service (5 processes: job0, job1, job2, ...")


def test_one_process_stays_one_process():
    known = families((7, 5, "statsd", "/a"), (5, 1, "init", None), (8, 5, "imap", "/a"))
    found = chosen({(7, "statsd"): 50, (8, "imap"): 20}, known)
    assert (found.level, found.words) == (PROCESS, "statsd (process 7)")


def test_processes_without_a_charge_are_not_counted_in_words():
    known = families(*((pid, 9, "imap", None) for pid in range(10, 20)), (9, 1, "dovecot", None))
    everybody = [(pid, "imap") for pid in range(10, 20)]
    two = grouped({(10, "imap"): 1, (11, "imap"): 1}, known, everybody)[PROGRAM][0]
    assert (two.words, two.n_processes) == (
        "imap (2 processes started by dovecot, process 9)", 10)  # fmt: skip
    (one,) = grouped({(12, "imap"): 1}, known, everybody)[PROGRAM]
    assert one.words == "imap (process 12)"


def test_programs_without_a_charge_are_not_named():
    known = families((10, 9, "dd", None), (11, 9, "cp", None), (9, 1, "night.sh", None))
    parent = grouped({(10, "dd"): 1}, known, [(11, "cp")])[PARENT]
    (found,) = [group for group in parent if group.pid == 9]
    assert found.words == "night.sh (process 9) with what it started (1 process: dd)"


def test_threads_count_for_their_process_and_pids_given_out_again_for_their_name():
    known = families((7, 1, "java", None), (8, 5, "dd", None), (8, 6, "imap", None))
    assert known.of((7, "worker-3")).program == "java"
    assert known.of((8, "dd")).parents == ((5, ""),)
    assert known.of((8, "imap")).parents == ((6, ""),)
    assert known.of((8, "?")).parents == ()


def script(builder, n_dd, n_lmtp, others_ns):
    """Make short processes of a script that commit, and a deliverer that waits for them."""
    for number in range(n_dd):
        at, pid = number * 20 * MS, 1000 + number
        builder.call("fsync", at, 1000, ((COMMIT, 8 * MS),), tid=pid, comm="dd", path=f"b/{number}")
        builder.commit(
            at, 8 * MS, trigger="call", trigger_pid=pid, trigger_tid=pid, trigger_seq=0,
            trigger_comm="dd",
        )  # fmt: skip
        builder.thread(pid, "dd", parent_pid=900)
        if others_ns:
            builder.call("fsync", at + 8 * MS - others_ns, 1000, ((COMMIT, others_ns),), tid=7)
    builder.thread(900, "night.sh")
    for number in range(n_lmtp):
        at = number * 20 * MS + 10 * MS
        row = builder.call("fsync", at, 1000, ((COMMIT, 8 * MS),), tid=7)
        builder.commit(
            at, 8 * MS, trigger="call", trigger_pid=7, trigger_tid=7, trigger_seq=row["seq"],
            trigger_comm="lmtp",
        )  # fmt: skip
    return explain(builder.write(duration_ns=n_dd * 20 * MS))


@pytest.mark.parametrize(("n_lmtp", "others_ns", "named"), [(10, 4 * MS, True), (10, 0, False),
                                                            (40, 4 * MS, False)])  # fmt: skip
def test_a_script_forces_commits_if_it_makes_most_and_others_wait(
    builder, n_lmtp, others_ns, named
):
    found = script(builder, 40, n_lmtp, others_ns)
    assert ("dd", 40) in [(a.name, a.n) for a in found.askers.programs]
    forced = [f for f in found.insights if f.kind == "forced_commits"]
    assert bool(forced) == named
    if named:
        assert forced[0].culprit == "dd (40 processes started by night.sh, process 900)"
        assert "40 of 50 commits" in forced[0].mechanism
        assert forced[0].share == pytest.approx(160 / 240, abs=0.01)
        assert "of the time in calls of others" in forced[0].text


READ = "folio_wait_bit_common < filemap_get_pages < vfs_read"


LOOP, BELOW = 7 << 20 | 2, 254 << 20


@pytest.mark.parametrize("dev", [1, LOOP])
def test_who_had_the_disk_is_summed_over_short_processes(builder, dev):
    """Check ten cats of find and a reader in turns of 10 ms at the disk, without writeback.

    If it is a loop device, the disk below it has each request again.
    """
    builder.thread(900, "find")
    for n in range(10):
        pid, at = 1000 + n, n * 30 * MS
        builder.thread(pid, "cat", parent_pid=900)
        for tid, comm, begin in ((pid, "cat", at), (7, "imap", at + 10 * MS)):
            # The reader makes its request while the cat is served, and waits for both.
            asked = at if comm == "imap" else begin
            wait = ((READ, begin + 10 * MS - asked),)
            builder.call("read", asked, 0, wait, tid=tid, comm=comm, dev=dev)
            which = {"dev": dev, "op": "read", "pid": tid, "tid": tid, "comm": comm}
            builder.block_io(begin, device_ns=10 * MS, **which)
            if dev == LOOP:
                builder.block_io(begin + 1, device_ns=9 * MS, dev=BELOW, parent_dev=LOOP, op="read",
                                 pid=5, tid=5, comm="kworker/u8:2")  # fmt: skip
        builder.block_io(at + 20 * MS, device_ns=MS, dev=dev, pid=3, tid=3, comm="kworker/u8:1")
    held = {one.name: one for one in explain(builder.write()).evidence.disk_holders}
    assert set(held) == {"cat", "imap"}
    cat = held["cat"]
    assert cat.who == "cat (10 processes started by find, process 900)"
    assert (cat.n, cat.ns, cat.busy_ns) == (10, 100 * MS, 210 * MS)
    assert (cat.others_ns, cat.outside_ns) == (100 * MS, 200 * MS)
    assert held["imap"].others_ns == 0
