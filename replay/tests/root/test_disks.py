"""Devices that may not be formatted: each refusal, with loop devices in the place of disks."""

import fcntl
import hashlib
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from spoolscope.replay.candidates import parse
from spoolscope.replay.clearing import _loops_below, wipe_left
from spoolscope.replay.devices import Device
from spoolscope.replay.disks import Asked, Disks, given
from spoolscope.replay.lifetime import kernel_threads_ns
from spoolscope.replay.signatures import LABEL, signatures, wipe
from spoolscope.traces.errors import USAGE, SpoolscopeError

pytestmark = [pytest.mark.root, pytest.mark.steady]
MIB = 1 << 20
LOOP_CTL_REMOVE = 0x4C81  # of <linux/loop.h>
Loop = Callable[..., Path]


def run(*words: object) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def twice(*paths: Path, overwritten: tuple[str, ...] = ()) -> Disks:
    """Ask for a device, and perhaps one for journals, and confirm both."""
    found = given(Asked(paths[0], paths[1] if len(paths) > 1 else None, paths, overwritten))
    assert found is not None
    return found


def refusal(*paths: Path) -> str:
    """Return why a device is not formatted, after a check that nothing on it has changed."""
    held = [begin_of(path) for path in paths]
    with pytest.raises(SpoolscopeError) as caught:
        twice(*paths)
    assert caught.value.exit_code == USAGE
    assert [begin_of(path) for path in paths] == held
    return f"{caught.value.message}; {caught.value.remedy}"


def begin_of(path: Path) -> str:
    if not path.is_block_device():
        return ""
    with path.open("rb") as file:
        return hashlib.sha256(file.read(4 * MIB)).hexdigest()


def mounted(source: Path, place: Path, cleanup: ExitStack, *words: str) -> None:
    place.mkdir()
    run("mount", *words, source, place)
    cleanup.callback(run, "umount", place)


def test_an_empty_one_is_taken(loop: Loop) -> None:
    device = loop()
    assert twice(device).paths == [device]


def test_it_has_to_be_asked_for_twice(loop: Loop) -> None:
    device, other = loop(), loop("other")
    for formatted in ([], [other]):
        with pytest.raises(SpoolscopeError, match=f"all that {device} holds would be lost") as said:
            given(Asked(device, None, formatted))
        assert said.value.remedy.endswith(f"--format-device {device}")
    with pytest.raises(SpoolscopeError, match=f"all that {other} holds"):
        given(Asked(device, other, [device]))
    with pytest.raises(SpoolscopeError, match="a device that this replay does not use"):
        given(Asked(device, None, [device, other]))
    with pytest.raises(SpoolscopeError, match="no device is given"):
        given(Asked(None, None, [device]))


def test_what_is_no_block_device(tmp_path: Path) -> None:
    file, pipe = tmp_path / "file", tmp_path / "missing"
    file.touch()
    assert f"{file} is not a block device" in refusal(file)
    assert "/dev/null is not a block device" in refusal(Path("/dev/null"))
    assert "No such file" in refusal(pipe)


@pytest.mark.parametrize("fstype", ["ext4", "btrfs"])
def test_a_mounted_one(
    fstype: str, loop: Loop, tmp_path: Path, require: Callable[..., None]
) -> None:
    """The device number of a file or mount on btrfs is not that of its device."""
    require(fstype)
    device = loop(size_bytes=128 * MIB)
    run(f"mkfs.{fstype}", "-q", device)
    with ExitStack() as cleanup:
        mounted(device, tmp_path / "mnt", cleanup, "-r")
        assert f"in use: {device} is mounted at {tmp_path / 'mnt'}" in refusal(device)


def test_one_mounted_in_another_namespace(loop: Loop, tmp_path: Path) -> None:
    device = loop()
    run("mkfs.ext4", "-q", device)
    script = f"mount -r {device} {tmp_path} && echo mounted && read x"
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as elsewhere:
        assert elsewhere.stdin
        assert elsewhere.stdout
        assert elsewhere.stdout.readline() == "mounted\n"
        said = refusal(device)
        elsewhere.stdin.close()
    assert f"mounted at {tmp_path}, as process {elsewhere.pid} sees it" in said


def test_swap_space(loop: Loop, require: Callable[..., None]) -> None:
    device = loop()
    run("mkswap", device)
    on = subprocess.run(["swapon", device], capture_output=True, text=True, check=False)
    if on.returncode:
        require("swap", f"this kernel does not swap to a loop device: {on.stderr.strip()}")
    try:
        assert f"{device} is swap space" in refusal(device)
    finally:
        run("swapoff", device)
    assert f"device {device} holds swap" in refusal(device)


def test_one_below_a_loop_device(loop: Loop) -> None:
    device = loop()
    above = run("losetup", "--find", "--show", device).strip()
    try:
        assert f"{device} is below the loop device {Path(above).name}" in refusal(device)
    finally:
        run("losetup", "--detach", above)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"dm/name": "vg-root\n", "dm/uuid": "LVM-abc\n"}, "a part of vg-root (LVM, dm-0)"),
        ({"dm/name": "safe\n", "dm/uuid": "CRYPT-1\n"}, "a part of safe (device-mapper, dm-0)"),
        ({"md/level": "raid1\n"}, "a part of dm-0 (md RAID)"),
        ({}, "a part of dm-0 (another device)"),
    ],
)
def test_what_other_devices_are_made_of(
    files: dict[str, str], said: str, loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Imitate the files of /sys, as this kernel may have no such devices."""
    device = loop()
    place = tmp_path / "sys" / "loop"
    made = tmp_path / "sys" / "dm-0"
    (place / "holders").mkdir(parents=True)
    (place / "holders" / "dm-0").symlink_to(made)
    (place / "ro").write_text("0\n")
    made.mkdir()
    for name, text in files.items():
        (made / name).parent.mkdir(exist_ok=True)
        (made / name).write_text(text)
    monkeypatch.setattr(Device, "place", property(lambda _self: place))
    assert f"in use: {device} is {said}" in refusal(device)


def devices_of_the_kernel() -> str:
    return Path("/proc/devices").read_text() + Path("/proc/misc").read_text()


@pytest.mark.parametrize("kind", ["dm", "md"])
def test_a_part_of_a_mapped_device_or_an_array(kind: str, loop: Loop) -> None:
    device, other = loop(), loop("other")
    make = {
        "dm": ["dmsetup", "create", "spsc-test", "--table", f"0 2048 linear {device} 0"],
        "md": ["mdadm", "--create", "--run", "--metadata=1.2", "--level=1", "--raid-devices=2",
               "/dev/md/spsc-test", device, other],
    }[kind]  # fmt: skip
    remove = {
        "dm": ["dmsetup", "remove", "spsc-test"],
        "md": ["mdadm", "--stop", "/dev/md/spsc-test"],
    }[kind]
    # A try would leave special files behind.
    if {"dm": "device-mapper", "md": " md\n"}[kind] not in devices_of_the_kernel():
        pytest.skip(f"this kernel has no {kind}, or has not loaded it")
    try:
        done = subprocess.run(make, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        pytest.skip(f"no program {error.filename}")
    if done.returncode:
        pytest.skip(f"this kernel makes none: {done.stderr.strip().splitlines()[-1]}")
    try:
        found = "(device-mapper" if kind == "dm" else "(md RAID)"
        assert f"in use: {device} is a part of" in (text := refusal(device))
        assert found in text
    finally:
        run(*remove)


@pytest.mark.parametrize(("comm", "shown"), [("", "python"), ("ff6162", "\ufffdab")])
def test_one_that_a_program_has_open(comm: str, shown: str, loop: Loop) -> None:
    """A virtual machine or a database opens it like this, without O_EXCL; names are bytes."""
    device = loop()
    code = "import ctypes, sys; f = open(sys.argv[1], 'rb'); name = bytes.fromhex(sys.argv[2]); "
    code += "name and ctypes.CDLL(None).prctl(15, name); print(); input()"
    words, pipe = [sys.executable, "-c", code, device, comm], subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as program:
        assert program.stdout
        program.stdout.readline()
        assert kernel_threads_ns()  # it reads of every process
        assert f"open in process {program.pid} ({shown}" in refusal(device)
        program.communicate("\n")


def test_beside_a_loop_device_whose_file_has_no_text_for_a_name(loop: Loop, tmp_path: Path) -> None:
    image = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    image.touch()
    os.truncate(image, MIB)
    other = run("losetup", "--find", "--show", image).strip()
    try:
        twice(loop())
        assert _loops_below(tmp_path.resolve()).count(other) == 1
    finally:
        run("losetup", "--detach", other)


def test_a_process_that_ends_while_its_files_are_listed(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:

        def ending_first(listed: Callable[[str | Path], object]) -> Callable[..., object]:
            def ended_first(place: str | Path = ".") -> object:
                if os.fspath(place) == f"/proc/{process.pid}/fd":
                    process.kill()
                    process.wait()
                return listed(place)

            return ended_first

        for name in ("scandir", "listdir"):  # Path uses either, by the version of Python
            monkeypatch.setattr(os, name, ending_first(getattr(os, name)))
        twice(loop())
        assert process.returncode == -signal.SIGKILL


def test_one_that_the_kernel_has_given_away(loop: Loop, tmp_path: Path) -> None:
    """The use of a filesystem's second device is seen by O_EXCL only: mounts name the first."""
    first, second = loop(size_bytes=128 * MIB), loop("second", 128 * MIB)
    run("mkfs.btrfs", "-q", "-d", "raid1", "-m", "raid1", first, second)
    run("btrfs", "device", "scan", first, second)
    with ExitStack() as cleanup:
        mounted(first, tmp_path / "mnt", cleanup, "-r")
        assert "the kernel has given it to somebody" in refusal(second)


def test_a_disk_with_a_partition(parted: tuple[Path, Path], tmp_path: Path) -> None:
    disk, partition = parted
    run("mkfs.ext4", "-q", "-L", "mail", partition)
    assert f"device {disk} holds dos" in refusal(disk)
    assert refusal(disk).endswith("--overwrite-signature dos --overwrite-signature ext4")
    with pytest.raises(SpoolscopeError, match=rf"{partition} holds ext4 \(mail\)"):
        twice(disk, overwritten=("dos",))
    assert f"{partition} holds ext4 (mail)" in refusal(partition)
    with ExitStack() as cleanup:
        mounted(partition, tmp_path / "mnt", cleanup, "-r")
        assert f"its partition {partition} is mounted at {tmp_path / 'mnt'}" in refusal(disk)
    found = twice(disk, overwritten=("dos", "ext4"))
    wipe(found.main)
    assert not partition.exists()
    assert twice(disk).paths == [disk]


def test_a_partition_of_a_disk_in_use(parted: tuple[Path, Path], tmp_path: Path) -> None:
    disk, partition = parted
    run("mkfs.ext4", "-q", "-F", disk)
    with ExitStack() as cleanup:
        mounted(disk, tmp_path / "mnt", cleanup, "-r")
        assert f"the disk of this partition, {disk} is mounted at" in refusal(partition)


@pytest.mark.parametrize(
    ("made", "held"),
    [
        (["mkfs.ext4", "-q", "-L", "mail"], "ext4 (mail)"),
        (["mkfs.xfs", "-q"], "xfs"),
        (["mkfs.btrfs", "-q"], "btrfs"),
        (["mke2fs", "-q", "-O", "journal_dev"], "jbd"),
        (["mkswap"], "swap"),
        (["sh", "-c", 'head -c 512 /dev/urandom > "$0"'], "data of an unknown kind"),
    ],
)
def test_a_signature_of_somebody_else(made: list[str], held: str, loop: Loop) -> None:
    device = loop(size_bytes=320 * MIB)
    run(*made, device)
    assert f"device {device} holds {held}, which spoolscope did not write" in refusal(device)
    kind = "data" if held.startswith("data") else held.split(maxsplit=1)[0]
    for other in ("ext3", "vfat"):
        with pytest.raises(SpoolscopeError, match="did not write") as caught:
            twice(device, overwritten=(other,))
        assert caught.value.remedy.endswith(f"--overwrite-signature {kind}")
    assert twice(device, overwritten=("ext3", kind)).paths == [device]


@pytest.mark.parametrize("kind", ["LVM2_member", "linux_raid_member"])
def test_a_part_of_lvm_or_md_that_is_not_active(kind: str, loop: Loop) -> None:
    device = loop()
    with device.open("r+b") as disk:
        disk.seek(512 if kind == "LVM2_member" else 4096)
        disk.write(lvm_label() if kind == "LVM2_member" else md_superblock())
    assert f"device {device} holds {kind}" in refusal(device)
    assert f"--overwrite-signature {kind}" in refusal(device)


def lvm_label() -> bytes:
    """Return the label of a physical volume, by lvm2's lib/label/label.h."""
    rest = struct.pack("<I8s", 32, b"LVM2 001") + b"x" * 32 + bytes(440)
    crc = 0xF597A6CF
    for byte in rest[: 512 - 20]:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xEDB88320 if crc & 1 else 0)
    return b"LABELONE" + struct.pack("<QI", 1, crc) + rest


def md_superblock() -> bytes:
    """Return a superblock of version 1.2, by the kernel's md_p.h, with its checksum."""
    block = bytearray(256 + 2 * 128)
    struct.pack_into("<III", block, 0, 0xA92B4EFC, 1, 0)
    block[16:32] = bytes(range(16))
    struct.pack_into("<Q", block, 144, 8)  # where it is, in sectors
    struct.pack_into("<I", block, 220, 128)
    words = struct.unpack(f"<{len(block) // 4}I", block)
    total = sum(words)
    struct.pack_into("<I", block, 216, (total & 0xFFFFFFFF) + (total >> 32) & 0xFFFFFFFF)
    return bytes(block)


def test_what_spoolscope_left_is_no_obstacle(loop: Loop, require: Callable[..., None]) -> None:
    """Its label is recognized, and a log without a label by its filesystem, which has one."""
    require("xfs")
    main, log = loop(size_bytes=320 * MIB), loop("log", 64 * MIB)
    run("mkfs.xfs", "-q", "-L", LABEL, "-l", f"logdev={log}", main)
    assert [one.type for one in signatures(Device.at(log))] == ["xfs_external_log"]
    assert "holds xfs_external_log" in refusal(log)
    assert twice(main, log).paths == [main, log]
    assert wipe_left([main, log]) == [main, log]
    assert run("wipefs", main) == run("wipefs", log) == ""
    run("mkfs.xfs", "-q", "-L", "mail", "-l", f"logdev={log}", main)
    assert "holds xfs (mail)" in refusal(main, log)
    assert wipe_left([main, log]) == []
    assert twice(main, log, overwritten=("xfs", "xfs_external_log")).paths == [main, log]


def test_what_a_server_exports_is_on_no_disk(loop: Loop) -> None:
    with pytest.raises(SpoolscopeError, match="exports to nfs4 lies on an image"):
        twice(loop()).check_candidates([parse("nfs4")])


def test_too_small_a_device(loop: Loop) -> None:
    disks = twice(loop())
    disks.check_room(64 * MIB)
    with pytest.raises(SpoolscopeError, match="has 64 MiB, but this replay needs 65 MiB"):
        disks.check_room(64 * MIB + 1)


def test_one_that_is_read_only(loop: Loop) -> None:
    device = loop("disk", 64 * MIB, "--read-only")
    assert f"device {device} is read-only" in refusal(device)


def test_one_disk_for_both(loop: Loop) -> None:
    device = loop()
    assert "share a disk" in refusal(device, device)


def test_a_link_that_has_changed(loop: Loop, tmp_path: Path) -> None:
    first, second, link = loop("first"), loop("second"), tmp_path / "link"
    link.symlink_to(first)
    found = Device.at(link)
    found.check_same()
    link.unlink()
    link.symlink_to(second)
    with pytest.raises(SpoolscopeError, match=f"{link} has changed meanwhile: it led to {first}"):
        found.check_same()


@pytest.fixture
def own_number(require: Callable[..., None]) -> Iterator[Path]:
    """Return a loop device of a number so high that no other program takes it when it is free."""
    require("ext4")
    number = 100_000 + os.getpid()
    yield Path(f"/dev/loop{number}")
    with Path("/dev/loop-control").open("rb") as control:
        fcntl.ioctl(control, LOOP_CTL_REMOVE, number)


def test_another_disk_that_took_its_name(own_number: Path, tmp_path: Path) -> None:
    device = own_number
    for name in ("one.img", "other.img"):
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, 64 * MIB)
    run("losetup", device, tmp_path / "one.img")
    found = Device.at(device)
    run("losetup", "--detach", device)
    run("losetup", device, tmp_path / "other.img")
    try:
        device.write_bytes(b"mail")
        with pytest.raises(SpoolscopeError, match=f"{device} has become another disk"):
            wipe(found)
        assert device.read_bytes()[:4] == b"mail"
        with pytest.raises(SpoolscopeError, match=f"{device} has changed meanwhile"):
            found.check_same()
    finally:
        run("losetup", "--detach", device)
