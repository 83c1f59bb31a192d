"""A builder of captures, event by event, and other fixtures."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spoolscope_testing.capture_story import CaptureStory

from spoolscope.tracers.path_ids import PathIds
from spoolscope.tracers.resolve import resolve
from spoolscope.tracers.strace.importer import Begun, import_strace
from spoolscope.traces.private import Hiding
from spoolscope.traces.trace import Trace

Import = Callable[..., Trace]


class Story(CaptureStory):
    """A capture, and the tree at its start as the recorder finds it."""

    def rows(self) -> list[dict[str, Any]]:
        """Return the tree at the start, in the order of its table, with whole paths."""
        capture = self.end()
        resolved = resolve(capture)
        ids = PathIds(capture, resolved)
        found: list[dict[str, Any]] = []
        for part in resolved.state.tree(ids.id, ids.text_id, ids.quiet_ids):
            columns = [part[name].tolist() for name in part]
            found += [dict(zip(part, row, strict=True)) for row in zip(*columns, strict=True)]
        paths: dict[int, str] = {}
        for part in ids.columns(None):
            paths.update(zip(part["path_id"].tolist(), part["path"].to_pylist(), strict=True))
        whole = {number: f"/spool/{path}".rstrip("/") for number, path in paths.items()}
        return [{**row, "path": whole[row["path_id"]]} for row in found]

    def tree(self) -> dict[str, int]:
        """Return the inode of every name at the start that the walk has met."""
        return {row["path"]: row["ino"] for row in self.rows()}


@pytest.fixture
def new_story() -> type[Story]:
    """Return the class; ``new_story()`` begins an empty capture."""
    return Story


@pytest.fixture
def imported(tmp_path: Path) -> Import:
    """Return ``imported({name: text})``, which returns the trace of these files of strace."""

    def make(
        files: dict[str, str],
        hiding: Hiding | None = None,
        root: str = "/spool",
        pid: int | None = None,
        cwd: str | None = None,
    ) -> Trace:
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        paths, output = [tmp_path / name for name in files], tmp_path / "trace"
        if output.exists():
            output = tmp_path / "trace2"
        begun = Begun(pid, Path(cwd) if cwd else None)
        import_strace(paths, Path(root), output, hiding, lambda _what, _fraction: None, begun)
        return Trace.open(output)

    return make


@pytest.fixture
def calls() -> Callable[[Trace], list[dict[str, Any]]]:
    """Return ``calls(trace)``, which returns its calls in order of time, with their names."""

    def rows(trace: Trace) -> list[dict[str, Any]]:
        paths = {row["path_id"]: row["path"] for row in trace.table("paths").to_pylist()}
        found = trace.table("syscalls").to_pylist()
        for row in found:
            row["path"], row["path2"] = paths.get(row["path_id"]), paths.get(row["path2_id"])
        return found

    return rows
