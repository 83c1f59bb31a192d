"""Number of loads of each BPF program, by strace: one, if the kernel accepts all."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]
MAIN = [sys.executable, "-m", "spoolscope.cli.main"]
LOADED = re.compile(r'BPF_PROG_LOAD.*prog_name="(\w+)"')
# strace can inject an error into the nth bpf call of a thread, but n is not the same in each run.
REFUSING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/syscall.h>

/* syscall(2) of libc, which libbpf calls: it refuses the first two loads of on_sample. */
long syscall(long number, ...)
{
    static long (*next)(long, ...);
    static int refused;
    long a[6];
    va_list args;

    va_start(args, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(args, long);
    va_end(args);
    if (number == SYS_bpf && a[0] == BPF_PROG_LOAD && refused < 2) {
        const union bpf_attr *attr = (const union bpf_attr *)a[1];

        if (!strcmp(attr->prog_name, "on_sample")) {
            refused++;
            errno = EACCES;
            return -1;
        }
    }
    if (!next)
        next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
"""


def loads(mount: Path, place: Path, *environment: str) -> Counter[str]:
    """Record one call under strace; return the number of loads of each name that the kernel got."""
    log, trace = place / "strace", place / "trace"
    traced = ["strace", "-f", "-qq", "-s", "64", "-e", "trace=bpf", *environment, "-o", log]
    words = [*MAIN, "record", "-f", "--spool", mount, "-o", trace, "--snapshot", "none"]
    subprocess.run([*traced, *words, "--", "mkdir", mount / log.name], check=True)
    (mount / log.name).rmdir()
    assert Trace.open(trace).meta["tier"] == "T2"
    return Counter(LOADED.findall(log.read_text()))


def test_each_program_is_loaded_once_and_all_again_if_one_is_refused(spool, tmp_path, require):
    require("strace")
    mount = spool("ext4")
    once = loads(mount, tmp_path)
    # The kernel keeps 15 characters, which several names may share.
    own = {name: n for name, n in once.items() if name.startswith("on_") and len(name) < 15}
    assert len(own) > 20
    assert set(own.values()) == {1}
    refusing = tmp_path / "refusing.so"
    cc = ["cc", "-shared", "-fPIC", "-o", refusing, "-x", "c", "-"]
    subprocess.run(cc, input=REFUSING, text=True, check=True)
    # It is refused once, and again when libbpf retries to get the log, but not in the survey, which
    # thus finds nothing to leave out.
    again = loads(mount, tmp_path, "-E", f"LD_PRELOAD={refusing}")
    assert again["on_exit"] == 3
    assert again["on_sample"] == 2
    assert again["on_uring_submit"] == 2
