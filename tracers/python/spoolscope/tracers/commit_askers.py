"""Kinds of tasks that ask for a commit outside recorded calls, recognised by their stacks."""

import numpy as np

from spoolscope.traces.capture import Capture

# A stack with any of these frames is of the kind; the first kind that fits counts.
ASKERS = {
    "timer": (
        "commit_timeout", "call_timer_fn", "xfs_log_worker",  # the first ends in a tail call
        "flush_async_commits", "flush_old_commits", "reiserfs_flush_old_commits",
    ),
    "checkpoint": (
        "__jbd2_log_wait_for_space", "jbd2_log_do_checkpoint", "xfsaild", "xfsaild_push",
    ),
    "writeback": ("wb_workfn", "wb_do_writeback", "wb_writeback", "writeback_sb_inodes"),
}  # fmt: skip


class Askers:
    """Classifies what asked for a commit: a recorded call, or else a task, by its stack."""

    def __init__(self, capture: Capture) -> None:
        self._stacks = {
            kind: set(capture.stacks_with(*frames).tolist()) for kind, frames in ASKERS.items()
        }

    def kind(self, event: np.void, seq: int) -> str:
        """Return a value of the column trigger; "other" is a task that is not recorded."""
        if seq >= 0:
            return "call"
        return self.of(int(event["stack"]))

    def of(self, stack: int) -> str:
        """Return the kind of task that is on a stack."""
        return next((kind for kind, known in self._stacks.items() if stack in known), "other")


def comms_of(capture: Capture) -> dict[int, bytes]:
    """Return the last known name of each thread."""
    tasks = capture.records["task"]
    named = zip(tasks["tid"].tolist(), tasks["comm"].tolist(), strict=True)
    return {tid: comm for tid, comm in named if comm}
