"""What a filesystem may lie on besides a disk; it is set up in a machine of its own."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Layer:
    """One kind of block device that is made of others.

    Attributes:
        package: Debian packages of its programs.
        module: Of the kernel.
        devices: Of how many disks it is made here.
    """

    package: str
    module: str
    devices: int = 1


LAYERS = {
    "dm-crypt": Layer("cryptsetup-bin", "dm_crypt"),
    "lvm": Layer("lvm2", "dm_mod"),
    "dm-thin": Layer("lvm2 thin-provisioning-tools", "dm_thin_pool"),
    "md-raid1": Layer("mdadm", "raid1", 2),
    "md-raid5": Layer("mdadm", "raid456", 3),
    "md-raid10": Layer("mdadm", "raid10", 4),
}
