"""Code that kjournaltop and spooltop share: options, loading, and a screen that is refreshed."""

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RELEASE = os.uname().release
BTF = Path("/sys/kernel/btf/vmlinux")
# Characters that are printable to Python but invisible.
UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def fail(sentence: str) -> None:
    """End with one line that states what to do."""
    sys.exit(f"{Path(sys.argv[0]).stem}: {shown(sentence)}")


def shown(text: str) -> str:
    """Return a name without terminal controls, as spoolscope.traces.text does."""
    return "".join(c if c.isprintable() and not UNSEEN.match(c) else number(ord(c)) for c in text)


def number(code: int) -> str:
    """Return the number of an invisible character, as an escape."""
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def options(description: str, examples: str, device: str) -> argparse.ArgumentParser:
    """Return BCC's usual options of a top; ``device`` is the help of -d."""
    parser = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=examples,
    )
    parser.add_argument("-p", "--pid", type=int, help="this process only")
    parser.add_argument("-c", "--comm", help="processes of this name only")
    parser.add_argument("-d", "--device", help=device)
    parser.add_argument("-C", "--noclear", action="store_true", help="don't clear the screen")
    parser.add_argument("-r", "--maxrows", type=int, default=20, help="maximum rows, default 20")
    parser.add_argument("--ebpf", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("interval", nargs="?", type=int, default=1, help="seconds, default 1")
    parser.add_argument("count", nargs="?", type=int, help="number of outputs")
    return parser


def load(text: str) -> Any:
    """Compile and attach a BPF program, or end with a sentence."""
    if os.geteuid() != 0:
        fail("needs root, for BPF")
    try:
        from bcc import BPF
    except ImportError:
        fail("needs BCC for this Python: apt-get install python3-bpfcc")
    if not Path(f"/lib/modules/{RELEASE}/build").exists():
        fail(f"no headers of this kernel for BCC: apt-get install linux-headers-{RELEASE}")
    try:
        return BPF(text=text)
    except Exception as error:  # BCC raises nothing more specific
        fail(f"BCC cannot load its program ({error}); mount -t debugfs none /sys/kernel/debug?")


def milliseconds(ns: int) -> str:
    """Format nanoseconds as milliseconds; from ten seconds on without the decimal."""
    return f"{ns / 1e6:.{1 if ns < 9_999_950_000 else 0}f}"


def refresh(args: argparse.Namespace, heading: str, rows: Callable[[], list[str]]) -> None:
    """Print ``heading`` and the result of ``rows`` every interval, and once more at Ctrl-C."""
    print(f"Tracing... Output every {args.interval} secs. Hit Ctrl-C to end", flush=True)
    left = args.count
    asked_to_end = False
    while left != 0 and not asked_to_end:
        try:
            time.sleep(args.interval)
        except KeyboardInterrupt:
            asked_to_end = True
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        if args.noclear or not sys.stdout.isatty():
            print()
        else:
            subprocess.run(["clear"], check=False)
        load_average = Path("/proc/loadavg").read_text().strip()
        print(f"{time.strftime('%H:%M:%S')} loadavg: {load_average}\n\n{heading}")
        for row in rows()[: args.maxrows]:
            print(shown(row))
        sys.stdout.flush()
        left = left - 1 if left else left
    print("Detaching...")
