"""The tables that rules of insights ask, with units, as ``query`` offers them."""

from spoolscope.analysis.stage import CAUSE, Field, Made

_NS = {"ns": "Time.", "others_ns": "Time that shown calls of others waited for it.",
       "outside_ns": "Time of all shown calls of others."}  # fmt: skip
_GROUP = "who"  # a column's name; in prose the word is for people only
_WHO = f"{_GROUP}=The processes in words. name=Their name."


def _made(name: str, row: str, meanings: str) -> Made:
    """Describe a table by "column=Meaning." parts; the end of a column's name is its unit."""
    fields = []
    for part in meanings.split(". "):
        column, _, meaning = part.partition("=")
        unit = "ns" if column == "ns" or column.endswith("_ns") else ""
        unit = "bytes" if column.endswith("bytes") else unit
        if column == "cause":
            fields.append(Field("cause", *CAUSE))
        else:
            said = meaning or _NS.get(column, "")
            fields.append(Field(column, unit, said if said.endswith(".") else f"{said}."))
    return Made(name, row, tuple(fields))


CAUSE_TIMES = _made("cause_times", "one cause of the time of all shown calls", "cause. ns")
TOTALS = _made(
    "totals",
    "the recording in sum",
    "n_calls=Shown calls. latency_ns=Their time. filesystem_ns=Their time without waits of "
    "programs for programs. lasted_ns=Length of what is shown",
)
SETTINGS = (
    _made("spool_facts", "one spool", "fstype=Its filesystem. options=Its mount options"),
    _made(
        "cause_facts",
        "one cause of the closed list",
        "cause. label=Its name in words. at_disk=It is a wait for a disk. "
        "ends_with_request=The end of a request ends it. of_commit=It is a wait for a commit",
    ),
)
EVIDENCE = (
    _made(
        "forcing",
        "the processes that force commits, if any do",
        f"{_WHO} n=Commits that they asked for. n_next=Those of the next such group. "
        "n_commits=All commits. commit_ns=Length of theirs. others_ns. outside_ns. "
        "syscall=Their call that asked for half of these or more. path=The path of most. "
        "path_n=Commits of that path",
    ),
    _made(
        "disk_holder",
        "processes that had a disk while others waited for it",
        f"{_WHO} disk=The disk, major << 20 | minor. n=Their requests. ns=Time that these were "
        "served. busy_ns=Time that the disk was busy. others_ns. outside_ns",
    ),
    _made(
        "cpu_holder",
        "the processes that longest had the CPUs that calls of others waited for",
        f"{_WHO} ns=Time that shown calls of others waited for these CPUs. syscall=The call that "
        "waited longest for them. syscall_ns=Its waits. outside_ns",
    ),
    _made(
        "held_back",
        "the control group whose limit held back most requests",
        "cgroup=The group. dev=The disk, major << 20 | minor. n=Requests that were held back. "
        "allowed=The limit in words",
    ),
    _made(
        "served",
        "one kind of request to one disk",
        "op=read, write or flush. n=Requests. median_ns=Their median time. total_ns=Their time in "
        "sum. disk=The disk, major << 20 | minor",
    ),
    _made(
        "answerer",
        "the process that ended most waits of a cause that programs end",
        "cause. pid=The process. comm=Its name. ns=Length of the waits that it ended",
    ),
    _made(
        "lookup_cost",
        "what finding names in one directory cost",
        "path=The directory, below its spool; with the mount if several have one. entries=Number "
        "of its names, if known. index=Kind of its index. lookup_io_ns=Waits for its blocks. "
        "dir_lock_ns=Waits for its lock. cpu_ns=CPU time, by samples. n=Waits and samples. "
        "share=All three as a share of the time in calls without file locks. absent_ns=Part of "
        "lookup_io_ns for absent names. name=The name that most of lookup_io_ns was for. "
        "name_ns=That part. samples=Samples behind cpu_ns",
    ),
    _made(
        "measured",
        "the recorder's own cost",
        "ns=Time that shown calls waited for a CPU which the recorder had",
    ),
)
COMMIT_COSTS = _made(
    "commit_costs",
    "a wait of a call for a commit, by what the commit was doing",
    "wait_id=Number of the wait, from 1. part=What the commit was doing. ns. from_ns=Start of the "
    "wait, since the epoch. to_ns=Its end. pid=Process that waited. cause. filesystem=Whose rules "
    "explain it. commit_id=The last commit that the wait met. kind=Its kind. trigger=Why it began. "
    "committer=Its thread. holder_pid=Process that held it up. holder_comm=Its name",
)
LOCKED_FILES = _made(
    "locked_files",
    "one file whose lock (fcntl, flock) calls waited for",
    "path_id=The file (paths.path_id). path=Its path. n=Waits. n_victims=Processes that waited. "
    "ns=Time that they waited. holder_pid=Process that had it longest meanwhile. holder_comm=Its "
    "name. held_ns=Time that it had it. holder_call=What it mostly did meanwhile. "
    "holder_call_ns=Time of that",
)
DOTLOCK_WAITS = _made(
    "dotlock_waits",
    "one lock file that processes found there",
    "path_id=The lock file (paths.path_id). path=Its path. n=Tries in vain. n_victims=Processes "
    "that tried. ns=Time until their next tries. holder_pid=Process that had it longest. "
    "holder_comm=Its name. holder_call=What it mostly did meanwhile",
)
DIRECTORY_SYNCS = _made(
    "directory_syncs",
    "one sync of a directory",
    "comm=Name of the thread. pid=Its process. path=The directory. dur_ns=Length of the call. "
    "needless=It came right after the sync of a new file in it",
)
SYNCED_FILES = _made(
    "synced_files",
    "the syncs of one process of one file",
    "pid=The process. comm=Its name. path=The file. n=Syncs. ns=Their time. n_writes=Its writes to "
    "the file. bytes=Bytes that these wrote",
)
READING_ORDERS = _made(
    "reading_orders",
    "the files of a directory that a process listed and then went through",
    "pid=The process. comm=Its name. dir=The directory. n=Steps from a file to the next. n_back="
    "Steps to a lower inode number. ns=Time that it waited for reads there",
)
BUSY_SECONDS = _made(
    "busy_seconds",
    "one second in which 1.5 requests or more were under way at a disk, on average",
    "dev=The disk, major << 20 | minor. second=The second, since the epoch. n=Requests. bytes="
    "Their bytes. median_ns=Their median time. min_ns=The shortest",
)
