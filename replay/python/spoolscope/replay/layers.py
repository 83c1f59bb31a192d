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
_NEW_LV = ("lvcreate", "--yes", "--wipesignatures", "n")
_GROUP = (
    ("pvcreate", "--yes", "{devices}"),
    ("vgcreate", "{name}", "{devices}"),
)
_UNGROUP = (("vgremove", "--yes", "--force", "{name}"),)


def _md(level: str, module: str, devices: int, data: int) -> Layer:
    # Without --assume-clean the first resync would go on during the replay.
    make = ("mdadm", "--create", "/dev/md/{name}", "--run", "--assume-clean", "--metadata=1.2")
    more = ("--bitmap=internal", f"--level={level}", f"--raid-devices={devices}", "{devices}")
    undo = (("mdadm", "--stop", "/dev/md/{name}"),)
    return Layer("mdadm", module, ((*make, *more),), "/dev/md/{name}", undo, devices, data)


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
        (*_GROUP, (*_NEW_LV, "--zero", "n", "-l", "100%FREE", "-n", "spool", "{name}")),
        "/dev/{name}/spool",
        _UNGROUP,
    ),
    "dm-thin": Layer(
        "lvm2 thin-provisioning-tools",
        "dm_thin_pool",
        (
            *_GROUP,
            ("lvcreate", "--yes", "--type", "thin-pool", "-l", "90%FREE", "-n", "pool", "{name}"),
            (*_NEW_LV, "-V", "{bytes}b", "--thin", "-n", "spool", "{name}/pool"),
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
