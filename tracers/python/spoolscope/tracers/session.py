"""Record: run spoolscope-record, watch it, convert what it captured."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spoolscope.tracers.convert import convert
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.flat import DTYPES
from spoolscope.traces.native import find_binary
from spoolscope.traces.output import check_output, publish, work_directory
from spoolscope.traces.pseudonym import load_key

Progress = Callable[[str, float | None], None]
CAPTURE = "capture.seg"
POLL_S = 0.1


@dataclass(frozen=True)
class Request:
    """What to record; see ``spoolscope record --help``."""

    spools: list[Path]
    output: Path
    command: list[str] | None = None
    duration_s: float | None = None
    pids: list[int] = field(default_factory=list)
    cgroups: list[str] = field(default_factory=list)
    units: list[str] = field(default_factory=list)
    exes: list[Path] = field(default_factory=list)
    comms: list[str] = field(default_factory=list)
    max_overhead_percent: float | None = None
    keep_names: bool = False
    snapshot: bool = True
    key_file: Path | None = None
    stdout_to_stderr: bool = False


@dataclass(frozen=True)
class Summary:
    """What was recorded.

    Attributes:
        trace: The trace directory.
        command_status: Exit status of the command as a shell gives it, or None.
        meta: The trace's meta.json.
        failure: Why the recorder ended early, or None; the trace holds what came before.
    """

    trace: Path
    command_status: int | None
    meta: dict[str, Any]
    failure: str | None = None


def record(request: Request, progress: Progress | None = None) -> Summary:
    """Record into a new trace directory.

    Ctrl-C ends the recording in order; the trace is whole. The directory appears under its
    final name only when it is complete.

    Raises:
        SpoolscopeError: wrong target, missing rights, or the recorder failed.
    """
    report = progress or (lambda _what, _fraction: None)
    key = None if request.keep_names else load_key(request.key_file, outside=request.output)
    recorder = find_binary("spoolscope-record")
    check_output(request.output)
    refuse_output_on_spool(request.output, request.spools)
    work = work_directory(request.output)
    status, failure = None, None
    try:
        status = _run(recorder, request, work / CAPTURE, report)
    except SpoolscopeError as error:
        if not _worth_keeping(work / CAPTURE):
            shutil.rmtree(work)
            raise
        failure = f"{error.message}: {error.remedy}"
    report("converting", None)
    meta = _finish(work / CAPTURE, work, request.output, key)
    return Summary(request.output, status, meta, failure)


def recover(capture: Path, output: Path, key: bytes | None) -> Summary:
    """Convert a capture that an interrupted recording left behind.

    Args:
        capture: The capture file, or the directory that holds it; it is kept.
        output: Trace directory to write.
        key: Pseudonym key, or None to keep names.
    """
    file = capture / CAPTURE if capture.is_dir() else capture
    if not file.is_file():
        raise SpoolscopeError(
            f"no capture at {capture}",
            remedy=f"give the directory .NAME.xxxx that holds {CAPTURE}",
            exit_code=USAGE,
        )
    check_output(output)
    meta = _finish(file, work_directory(output), output, key)
    return Summary(output, None, meta)


def _worth_keeping(capture: Path) -> bool:
    return capture.exists() and capture.stat().st_size > DTYPES["file_header"].itemsize


def _finish(capture: Path, work: Path, output: Path, key: bytes | None) -> dict[str, Any]:
    """Convert in a work directory, then give it its name; a failure leaves the capture."""
    try:
        meta = convert(capture, work, key)
    except OSError as error:
        raise SpoolscopeError(
            f"cannot write the trace: {error.strerror}",
            remedy=f"make room, then 'spoolscope record --recover {capture} -o {output}'",
        ) from error
    if capture.parent == work:
        capture.unlink()
    publish(work, output)
    return meta


def refuse_output_on_spool(output: Path, spools: list[Path]) -> None:
    """Before anything is created: not even a temporary directory may change the spool."""
    _, device = _mount_of(output.resolve().parent)
    for spool in spools:
        mount, of_spool = _mount_of(spool.resolve())
        # Whether it is a mount point at all the recorder tells.
        if of_spool == device and mount == str(spool.resolve()):
            raise SpoolscopeError(f"{output} lies on the spool itself", remedy="choose another -o")


def _mount_of(path: Path) -> tuple[str, str]:
    """Return the mount point that a path lies below, and major:minor of its superblock.

    stat(2) gives every btrfs subvolume a device number of its own; mountinfo, proc(5), does not.
    """
    found = ("", "")
    for line in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        words = line.split(" ")
        mount = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), words[4])
        if path.is_relative_to(mount) and len(mount) >= len(found[0]):
            found = mount, words[2]  # of mounts on one place the last one is seen
    return found


def _arguments(request: Request, capture: Path, answers: Path) -> list[str]:
    words = ["run", "--output", str(capture), "--answers", str(answers)]
    for spool in request.spools:
        words += ["--spool", str(spool)]
    for pid in request.pids:
        words += ["--pid", str(pid)]
    for cgroup in request.cgroups:
        words += ["--cgroup", cgroup]
    for unit in request.units:
        words += ["--unit", unit]
    for exe in request.exes:
        words += ["--exe", str(exe)]
    for comm in request.comms:
        words += ["--comm", comm]
    if request.max_overhead_percent is not None:
        words += ["--max-overhead", str(request.max_overhead_percent)]
    if request.duration_s is not None:
        words += ["--duration", str(request.duration_s)]
    if not request.snapshot:
        words.append("--no-tree")
    if request.command:
        words += ["--", *request.command]
    return words


def _run(recorder: Path, request: Request, capture: Path, report: Progress) -> int | None:
    answers = capture.with_suffix(".json")
    answers.touch()
    process = subprocess.Popen(
        [str(recorder), *_arguments(request, capture, answers)],
        stdout=sys.stderr if request.stdout_to_stderr else None,
    )
    try:
        _watch(process, answers, request, report)
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        process.wait()
    done, error = _answer(answers, "done"), _answer(answers, "error")
    answers.unlink()
    if process.returncode != 0 or done is None:
        raise _failure(error["message"] if error else "", process.returncode)
    status: int | None = done["meta"]["command_status"]
    return status


def _watch(
    process: "subprocess.Popen[bytes]", answers: Path, request: Request, report: Progress
) -> None:
    """Wait for the recorder itself: a command that outlives it does not hold us up."""
    ready_at: float | None = None
    report("attaching", None)
    while True:
        try:
            process.wait(timeout=POLL_S)
        except subprocess.TimeoutExpired:
            pass
        else:
            return
        if ready_at is None and _answer(answers, "ready") is not None:
            ready_at = time.monotonic()
        if ready_at is not None:
            spent = time.monotonic() - ready_at
            done = min(spent / request.duration_s, 1.0) if request.duration_s else None
            report("recording", done)


def _answer(answers: Path, event: str) -> dict[str, Any] | None:
    for line in answers.read_text(errors="replace").splitlines():
        if line.startswith('{"') and f'"event":"{event}"' in line:
            answer: dict[str, Any] = json.loads(line)
            return answer
    return None


def _failure(error: str, code: int) -> SpoolscopeError:
    text = error.strip() or f"the recorder ended with code {code}"
    message, _, remedy = text.rpartition(": ")
    usage = "mount point" in text or "no such" in text
    return SpoolscopeError(
        message or text,
        remedy=remedy if message else "run 'spoolscope doctor'",
        exit_code=USAGE if usage else 1,
    )
