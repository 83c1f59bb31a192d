"""A large directory with and without an index, searched from a cold cache."""

import subprocess
from pathlib import Path

import pytest

from spoolscope.analysis.explain import explain
from spoolscope.tracers.session import Request, record

pytestmark = [pytest.mark.root, pytest.mark.times, pytest.mark.trials(1, least=1)]
NAMES = 20_000

SEARCH = """
import os, random, sys
open("/proc/sys/vm/drop_caches", "w").write("3")  # the walk of the tree has read it all
# In the order of their names a linear search goes on where the last one ended.
for n in random.Random(1).sample(range(20000), 4000):
    os.stat(f"{sys.argv[1]}/big/{n}.a-mail-with-a-name-of-some-length")
for n in range(200):
    os.stat(f"{sys.argv[1]}/small/{n % 20}")
    os.close(os.open(f"{sys.argv[1]}/small/new{n}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
"""


def searched(tmp_path: Path, name: str, *mkfs: str):
    """Record the search of a fresh image; return its explanation and reads by the disk's count."""
    image, mount = tmp_path / f"{name}.img", tmp_path / name
    mount.mkdir()
    with image.open("wb") as file:
        file.truncate(256 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", *mkfs, image], check=True)
    options = ["mount", "-o", "loop,noatime", image, mount]
    subprocess.run(options, check=True)
    try:
        (mount / "big").mkdir()
        (mount / "small").mkdir()
        for n in range(NAMES):
            (mount / "big" / f"{n}.a-mail-with-a-name-of-some-length").touch()
        for n in range(20):
            (mount / "small" / str(n)).touch()
        subprocess.run(["umount", mount], check=True)  # every cache is empty
        subprocess.run(options, check=True)
        command = ["/usr/bin/python3", "-S", "-c", SEARCH, str(mount)]
        request = Request(spools=[mount], output=tmp_path / f"{name}.trace", command=command,
                          keep_names=True)  # fmt: skip
        return explain(record(request).trace)
    finally:
        subprocess.run(["umount", "-l", mount], check=True)


def test_a_directory_without_an_index_is_named_with_its_size(require, tmp_path):
    require("bpf")
    require("ext4")
    without = searched(tmp_path, "without", "-O", "^dir_index")
    indexed = searched(tmp_path, "indexed", "-O", "dir_index")
    print(without.lookups[:2], indexed.lookups[:2], without.causes)
    features = [found.meta["spools"][0]["features"] for found in (without, indexed)]
    assert ["dir_index" in each for each in features] == [False, True]
    cost = without.lookups[0]
    assert (cost.path, cost.entries, cost.index) == ("big", NAMES, "none")
    assert cost.lookup_io_ns > 0
    # A search of cached blocks is CPU work, and nearly all of the CPU time.
    assert cost.cpu_ns > 0.6 * without.causes["cpu"]
    assert "big with 20,000 names and without dir_index costs" in cost.sentence
    same = next(c for c in indexed.lookups if c.path == "big")
    assert same.index == "hash"
    assert same.cpu_ns < cost.cpu_ns / 3
