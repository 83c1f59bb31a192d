"""Names with markup stay text, although Plotly interprets tags, and a page is HTML."""

import json
import re

from spoolscope.report.build import trace_page
from spoolscope.report.render import render

MS = 1_000_000
COMMIT = "schedule < jbd2_log_wait_commit < ext4_sync_file"
NAME = "<b>x</b>"


def texts(value):
    if isinstance(value, dict):
        return [text for part in value.values() for text in texts(part)]
    if isinstance(value, list):
        return [text for part in value for text in texts(part)]
    return [value] if isinstance(value, str) else []


def test_no_figure_of_a_page_reads_a_name_as_markup(builder):
    builder.thread(100, NAME)
    call = builder.call("fsync", 0, MS, ((COMMIT, 9 * MS),), comm=NAME, path=f"u/{NAME}/1")
    builder.commit(0, 9 * MS, trigger="call", trigger_pid=100, trigger_tid=100,
                   trigger_seq=call["seq"], trigger_comm=NAME)  # fmt: skip
    html = render(trace_page(builder.write()))
    drawn = re.findall(r'<script type="application/json" id="data-([^"]+)">(.*?)</script>', html)
    assert {"commits-0", "icicle-0", "explorer-0"} <= {key for key, _ in drawn}
    found = [text for _, data in drawn for text in texts(json.loads(data))]
    assert not [text for text in found if "<b>x" in text]
    assert [text for text in found if "&lt;b&gt;x" in text]
    assert NAME not in html
    (data,) = re.findall(r'<script[^>]*class="window-data"[^>]*>(.*?)</script>', html)
    assert json.loads(data)["processes"] == [f"{NAME} (100)"]
