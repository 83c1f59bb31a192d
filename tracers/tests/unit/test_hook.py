"""The command of --on-freeze runs during the recording, once at a time, and is noted."""

import sys
import time
from pathlib import Path

from spoolscope.tracers import hook
from spoolscope.tracers.hook import Hook

# It goes on once the file "go" is there, and notes its begin and its end.
SLOW = """
import sys, time
from pathlib import Path
place, name = Path(sys.argv[1]), sys.argv[2]
def note(word):
    with (place / "log").open("a") as log: log.write(f"{word} {Path(name).name}\\n")
note("begin")
print(name, flush=True)
deadline = time.monotonic() + 60
while not (place / "go").exists():
    if time.monotonic() > deadline: sys.exit("it is waited for")
    time.sleep(0.01)
note("end")
"""


def until(one: Hook, n: int) -> None:
    deadline = time.monotonic() + 120
    while len(one.ran) < n:
        one.step()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_commands_run_one_after_the_other_and_hold_nobody_up(tmp_path):
    told: list[str] = []
    one = Hook([sys.executable, "-S", "-c", SLOW, str(tmp_path)], told.append)
    for name in ("frozen-000001", "frozen-000002"):
        one.add(tmp_path / name, "slow: call")
        one.step()
    (tmp_path / "go").touch()
    until(one, 2)
    assert (tmp_path / "log").read_text().splitlines() == [
        f"{word} frozen-00000{n}" for n in (1, 2) for word in ("begin", "end")
    ]
    assert [ran.output for ran in one.ran] == [
        f"{tmp_path}/frozen-000001\n",
        f"{tmp_path}/frozen-000002\n",
    ]
    assert {ran.status for ran in one.ran} == {0}
    assert told[0].startswith("ran the command for frozen-000001: it ended with 0: ")


def test_of_much_output_the_end_is_kept_and_of_what_cannot_begin_the_reason(tmp_path):
    told: list[str] = []
    code = "print('x' * 100000 + 'end')"
    one = Hook([sys.executable, "-S", "-c", code], told.append)
    one.add(tmp_path, "why")
    until(one, 1)
    assert one.ran[0].output == "x" * (hook.KEPT_BYTES - 4) + "end\n"
    other = Hook([str(tmp_path / "nothing")], told.append)
    other.add(tmp_path, "why")
    other.end()
    assert (other.ran[0].status, other.ran[0].output) == (None, "No such file or directory")


def test_one_that_does_not_end_is_ended_after_the_recording(tmp_path, monkeypatch):
    monkeypatch.setattr(hook, "PATIENCE_S", 0.2)
    one = Hook(["sh", "-c", "sleep 60"], lambda _what: None)
    one.add(tmp_path, "why")
    one.end()
    assert one.ran[0].status == -9


def test_without_a_command_nothing_is_run():
    one = Hook((), print)
    one.add(Path("trace"), "why")
    one.end()
    assert one.to_json() == []
