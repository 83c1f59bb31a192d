"""The recorder, for --freeze-on, and the analysis name the same cause for every judged stack."""

import json
import subprocess
from pathlib import Path

from spoolscope.analysis.stack_rules import classify
from spoolscope.cli.freeze_rules import FreezeRuleType, cause_rules
from spoolscope.traces.native import find_binary

HERE = Path(__file__).parent
# Clones by compilers, and work with other work inside it.
MORE = (
    "schedule < jbd2_log_wait_commit.part.0 < ext4_sync_file.isra.0.cold",
    "schedule < folio_wait_writeback < shrink_folio_list < try_to_free_pages < vfs_write",
    "__mutex_lock < shrink_slab < do_try_to_free_pages",
    "schedule < nothing_that_is_known",
)


def test_every_stack_has_the_same_cause_in_the_recorder_and_in_the_analysis(tmp_path):
    files = (HERE / "hung_tasks.tsv", HERE / "recorded_waits.tsv")
    lines = [line for file in files for line in file.read_text().splitlines() if line[0] != "#"]
    stacks = [*(line.split("\t")[5] for line in lines), *MORE]
    rules = tmp_path / "causes.json"
    rule = FreezeRuleType().convert("flush > 1s", None, None)
    rules.write_text(json.dumps(cause_rules([rule])))
    done = subprocess.run(
        [find_binary("spoolscope-record"), "classify", rules],
        input="\n".join(stacks), capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = [classify(stack.split(" < ")) for stack in stacks]
    assert len(stacks) > 350
    assert done.stdout.splitlines() == [one.cause if one else "" for one in found]
