"""Every verb that reads a trace, as text and as JSON, on one trace with all kinds of rows."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from spoolscope.cli.main import group
from spoolscope.traces.errors import INCOMPLETE

pytestmark = pytest.mark.slow


def run(*words: object) -> Result:
    result = CliRunner().invoke(group, [str(word) for word in words], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    assert result.return_value in (0, None, INCOMPLETE)
    return result


VERBS = {
    "info": ["info"],
    "info --columns": ["info", "--columns"],
    "explain": ["explain"],
    "explain --blame": ["explain", "--blame", "--unknown"],
    "explain a part": ["explain", "--slice", "0..300ms", "--only", "lmtp"],
    "plan": ["plan"],
    "plan of a part": ["plan", "--slice", "..300ms", "--only", "lmtp", "--skip", "fsync"],
    "plan for more users": ["plan", "--scale-users", "2", "--order", "recorded"],
    "plan of a call": ["plan", "--explain", "100:2"],
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_on_everything(verb: str, kitchen_sink: Path) -> None:
    name, *options = VERBS[verb]
    text = run(name, kitchen_sink, *options).stdout
    assert text.strip()
    assert "\x1b" not in text
    assert "\x07" not in text
    if verb == "info --columns":
        return
    found = json.loads(run(name, kitchen_sink, *options, "--json").stdout)
    assert found


def test_plan_says_what_is_left_out(kitchen_sink: Path) -> None:
    text = run("plan", kitchen_sink).stdout
    for words in ("calls never returned", "calls of unknown threads", "not replayed"):
        assert words in text, text


def test_what_is_made_of_everything(kitchen_sink: Path, tmp_path: Path) -> None:
    """Run scrub, report, edges, a replay, its comparison and its report in sequence."""
    scrubbed, target, out = (tmp_path / name for name in ("scrubbed", "target", "out"))
    for json_too in ([], ["--json"]):
        kind = "json" if json_too else "text"
        run("scrub", kitchen_sink, "-o", f"{scrubbed}-{kind}", "--key-file", tmp_path / "key",
            *json_too)  # fmt: skip
        run("report", kitchen_sink, "-o", tmp_path / f"{kind}.html", *json_too)
        run("explain", kitchen_sink, "--edges", tmp_path / f"{kind}.parquet", *json_too)
        target.mkdir(exist_ok=True)
        run("replay", kitchen_sink, "--on", f"dir:{target}", "--no-record", "--pace", "afap",
            "-o", f"{out}-{kind}", *json_too)  # fmt: skip
        for verb in ("compare", "info"):
            given = f"{out}-{kind}" if verb == "compare" else f"{scrubbed}-{kind}"
            run(verb, given, *json_too)
        run("report", f"{out}-{kind}", "-o", tmp_path / f"{kind}2.html", *json_too)
