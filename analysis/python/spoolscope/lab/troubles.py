"""Troubles that rules of insights are for, each with a scene that only looks like it."""

from dataclasses import dataclass, replace

from spoolscope.lab.faults import MIB, MS, Delay, Role
from spoolscope.tracers.request import Snapshot


@dataclass(frozen=True)
class Scene:
    """One load on one filesystem, to be recorded.

    Attributes:
        says: One clause on what happens.
        roles: Processes that run (see ``lab.load`` and ``lab.trouble_load``).
        fstype: Type of the filesystem; "server" is a slow FUSE server.
        mkfs: Further options for mkfs.
        mount: Options for mount.
        delays: Delays of the disk; of a server, that of a read.
        model: Name of the disk's device model.
        fill: Initial content (see ``lab.trouble_fill``), none of which is cached.
        features: Features that tune2fs changes when the content is there.
        warm: All is looked at and read before the recording.
        limit: Limit of the control group of all roles (see ``lab.limits``).
        around: Name of what else is set up (see ``lab.trouble_runs``).
        size_bytes: Size of the disk.
        seconds: Length of the load.
        snapshot: What the recording takes down of the names that were there.
    """

    says: str
    roles: tuple[Role, ...]
    fstype: str = "ext4"
    mkfs: tuple[str, ...] = ()
    mount: str = "noatime"
    delays: tuple[Delay, ...] = ()
    model: str = ""
    fill: str = ""
    features: str = ""
    warm: bool = False
    limit: tuple[str, int] | None = None
    around: str = ""
    size_bytes: int = 256 * MIB
    seconds: float = 2.0
    snapshot: Snapshot = "none"


@dataclass(frozen=True)
class Trouble:
    """A rule's trouble, in which it must fire, and a scene like it, in which it must not.

    Attributes:
        kind: The kind of the rule.
        scene: The trouble.
        alike: What looks like it.
    """

    kind: str
    scene: Scene
    alike: Scene


ONE: Role = {"role": "deliver", "n": 1}
FOUR: Role = {"role": "deliver", "n": 4, "think_ms": 5}
_LMTP: Role = {"role": "deliver", "n": 6, "think_ms": 100, "comm": "lmtp"}
_HEALTHY = (Delay("write", MS // 5), Delay("flush", 2 * MS))
_SLOW_LOG = (Delay("write", 5 * MS, "journal"),)
_COLD = (Delay("read", 2 * MS),)
_WIDE_COLD = Scene(
    "the files of a directory are looked at in the order of its listing",
    ({"role": "look_at_all", "n": 1, "comm": "backup"},),
    mount="noatime,inode_readahead_blks=0",
    delays=_COLD,
    fill="wide",
)
_SORTED: Role = {"role": "look_at_all", "n": 1, "comm": "backup", "sorted": True}
_LIST: Role = {"role": "list_again", "n": 2, "directory": "wide", "think_ms": 1}
_LIST_SMALL = _LIST | {"directory": "folders/0"}
_UNINDEXED = Scene(
    "absent names are looked up in a directory without an index",
    ({"role": "look_up_absent", "n": 1},),
    fill="wide",
    features="^dir_index",
    snapshot="full",
)
_ABSENT: Role = {"role": "look_for", "n": 1, "absent": True}
_FOLDERS = Scene(
    "names are looked for in folders that no cache holds and that do not have them",
    (_ABSENT,),
    delays=_COLD,
    fill="folders",
)
_FORCED = Scene(
    "a daemon syncs eight bytes without end beside deliveries",
    ({"role": "sync_loop", "n": 1, "comm": "statsd"}, _LMTP),
    mkfs=("-J", "size=8"),
    delays=_HEALTHY,
)
_ORDERED = Scene(
    "a neighbour writes much without a sync, beside synced deliveries",
    ({"role": "stream", "n": 1, "comm": "archiver"}, ONE),
    mount="noatime,nodelalloc",
    delays=(Delay("write", 4 * MS, "data"),),
)
_TIMER = Scene(
    "files are renamed while a commit a second is written slowly",
    ({"role": "change_names", "n": 2},),
    mount="noatime,commit=1",
    delays=(Delay("write", 30 * MS, "journal"),),
    mkfs=("-J", "size=64"),
    seconds=4.0,
)
_STARVED = Scene(
    "a real-time process has the CPU that the journal's thread is bound to",
    ({"role": "hog", "n": 1, "burst_ms": 20, "think_ms": 20, "cpu": 1}, ONE | {"cpu": 0}),
    around="journal on a busy CPU",
)
_DATA = Scene("all data is journalled, slowly", (ONE,), mount="noatime,data=journal",
              delays=_SLOW_LOG)  # fmt: skip
_PRICE = Scene("six processes sync their deliveries to a slow cache", (FOUR | {"n": 6},),
               delays=(Delay("flush", 10 * MS),))  # fmt: skip
_WHOLE = Scene(
    "deliveries are synced without a log tree",
    (ONE,),
    fstype="btrfs",
    mount="noatime,notreelog",
    delays=(Delay("flush", 5 * MS),),
)
_TREE = Scene(
    "eight processes sync their deliveries on one log tree",
    (FOUR | {"n": 8, "think_ms": 1},),
    fstype="btrfs",
    delays=(Delay("flush", 10 * MS),),
)
_DOTLOCK: Role = {"role": "hold_dotlock", "n": 3, "hold_ms": 30}
_DOTLOCKS = Scene("three processes want the same lock file", (_DOTLOCK,))
_APPENDER: Role = {"role": "append_directly", "n": 3}
_SHARED = Scene("three processes append to the same file, past the cache", (_APPENDER,),
                delays=(Delay("write", 3 * MS),))  # fmt: skip
_MAPPED = Scene(
    "pages of a mapped file are touched that no cache holds",
    ({"role": "touch_pages", "n": 1, "comm": "imap"}, {"role": "append_synced", "n": 1,
     "bytes": 100, "think_ms": 50}),
    delays=_COLD,
    fill="big",
)  # fmt: skip
_FREEZE: Role = {"role": "freeze", "n": 1, "hold_ms": 150, "comm": "snapshotter"}
_FROZEN = Scene("a snapshot freezes the filesystem under deliveries", (_FREEZE, FOUR))
_SCAN: Role = {"role": "scan", "n": 1, "pause_ms": 5, "comm": "scanner"}
_READ: Role = {"role": "read_all", "n": 2}
_SCANNED = Scene("a scanner permits each open after a while", (_SCAN, _READ), fill="folders",
                 warm=True)  # fmt: skip
_SERVED = Scene(
    "a FUSE server takes 10 ms for each answer",
    ({"role": "fetch_served", "n": 1},),
    fstype="server",
    delays=(Delay("read", 10 * MS),),
)
_FULL = Scene("a filesystem is full", ({"role": "fill_up", "n": 2},), size_bytes=24 * MIB,
              mkfs=("-J", "size=4"), delays=(Delay("write", MS),))  # fmt: skip
_BACKUP: Role = {"role": "read_directly", "n": 1, "comm": "backup"}
_PAGES: Role = {"role": "touch_pages", "n": 1, "by_calls": True, "comm": "imap"}
_BUSY = Scene(
    "a backup keeps the disk busy",
    (_BACKUP | {"n": 3}, _PAGES),
    model="hdd7k",
    fill="big",
)
_SATURATED = Scene(
    "six processes deliver to a slow disk and one reads from it, without a pause",
    (FOUR | {"n": 6, "think_ms": 0}, _PAGES),
    delays=(Delay("read", 4 * MS), Delay("write", 4 * MS), Delay("flush", 4 * MS)),
    fill="big",
    seconds=4.0,
)
_FAILING = Scene("writes to the disk fail", ({"role": "deliver_whatever", "n": 2},),
                 around="no room below", fill="folders")  # fmt: skip
_TWICE = Scene("a new file is synced, and then its directory",
               ({"role": "sync_directory", "n": 1},), fstype="btrfs", delays=_HEALTHY)  # fmt: skip
_APPEND: Role = {"role": "append_synced", "n": 1, "bytes": 120, "comm": "statsd"}
_APPENDS = Scene("120 bytes are appended to a file and synced, again and again", (_APPEND,),
                 delays=_HEALTHY)  # fmt: skip
_ATIMES = Scene(
    "reading writes access times while commits are written slowly",
    (_READ, {"role": "sync_loop", "n": 1, "comm": "statsd"}),
    mount="strictatime",
    delays=(Delay("write", 20 * MS, "journal"),),
    fill="folders",
    warm=True,
)
_CROWDED = Scene("eight processes of four programs write without a pause", tuple(
    {"role": "at_once", "n": 2, "comm": f"worker-{n}"} for n in range(4)))  # fmt: skip
_TIGHT = Scene(
    "a control group has less memory than what it reads and changes",
    ({"role": "keep_reading", "n": 2},),
    delays=(Delay("write", 5 * MS),),
    fill="big",
    limit=("memory_bytes", 12 * MIB),
)
TROUBLES = {
    trouble.kind: trouble
    for trouble in (
        Trouble("linear_directory", _UNINDEXED, replace(
            _UNINDEXED, says="the same, with the index", features="")),
        Trouble("hash_order", _WIDE_COLD, replace(
            _WIDE_COLD, says="the same, sorted by inode", roles=(_SORTED,))),
        Trouble("absent_names", _FOLDERS, replace(
            _FOLDERS, says="the same with names that are there",
            roles=(_ABSENT | {"absent": False},))),
        Trouble("large_listing", Scene(
            "a directory of 6,000 names is listed again and again", (_LIST,), fill="wide",
            warm=True, snapshot="full"), Scene(
            "a directory of 10 names is listed again and again", (_LIST_SMALL,), fill="folders",
            warm=True, snapshot="full")),
        Trouble("cold_inodes", replace(
            _WIDE_COLD, says="6,000 inodes that no cache holds are looked at by number",
            roles=(_SORTED,)), replace(
            _WIDE_COLD, says="the same with inodes in the cache", roles=(_SORTED,), warm=True)),
        Trouble("forced_commits", _FORCED, replace(
            _FORCED, says="the deliveries alone", roles=(_LMTP,))),
        Trouble("neighbours_data", _ORDERED, replace(
            _ORDERED, says="the same with data=writeback",
            mount="noatime,nodelalloc,data=writeback")),
        Trouble("timer_commits", _TIMER, replace(
            _TIMER, says="the same with a commit in five minutes", mount="noatime,commit=300")),
        Trouble("commit_without_cpu", _STARVED, replace(
            _STARVED, says="the same, the journal's thread going before it",
            around="journal goes first")),
        Trouble("data_journal", _DATA, replace(
            _DATA, says="only metadata is journalled, as slowly", mount="noatime")),
        Trouble("sync_price", _PRICE, replace(_PRICE, says="one process does", roles=(ONE,))),
        Trouble("full_commits", _WHOLE, replace(
            _WHOLE, says="the same with the log tree", mount="noatime")),
        Trouble("log_tree_queue", _TREE, replace(_TREE, says="one process does", roles=(ONE,))),
        Trouble("dotlock", _DOTLOCKS, replace(
            _DOTLOCKS, says="each has its own lock file", roles=(_DOTLOCK | {"own": True},))),
        Trouble("busy_file", _SHARED, replace(
            _SHARED, says="each appends to its own", roles=(_APPENDER | {"own": True},))),
        Trouble("mapped_reads", _MAPPED, replace(
            _MAPPED, says="the pages are read by calls",
            roles=(_MAPPED.roles[0] | {"by_calls": True}, *_MAPPED.roles[1:]))),
        Trouble("memory", _TIGHT, replace(_TIGHT, says="the same without the limit", limit=None)),
        Trouble("too_few_cpus", _CROWDED, replace(
            _CROWDED, says="one of them, at real-time priority",
            roles=({"role": "at_once", "n": 1, "first": True},))),
        Trouble("frozen_filesystem", _FROZEN, replace(
            _FROZEN, says="the same program only syncs it",
            roles=(_FREEZE | {"only_sync": True}, FOUR))),
        Trouble("scanner", _SCANNED, replace(
            _SCANNED, says="it only listens", roles=(_SCAN | {"only_listen": True}, _READ))),
        Trouble("slow_server", _SERVED, replace(
            _SERVED, says="files are in the server's cache on this side",
            roles=({"role": "fetch_served", "n": 1, "again": True},))),
        Trouble("no_space", _FULL, replace(
            _FULL, says="calls fail as a name is there",
            roles=({"role": "fill_up", "n": 2, "twice": True},))),
        Trouble("busy_disk", _BUSY, replace(
            _BUSY, says="four readers of mail alone", roles=(_PAGES | {"n": 4},))),
        Trouble("saturated_disk", _SATURATED, replace(
            _SATURATED, says="one process does, with pauses",
            roles=(ONE | {"think_ms": 100},))),
        Trouble("disk_errors", _FAILING, replace(_FAILING, says="the same with room", around="")),
        Trouble("directory_syncs", _TWICE, replace(
            _TWICE, says="the same after a rename",
            roles=({"role": "sync_directory", "n": 1, "rename": True},))),
        Trouble("small_appends", _APPENDS, replace(
            _APPENDS, says="32 KiB are appended each time", roles=(_APPEND | {"bytes": 32768},))),
        Trouble("atime_writes", _ATIMES, replace(
            _ATIMES, says="the same with noatime", mount="noatime")),
    )
}  # fmt: skip
"""The troubles by kind of rule."""
