"""Layers between a filesystem and disks; they are set up in a virtual machine only."""

from dataclasses import dataclass

Command = tuple[str, ...]
NFS = ("nfs", "nfs4")
"""Types of filesystem that a server exports."""


@dataclass(frozen=True)
class Layer:
    """One kind of block device that is made of others.

    In commands "{devices}" are the devices below, a word each, "{name}" is the layer's name,
    "{key}" a file with a key, and "{bytes}" the size of a thin volume.

    Attributes:
        package: Debian packages of its programs.
        module: Its kernel module.
        make: Commands that make it, in their order.
        device: Path of its device.
        undo: Commands that take it down.
        devices: Number of disks that it is made of here.
        data: Number of disks' worth of data that these hold.
    """

    package: str
    module: str
    make: tuple[Command, ...]
    device: str
    undo: tuple[Command, ...]
    devices: int = 1
    data: int = 1


# The data is thrown away: few iterations are enough, instead of seconds of them.
_LUKS = ("--type", "luks2", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000")


def _lvm(program: str, *words: str) -> Command:
    # Its monitor would be a daemon that outlives the replay, and that uses the volumes.
    return program, "--yes", "--config", "activation/monitoring=0", *words


_GROUP = (
    _lvm("pvcreate", "{devices}"),
    _lvm("vgcreate", "{name}", "{devices}"),
)
_UNGROUP = (_lvm("vgremove", "--force", "{name}"),)
_NEW = ("--wipesignatures", "n", "-n", "spool")


def _md(level: str, module: str, devices: int, data: int) -> Layer:
    # Without --assume-clean the first resync would go on during the replay.
    make = ("mdadm", "--create", "/dev/md/{name}", "--run", "--assume-clean", "--metadata=1.2")
    more = ("--bitmap=internal", f"--level={level}", f"--raid-devices={devices}", "{devices}")
    device = "/dev/md/{name}"
    undo = (("mdadm", "--stop", device),)
    return Layer("mdadm", module, ((*make, *more),), device, undo, devices, data)


LAYERS = {
    "dm-crypt": Layer(
        "cryptsetup-bin",
        "dm_crypt",
        (
            ("cryptsetup", "luksFormat", "-q", *_LUKS, "--key-file", "{key}", "{devices}"),
            ("cryptsetup", "open", "--key-file", "{key}", "{devices}", "{name}"),
        ),
        "/dev/mapper/{name}",
        (("cryptsetup", "close", "{name}"),),
    ),
    "lvm": Layer(
        "lvm2",
        "dm_mod",
        (*_GROUP, _lvm("lvcreate", *_NEW, "--zero", "n", "-l", "100%FREE", "{name}")),
        "/dev/{name}/spool",
        _UNGROUP,
    ),
    "dm-thin": Layer(
        "lvm2 thin-provisioning-tools",
        "dm_thin_pool",
        (
            *_GROUP,
            _lvm("lvcreate", "--type", "thin-pool", "-l", "90%FREE", "-n", "pool", "{name}"),
            _lvm("lvcreate", *_NEW, "-V", "{bytes}b", "--thin", "{name}/pool"),
        ),
        "/dev/{name}/spool",
        _UNGROUP,
    ),
    "md-raid1": _md("1", "raid1", 2, 1),
    "md-raid5": _md("5", "raid456", 3, 2),
    "md-raid10": _md("10", "raid10", 4, 2),
}


def device_layers(layers: tuple[str, ...]) -> bool:
    """Return whether layers are block devices, not the filesystem below an overlay or a server."""
    return bool(layers) and layers[0] in LAYERS
