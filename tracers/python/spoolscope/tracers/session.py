"""Record: run spoolscope-record, watch it, convert what it captured."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spoolscope.tracers.convert import convert
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.native import find_binary
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
    comms: list[str] = field(default_factory=list)
    keep_names: bool = False
    snapshot: bool = True
    key_file: Path | None = None


@dataclass(frozen=True)
class Summary:
    """What was recorded.

    Attributes:
        trace: The trace directory.
        command_status: Exit status of the command as a shell gives it, or None.
        meta: The trace's meta.json.
    """

    trace: Path
    command_status: int | None
    meta: dict[str, Any]


def record(request: Request, progress: Progress | None = None) -> Summary:
    """Record into a new trace directory.

    Ctrl-C ends the recording in order; the trace is whole. The directory appears under its
    final name only when it is complete.

    Raises:
        SpoolscopeError: wrong target, missing rights, or the recorder failed.
    """
    report = progress or (lambda _what, _fraction: None)
    key = None if request.keep_names else load_key(request.key_file)
    recorder = find_binary("spoolscope-record")
    _check_output(request.output)
    parent = request.output.resolve().parent
    work = Path(tempfile.mkdtemp(prefix=f".{request.output.name}.", dir=parent))
    try:
        status = _run(recorder, request, work / CAPTURE, report)
        report("converting", None)
        meta = convert(work / CAPTURE, work, key)
        (work / CAPTURE).unlink()
    except BaseException:
        _keep_capture(work)
        raise
    for file in work.iterdir():
        file.chmod(0o600)  # the directory is 0700 as mkdtemp made it
    work.rename(request.output)
    return Summary(request.output, status, meta)


def _keep_capture(work: Path) -> None:
    """A capture that could not be converted is evidence: keep it, drop the rest."""
    if not (work / CAPTURE).exists():
        shutil.rmtree(work, ignore_errors=True)


def _check_output(output: Path) -> None:
    if output.exists():
        raise SpoolscopeError(
            f"output {output} exists", remedy="give another -o, or --force", exit_code=USAGE
        )
    if not output.resolve().parent.is_dir():
        raise SpoolscopeError(
            f"no such directory: {output.parent}",
            remedy=f"mkdir -p {output.parent}",
            exit_code=USAGE,
        )


def _arguments(request: Request, capture: Path) -> list[str]:
    words = ["run", "--output", str(capture)]
    for spool in request.spools:
        words += ["--spool", str(spool)]
    for pid in request.pids:
        words += ["--pid", str(pid)]
    for cgroup in request.cgroups:
        words += ["--cgroup", cgroup]
    for comm in request.comms:
        words += ["--comm", comm]
    if request.duration_s is not None:
        words += ["--duration", str(request.duration_s)]
    if not request.snapshot:
        words.append("--no-tree")
    if request.command:
        words += ["--", *request.command]
    return words


def _run(recorder: Path, request: Request, capture: Path, report: Progress) -> int | None:
    # The command's own stdout must not mix with the recorder's answers.
    answers = capture.with_suffix(".json")
    with answers.open("w+") as out:
        process = subprocess.Popen(
            [str(recorder), *_arguments(request, capture)],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
        try:
            error = _watch(process, answers, request, report)
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            error = process.communicate()[1]
    done = _answer(answers, "done")
    answers.unlink()
    if process.returncode != 0 or done is None:
        raise _failure(error, process.returncode)
    status: int | None = done["meta"]["command_status"]
    return status


def _watch(
    process: "subprocess.Popen[str]", answers: Path, request: Request, report: Progress
) -> str:
    ready_at: float | None = None
    report("attaching", None)
    while True:
        try:
            error = process.communicate(timeout=POLL_S)[1]
            return error or ""
        except subprocess.TimeoutExpired:
            pass
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
    lines = [line for line in error.strip().splitlines() if line]
    text = lines[-1].removeprefix("spoolscope-record: ") if lines else f"recorder exit code {code}"
    message, _, remedy = text.rpartition(": ")
    usage = "mount point" in text or "no such" in text
    return SpoolscopeError(
        message or text,
        remedy=remedy if message else "run 'spoolscope doctor'",
        exit_code=USAGE if usage else 1,
    )
