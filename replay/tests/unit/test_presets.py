"""Named candidates: the shipped ones have a reason and a source; wrong files and options."""

import re
import tomllib
from pathlib import Path

import pytest

from spoolscope.replay.candidates import parse
from spoolscope.replay.commands import carried_out, formatting, mounting, own_words
from spoolscope.replay.presets import OURS, config_file, known, presets
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.filesystems import FILESYSTEMS

BLOCKS = tomllib.loads(OURS.read_text())
# The rows of the five comparisons, as they were published: words of mkfs, options of mount.
PUBLISHED = {
    "c2004-ext3": ("-J size=256 -T news", ""),
    "c2004-ext3-dir-index": ("-J size=256 -T news -O dir_index", ""),
    "c2004-reiserfs": ("", ""),
    "c2004-reiser4": ("", ""),
    "c2004-ext2": ("", ""),
    "c2004-raid5-xfs": ("-b size=1024 -d su=16k,sw=3", ""),
    "c2004-raid5-reiserfs": ("", ""),
    "c2004-raid5-ext2": ("", ""),
    **{f"c2005-{name}": ("", "") for name in ("reiserfs", "ext3", "ufs2")},
    "c2005-ext3-dir-index": ("-O dir_index", ""),
    "c2005-reiserfs-noatime": ("", "noatime"),
    "c2005-ext3-noatime": ("", "noatime"),
    "c2005-ext3-dir-index-noatime": ("-O dir_index", "noatime"),
    **{f"c2005-ufs2-{name}": ("", "") for name in ("no-softupdates", "sync", "avgfiles512")},
    "c2005-ufs2-dirhash": ("", ""),
    **{f"c2006-{fstype}": ("", "") for fstype in ("ext3", "reiserfs", "jfs", "xfs")},
    **{
        f"c2007-{name}-{mode}": (words, f"noatime,nodiratime{tail},data={mode}")
        for name, words, tail in (
            ("ext3", "-J size=100 -m 1 -O dir_index,filetype,has_journal", ""),
            ("reiserfs", "-b 4096 -s 16386", ",notail"),
        )
        for mode in ("journal", "ordered", "writeback")
    },
    "c2007-xfs": ("-l size=64m -d agcount=16", "noatime,nodiratime,logbufs=8"),
    "c2007-jfs": ("-s 64", ""),
    **{
        f"c2008-ext3-{mode}": ("-j -J size=400 -i 8192 -O dir_index", f"noatime,data={mode}")
        for mode in ("journal", "ordered", "writeback")
    },
    "c2008-xfs": ("-l size=32768b,version=2", "noatime,logbufs=8,logbsize=131072"),
    "c2008-reiserfs": ("--journal-size 32749 --format 3.6", "noatime,notail"),
    "c2008-jfs": ("", "noatime"),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_every_candidate_says_why_and_from_where(name):
    candidate = presets()[name]
    assert re.fullmatch(r"(?!.*[.?] [A-Z]).+[.?]", BLOCKS[name]["reason"]), "one sentence"
    assert candidate.source
    assert re.fullmatch(r"same|weaker: .+", candidate.durability)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_configurations_are_here_by_name(name):
    candidate = presets()[name]
    words, options = PUBLISHED[name]
    given = " ".join(candidate.mkfs)
    assert words in given
    if "-O ^dir_index" in given:
        assert "^dir_index" in candidate.instead
    assert set(filter(None, options.split(","))) <= set(candidate.mount_options.split(","))
    assert ("noatime" in candidate.mount_options) == ("noatime" in options or not candidate.kernels)


def test_every_row_of_a_comparison_is_published():
    assert {name for name in BLOCKS if re.match(r"c20\d\d-", name)} == set(PUBLISHED)


def test_every_filesystem_has_a_candidate():
    assert {candidate.fstype for candidate in presets().values()} == set(FILESYSTEMS)


def test_weaker_durability_is_inherited():
    assert presets()["f2fs-strict"].durability == "same"
    assert parse("f2fs[; noatime]").durability.startswith("weaker: ")
    assert parse("ext4[-O ^has_journal]").durability == "not stated"
    assert parse("ext4").durability == "same"


def test_options_given_on_the_command_line():
    candidate = parse("ext3[-J size=256 -T news -O dir_index; data=journal,noatime]")
    assert candidate.mkfs[-6:] == ("-J", "size=256", "-T", "news", "-O", "dir_index")
    assert candidate.mount_options == "data=journal,noatime,nosuid,nodev"
    assert candidate.label == "ext3-J-size-256-T-news-O-dir_index-data-journal-noatime"
    assert parse("xfs[-m reflink=0]").mount_options == parse("xfs").mount_options
    assert parse("xfs[; lazytime]").mkfs == parse("xfs").mkfs
    assert len(parse(f"ext4[-L {'x' * 300}]").label) < 80


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ext9", "unknown candidate 'ext9'"),
        ("ext9[-O x]", "unknown candidate"),
        ("ext4[-O x", "is not NAME"),
        ("ext4[a;b;c]", "is not NAME"),
        ("ext4[-J device=/dev/sda]", "mkfs: 'device=/dev/sda' names a path"),
        ("btrfs[/dev/sda]", "mkfs: '/dev/sda' names a path"),
        ("btrfs[sda]", "mkfs: 'sda' is no option"),
        ("ext4[-J device=LABEL=x]", "mkfs: 'device=LABEL=x' names a device"),
        ("ext4[-J UUID=x]", "mkfs: 'UUID=x' names a device"),
        ("xfs[-l size=8m,logdev=sdb]", "mkfs: 'size=8m,logdev=sdb' names a device"),
        ("xfs[; logdev=sdb]", "mount: 'logdev' is not for a candidate to choose"),
        ("ext4[; offset=4096]", "mount: 'offset' is not for a candidate to choose"),
        ("ext4[; x-a=b]", "mount: 'x-a' is not for a candidate to choose"),
        ('ext4[; data="]', "is no plain option"),
        ("ext4[; data=\\]", "is no plain option"),
        ("ext4[-L 'x]", "mkfs: No closing quotation"),
        ("ext4[; journal_path=/dev/sda]", "mount: 'journal_path=/dev/sda' is no plain option"),
        ("ext4[; data=journal -o bind]", "mount: 'data=journal -o bind' is no plain option"),
        ("ext4[; remount]", "mount: 'remount' is not for a candidate to choose"),
        ("ext4[; suid]", "mount: 'suid' is not for a candidate to choose"),
        ("overlay-ext4[; lowerdir=/etc]", "mount: 'lowerdir=/etc' is no plain option"),
    ],
)
def test_options_that_are_refused(text, said):
    with pytest.raises(SpoolscopeError) as error:
        parse(text)
    assert said in error.value.message
    assert error.value.exit_code == USAGE


def test_a_bare_word_names_no_file_of_the_directory_one_is_in(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    image, other = tmp_path / "image", tmp_path / "sdb"
    for file in (image, other):
        with file.open("wb") as opened:
            opened.truncate(256 << 20)
    candidate = parse("btrfs[-f sdb]")
    with pytest.raises(SpoolscopeError, match="refuses"):
        carried_out(formatting(candidate, str(image)))
    assert other.stat().st_blocks == 0


def test_a_shell_has_no_part_in_it():
    """Text that a shell would expand is one word of mkfs."""
    candidate = parse("ext4[-L $(reboot);noatime]")
    (words,) = formatting(candidate, "DEVICE")
    assert words[-3:] == ("-L", "$(reboot)", "DEVICE")


FILE = """
[ours]
like = "ext4"
mkfs = "-O ^dir_index"

[crypted]
like = "ours"
on = ["dm-crypt"]
reason = "As in production."

["over.it"]
filesystem = "overlay"
on = ["ours"]
mount = "index=off"
"""


def test_a_file_of_ones_own(tmp_path: Path):
    file = tmp_path / "c.toml"
    file.write_text(FILE)
    every = known((file,))
    assert len(every) == len(presets()) + 3
    assert every["crypted"].layers == ("dm-crypt",)
    assert every["ours"].durability == "not stated"
    assert parse("crypted[-O fast_commit]", every).mkfs[-2:] == ("-O", "^dir_index,fast_commit")
    assert every["over.it"].mkfs == every["ours"].mkfs
    commands = mounting(every["over.it"], "DEV", Path("/m"), loop=True)
    assert commands[0] == (
        "mount", "-t", "ext4", "-o", "loop,noatime,nosuid,nodev", "DEV", "/m",
    )  # fmt: skip
    assert "index=off" in commands[-1][4]


def test_the_operators_own_are_known_without_being_named(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert "ours" not in known()
    config_file().parent.mkdir()
    config_file().write_text(FILE)
    assert "ours" in known()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a\n", "c.toml: "),
        ("[a]\nb = 1", "c.toml:1: [a] b: no such key"),
        ("\n[a]\nmkfs = 1", "c.toml:2: [a] mkfs: it is text in quotes"),
        ("[a]", "c.toml:1: [a] filesystem: 'a' is none of"),
        ("[a]\nlike = 'b'", "c.toml:1: [a] like: there is no candidate 'b'"),
        ("[a]\nlike = 'b'\n[b]\nlike = 'a'", "[a] like: it is like itself: a -> b -> a"),
        ("[xfs]\nmkfs = '-K'", "c.toml:1: [xfs] has the name of another candidate"),
        ("[a]\nlike='ext4'\n[a]\nlike='xfs'", "c.toml: "),
        ("['a/b']\nlike='ext4'", "c.toml:1: [a/b] is no block with a name of letters"),
        ("[a]\nlike='ext4'\njournal='big'", "journal: 'big' is no size such as '256 MiB'"),
        ("[a]\nlike='btrfs'\njournal='8 MiB'", "journal: btrfs has no separate journal"),
        ("[a]\nlike='ext4'\non=['floppy']", "on: 'floppy' is none of dm-crypt, lvm"),
        ("[a]\nlike='ext4'\nexport='async'", "export: no server exports ext4"),
        ("[a]\nlike='nfs3'\nexport='ro'", "export: 'ro' is none of sync, async"),
        ("[a]\nfilesystem='overlay'\non=['ext4-lvm']", "on: 'ext4-lvm' needs more than one disk"),
        ("[a]\nfilesystem='nfs'\non=['xfs-external-log']", "needs more than one disk"),
        ("[a]\nfilesystem='overlay'", "on: overlay lies on one other candidate"),
        ("[a]\nlike='ext4'\nfilesystem='xfs'", "filesystem: 'xfs'"),
        ("[a]\nlike='ext4'\ndurability='fine'", "durability: it is 'same' or 'weaker: ' and why"),
        ("a = 1", "[a] is no block"),
    ],
)
def test_a_file_that_is_wrong_says_where(text, said, tmp_path):
    file = tmp_path / "c.toml"
    file.write_text(text)
    with pytest.raises(SpoolscopeError) as error:
        known((file,))
    assert said in error.value.message
    assert error.value.exit_code == USAGE


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(SpoolscopeError, match=r"c.toml: No such file or directory$") as error:
        known((tmp_path / "c.toml",))
    assert error.value.exit_code == USAGE


# Messages of the programs of Debian 12.
WORDS = {
    "Total journal size too big for filesystem.": ("mke2fs 1.47.0 (5-Feb-2023)\n\n", "\n"),
    "Log size must be at least 64MB.": ("", "\nUsage: mkfs.xfs\n/* blocksize */\n"),
    "mkfs.btrfs: unrecognized option '--foo'": ("", "\nusage: mkfs.btrfs [options] <dev>\n"),
    "Log size not specified for -s.": ("mkfs.jfs version 1.1.15, 04-Mar-2011\n\n", "\n\nUsage:"),
    "Error: invalid blocksize: 3": ("mkfs.nilfs2 (nilfs-utils 2.2.9)\n", ""),
    "WARNING: Journal size (3) is less": ("mkfs.reiserfs 3.6.27\n\n", "\n"),
    "a; b; c": ("", "\nd"),
    "no message": ("\n", ""),
}


@pytest.mark.parametrize("words", WORDS)
def test_a_program_that_refuses_has_the_word(words):
    before, after = WORDS[words]
    said = {"no message": "", "a; b; c": "a\nb\nc"}.get(words, words)
    assert own_words(f"{before}{said}{after}") == words
