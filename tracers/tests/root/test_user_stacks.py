"""User stacks of fsync: programs whose functions make given numbers of calls."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spoolscope.analysis.explain import explain
from spoolscope.tracers.session import Request, record
from spoolscope.traces.trace import Trace

pytestmark = [pytest.mark.root, pytest.mark.steady]

SOURCE = Path(__file__).with_name("askers.c")
FRAMES, NONE = ["-O2", "-fno-omit-frame-pointer"], ["-O2", "-fomit-frame-pointer"]
ASKED = {"sync_index": 31, "sync_mail": 17, "sync_raw": 5}


@pytest.fixture
def askers(tmp_path, require):
    require("bpf")
    made = []
    for name, options in (("withframes", FRAMES), ("without", NONE)):
        made.append(tmp_path / name)
        subprocess.run(["cc", *options, "-o", made[-1], SOURCE], check=True)
    return made


def test_functions_ask_so_often_as_they_were_told(spool, tmp_path, askers):
    mount = spool("ext4")
    # Each program ends a moment after its calls, so that the recorder can read its mappings.
    words = " ".join(map(str, ASKED.values()))
    runs = [f"(sleep 1) | {program} {mount}/{program.name} {words}" for program in askers]
    command = ["sh", "-c", " & ".join(runs) + " & wait"]
    request = Request(
        spools=[mount], output=tmp_path / "t", command=command, keep_names=True, user_stacks="sync"
    )
    trace = Trace.open(record(request).trace)
    assert trace.meta["user_stacks"]["unknown"] == 0
    assert trace.meta["user_stacks"]["calls"] == 2 * sum(ASKED.values())
    found = explain(trace).user_code
    told = {(f.program, f.function): f.n for f in found.functions}
    by_name = {(p.name, function): n for p in askers for function, n in ASKED.items()}
    assert told == by_name
    stacks = {stack.stack.split(" < ")[1]: stack.stack.split(" < ") for stack in found.stacks}
    con = trace.connect()
    of = dict(con.execute("SELECT user_stack_id, count(*) FROM user_calls GROUP BY 1").fetchall())
    frames = con.execute(
        "SELECT user_stack_id, list(function ORDER BY depth), any_value(file) FILTER (depth = 1) "
        "FROM user_stacks GROUP BY 1"
    ).fetchall()
    whole = {names[1]: names for number, names, file in frames if file == str(askers[0])}
    assert set(whole) == set(ASKED), stacks
    for function, names in whole.items():
        assert names[1:4] == [function, "deliver", "main"]
    assert {whole["sync_index"][0], whole["sync_mail"][0]} == {"fsync", "fdatasync"}
    assert {of[number] for number, *_ in frames} == set(ASKED.values())
    # Build ids that the linker wrote into both programs.
    notes = [subprocess.run(["readelf", "-n", p], capture_output=True, text=True).stdout
             for p in askers]  # fmt: skip
    ids = con.execute("SELECT DISTINCT build_id FROM user_stacks WHERE depth = 1").fetchall()
    assert all(any(build_id in note for note in notes) for (build_id,) in ids)
    shown = subprocess.run(
        [sys.executable, "-m", "spoolscope.cli.main", "explain", trace.path],
        capture_output=True, text=True, check=False, env=os.environ | {"COLUMNS": "80"},
    ).stdout  # fmt: skip
    assert "By the code that asked for it" in shown
    assert "< sync_index < deliver < main" in " ".join(shown.split())
