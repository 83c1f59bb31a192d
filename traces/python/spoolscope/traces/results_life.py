"""The life of a run's filesystem, part of the format of ``results``."""

from dataclasses import dataclass

from spoolscope.traces.typed_json import part


@dataclass(frozen=True, kw_only=True)
class Step:
    """The time of one step of a filesystem's life."""

    ns: int | None = part("Time.", "ns")
    cpu_ns: int | None = part("CPU time of the programs.", "ns", default=None)
    kernel_cpu_ns: int | None = part(
        "CPU time of all kernel threads of the machine meanwhile; null if none can be seen.",
        "ns",
        default=None,
    )


@dataclass(frozen=True, kw_only=True)
class DeviceUse:
    """The requests of a step to the device, by the device's own counters."""

    read_bytes: int | None = part("Bytes read.", "bytes", default=None)
    writes: int | None = part("Write requests.", default=None)
    written_bytes: int | None = part("Bytes written.", "bytes", default=None)
    discarded_bytes: int | None = part("Bytes discarded.", "bytes", default=None)
    flushes: int | None = part(
        "Cache flushes; null for a device that does not count.", default=None
    )


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command that was run, and what it printed."""

    command: list[str] = part("Its words.")
    said: str = part("What it printed.")


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """The sizes that statvfs returns."""

    total_bytes: int = part("Size.", "bytes")
    available_bytes: int = part("What a user can have.", "bytes")
    free_files: int | None = part("Free inodes.", default=None)


@dataclass(frozen=True, kw_only=True)
class Dirty:
    """The machine's page cache that was to be written."""

    before_bytes: int = part("Before the replay.", "bytes")
    peak_bytes: int = part("At most, every 0.1 s.", "bytes")


@dataclass(frozen=True, kw_only=True)
class Check:
    """The findings of the filesystem's own check after the replay; it changes nothing."""

    words: str = part("The command, without the device.")
    status: int | None = part("Its exit status.", default=None)
    clean: bool = part("It found nothing.")
    said: list[str] = part("Its last lines, if it found something.")


@dataclass(frozen=True, kw_only=True)
class Life:
    """From mkfs to the removal of all."""

    steps: dict[str, Step] = part(
        "mkfs, mount, fill, mount_copied, mount_filled, umount, check, remove.",
        default_factory=dict,
    )
    device: dict[str, DeviceUse] = part("By step: fill, replay.", default_factory=dict)
    commands: list[Command] = part("What was run.", default_factory=list)
    versions: dict[str, str] = part("Versions of the programs.", default_factory=dict)
    capacity: dict[str, Capacity] = part("after_mkfs, after_removal.", default_factory=dict)
    dirty: Dirty | None = part("During the replay.", default=None)
    check: Check | None = part("Null if it was not checked.", default=None)
    mail_bytes: dict[str, int] = part(
        "Bytes of files (fill) and calls (replay).", "bytes", default_factory=dict
    )
    written_while_recorded: dict[str, int] | None = part(
        "By requests of the recorded replay: data, metadata_awaited (a call or a commit waits for "
        "them), metadata_later; null if it was not recorded.",
        "bytes",
        default=None,
    )
    left_out: dict[str, str] = part("Steps that were not made, and why.", default_factory=dict)
