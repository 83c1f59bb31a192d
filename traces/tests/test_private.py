"""Names of people and hosts in meta.json are hidden; facts on filesystems stay."""

import json

import pytest

from spoolscope.traces.private import Hiding, Private

KEY = bytes(range(32))
PATHS = [b"/var/mail/example.org/alice/cur", b"/var/mail/example.org/bob/cur"]
SECRETS = ("alice", "example.org", "mailhost7", "vg_mail", "filter-bob")


def hidden(**fields: object) -> dict:
    spool = {"mount": "/var/mail", "fstype": "ext4", "source": "/dev/sda1", "options": "rw"}
    meta = {"spools": [spool | fields], "filter": {}}
    [shown] = Private(Hiding(KEY)).meta(meta)["spools"]
    return shown


@pytest.mark.parametrize(
    ("mount", "kept"),
    [
        ("/", "/"),
        ("/var/mail", "/var/mail"),
        ("/srv/vmail", "/srv/vmail"),
        ("/var/mail/example.org", "/var/mail/"),
        ("/home/alice/Maildir", "/home/"),
    ],
)
def test_well_known_words_of_a_mount_point_stay(mount: str, kept: str) -> None:
    shown = hidden(mount=mount)["mount"]
    assert shown.startswith(kept)
    assert len(shown) == len(mount)
    assert not any(secret in shown for secret in SECRETS)


def test_a_mount_point_is_hidden_as_the_same_names_in_tables_are() -> None:
    private = Private(Hiding(KEY))
    [spool] = private.meta({"spools": [{"mount": "/var/mail/example.org"}]})["spools"]
    assert spool["mount"].encode() == private.names.path(b"/var/mail/example.org")


@pytest.mark.parametrize(
    "source", ["/dev/sda1", "/dev/loop0", "/dev/nvme0n1p2", "/dev/dm-3", "none"]
)
def test_devices_that_the_kernel_named_stay(source: str) -> None:
    assert hidden(source=source)["source"] == source


@pytest.mark.parametrize(
    "source", ["/dev/mapper/vg_mail-alice", "mailhost7:/export", "/dev/disk/by-label/example.org"]
)
def test_devices_that_people_named_go(source: str) -> None:
    shown = hidden(source=source)["source"]
    assert shown != source
    assert not any(secret in shown for secret in SECRETS)


def test_options_keep_what_a_filesystem_does() -> None:
    options = "rw,noatime,data=ordered,commit=30,compress=zstd:3,space_cache=v2,subvolid=5"
    assert hidden(options=options)["options"] == options
    of_f2fs = "background_gc=on,mode=adaptive,alloc_mode=reuse,discard_unit=block,memory=normal"
    assert hidden(options=of_f2fs)["options"] == of_f2fs
    shown = hidden(options="rw,subvol=/alice,addr=mailhost7,vers=4.2")["options"]
    assert shown.startswith("rw,subvol=/")
    assert shown.endswith(",vers=4.2")
    assert not any(secret in shown for secret in SECRETS)


def test_what_was_asked_for_goes() -> None:
    asked = {
        "comms": ["imap", "filter-bob"],
        "cgroups": ["/sys/fs/cgroup/system.slice/dovecot.service", "user.slice/alice.slice"],
        "units": ["postfix@-.service", "alice.service"],
        "exes": ["/usr/lib/dovecot/imap", "/home/alice/filter-bob"],
        "pids": [7],
        "command": True,
    }
    private = Private(Hiding(KEY), PATHS, [b"/var/mail"])
    shown = private.meta({"filter": asked})
    assert not any(secret in json.dumps(shown) for secret in SECRETS)
    assert shown["filter"]["cgroups"][0].endswith("/cgroup/system.slice/dovecot.service")
    assert (shown["filter"]["pids"], shown["filter"]["command"]) == ([7], True)
    assert shown["filter"]["comms"][0] == "imap"
    assert shown["filter"]["units"][0] == "postfix@-.service"
    assert shown["filter"]["exes"][0] == "/usr/lib/dovecot/imap"
