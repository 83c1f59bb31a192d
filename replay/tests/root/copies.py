"""Threads that share descriptor numbers and copy files, by position and by given offsets.

copies.py DIRECTORY

The expected results of calls, positions and contents of files are computed here, independently of
any trace.
"""

import os
import shutil
import sys
import threading
from pathlib import Path

THREADS, FILES = 3, 40


def copy(source: Path, target: Path, data: bytes) -> None:
    """Copy parts of a file into a new one in every way there is."""
    at = len(data)
    whole = bytearray()

    def wrote(part: bytes, where: int) -> None:
        whole[where : where + len(part)] = part.rjust(len(part), b"\0")

    given, new = os.open(source, os.O_RDONLY), os.open(target, os.O_RDWR | os.O_CREAT, 0o600)
    assert os.sendfile(new, given, at // 2, at // 3) == at // 3
    wrote(data[at // 2 : at // 2 + at // 3], 0)
    assert os.sendfile(new, given, None, 50) == 50
    wrote(data[:50], at // 3)
    assert os.copy_file_range(given, new, at // 4, 3, 7) == at // 4
    wrote(data[3 : 3 + at // 4], 7)
    assert os.copy_file_range(given, new, 64) == 64
    wrote(data[50:114], at // 3 + 50)
    reader, writer = os.pipe()
    assert os.splice(given, writer, 30, offset_src=at // 5) == 30
    assert os.splice(reader, new, 30, offset_dst=11) == 30
    wrote(data[at // 5 : at // 5 + 30], 11)
    assert os.splice(given, writer, 20) == os.splice(reader, new, 20) == 20
    wrote(data[114:134], at // 3 + 114)
    os.close(reader)
    os.close(writer)
    nowhere = os.open("/dev/null", os.O_WRONLY)
    assert os.sendfile(nowhere, given, at - 20, 100) == 20
    os.close(nowhere)
    assert os.lseek(given, 0, os.SEEK_CUR) == 134
    assert os.lseek(new, 0, os.SEEK_CUR) == at // 3 + 134
    assert os.pread(new, at, 0) == whole
    os.close(given)
    os.close(new)


def work(directory: Path) -> None:
    """Make files and copy them, then the directory with them."""
    directory.mkdir()
    for number in range(FILES):
        data = os.urandom(1_000 + 997 * number)
        source = directory / f"mail{number}"
        source.write_bytes(data)
        shutil.copyfile(source, directory / f"whole{number}")
        copy(source, directory / f"parts{number}", data)
        if number % 10 == 9:
            shutil.copytree(directory, directory.with_suffix(".old"))
            shutil.rmtree(directory.with_suffix(".old"))


def main() -> None:
    """Run the threads; fail if an assertion in one of them fails."""
    failed: list[threading.ExceptHookArgs] = []
    threading.excepthook = failed.append
    places = [Path(sys.argv[1], f"user{number}") for number in range(THREADS)]
    threads = [threading.Thread(target=work, args=(place,)) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.exit(f"{failed[0].exc_value!r}" if failed else 0)


main()
