"""--csv and --markdown of every verb, and the width of text on a terminal."""

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from markdown_it import MarkdownIt

from spoolscope.cli import main as cli
from spoolscope.cli.markdown import document, pipes
from spoolscope.cli.plan import _folded
from spoolscope.cli.sheets import Sheet, sheets
from spoolscope.traces.errors import INCOMPLETE

NO_FORMS = ("completion", "help", "query")
"""Verbs without these forms: ``query`` has --format, others no facts."""

OF_A_TRACE = {
    "info": ["info", "TRACE"],
    "info --columns": ["info", "TRACE", "--columns"],
    "explain": ["explain", "TRACE"],
    "explain --blame": ["explain", "TRACE", "--blame", "--unknown"],
    "explain a part": ["explain", "TRACE", "--slice", "0..300ms", "--only", "lmtp"],
    "plan": ["plan", "TRACE"],
    "plan for more users": ["plan", "TRACE", "--scale-users", "2", "--order", "recorded"],
    "plan of a call": ["plan", "TRACE", "--explain", "100:2"],
    "candidates": ["candidates"],
    "a candidate": ["candidates", "xfs"],
    "clean": ["clean", "--dry-run"],
    "doctor": ["doctor"],
}
TEXT = ("explain", "explain a part", "plan for more users")
"""Entries that are tested for their text only: their tables are those of others."""
PATH = re.compile(r"Your own: /")
"""Lines that may be longer: the path of the user's own file, here that of this test."""
FORMS = ("--csv", "--markdown", None)


def run(*words: object) -> Result:
    result = CliRunner().invoke(cli.group, [str(word) for word in words], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    assert result.return_value in (0, None, INCOMPLETE, 1)
    return result


def commands(group, path: tuple[str, ...] = ()):
    context = cli.click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, cli.click.Group):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def test_every_verb_that_has_json_has_both() -> None:
    lacking = [
        name
        for name, command in commands(cli.group)
        if name.split()[0] not in NO_FORMS
        and {"--json"} <= (options := {o for p in command.params for o in p.opts})
        and not {"--csv", "--markdown"} <= options
    ]
    assert lacking == []


def rows(text: str) -> list[dict[str, str]]:
    """Read CSV; check that all lines have the same number of cells, and column names differ."""
    lines = list(csv.reader(io.StringIO(text), strict=True))
    assert {len(line) for line in lines} == {len(lines[0])}
    assert len(set(lines[0])) == len(lines[0])
    assert lines[0][0] == "table"
    return [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]


def html(text: str) -> str:
    return MarkdownIt("commonmark", {"html": True}).enable("table").render(text)


def check(form: str | None, text: str) -> None:
    assert text.strip()
    assert all(c == "\n" or c.isprintable() for c in text)
    if form is None:
        assert [line for line in text.splitlines() if len(line) > 80 and not PATH.match(line)] == []
    elif form == "--csv":
        assert rows(text)
    else:
        made = html(text)
        assert "<h1>" in made
        widths = {
            len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line[:1] == "|"
        }
        assert ("<table>" in made) == bool(widths)


@pytest.fixture
def here(kitchen_sink: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the trace as a short relative path."""
    monkeypatch.chdir(kitchen_sink.parent)
    return Path(kitchen_sink.name)


@pytest.mark.parametrize(
    ("verb", "form"),
    [(verb, form) for verb in OF_A_TRACE for form in FORMS if form is None or verb not in TEXT],
)
def test_a_verb_of_a_trace(verb: str, form: str | None, here: Path) -> None:
    words = [here if word == "TRACE" else word for word in OF_A_TRACE[verb]]
    check(form, run(*words, *([form] if form else [])).stdout)


@pytest.mark.parametrize("form", FORMS)
def test_verbs_that_make_something(form: str | None, here: Path) -> None:
    asked = [form] if form else []
    target, out, scrubbed = (Path(name) for name in ("t", "o", "s"))
    target.mkdir()
    check(form, run("scrub", here, "-o", scrubbed, "--key-file", "k",
                    *asked).stdout)  # fmt: skip
    check(form, run("replay", here, "--on", f"dir:{target}", "--no-record", "--pace",
                    "afap", "-o", out, *asked).stdout)  # fmt: skip
    check(form, run("compare", out, *asked).stdout)
    check(form, run("report", out, "-o", "r.html", *asked).stdout)
    check(form, run("export", here, "--to", "folded", "-o", "f", *asked).stdout)
    check(form, run("info", here, "--verify", *asked).stdout)


def test_csv_has_every_number_of_json(kitchen_sink: Path) -> None:
    words = ("explain", kitchen_sink, "--blame")
    facts = json.loads(run(*words, "--json").stdout)
    found = rows(run(*words, "--csv").stdout)
    values = {(row["table"], row["name"]): row for row in found if row["name"]}
    assert int(values["facts", "latency_ns"]["value"]) == facts["latency_ns"]
    assert values["facts", "latency_ns"]["unit"] == "ns"
    assert values["facts", "complete"]["value"] == "false"
    for cause, ns in facts["causes"].items():
        assert (values["causes", cause]["value"], values["causes", cause]["unit"]) == (
            str(ns),
            "ns",
        )
    for call, told in facts["by_syscall"].items():
        row = values["by_syscall", call]
        assert int(row["total_ns"]) == told["total_ns"]
        for cause, ns in told["causes"].items():
            assert int(row[f"causes.{cause}_ns"]) == ns
    kinds = [row for row in found if row["table"] == "commits.kinds"]
    assert [row["kind"] for row in kinds] == [kind["kind"] for kind in facts["commits"]["kinds"]]


def test_every_value_has_its_place() -> None:
    facts = {
        "a_ns": 1,
        "nothing": None,
        "said": ["x", "y"],
        "kinds": [{"k": 1, "parts": {"p": 2}, "l": [1, 2], "deep": [{"z": 1}]}, {"m": True}],
        "by": {"one": {"n": 1}, "two": {"n": 2, "o": 3}},
        "causes": {"cpu": 5},
        "mixed": {"n": 1, "list": [{"q": 1}]},
        "chains": [[{"who": "a"}, {"who": "b"}], [{"who": "c"}]],
        "empty": {}, "none": [],
    }  # fmt: skip
    found = {sheet.name: sheet.rows for sheet in sheets(facts)}
    assert found == {
        "facts": [
            {"name": "a_ns", "value": 1, "unit": "ns"},
            {"name": "nothing", "value": None, "unit": ""},
            {"name": "mixed.n", "value": 1, "unit": ""},
        ],
        "said": [{"text": "x"}, {"text": "y"}],
        "kinds": [
            {"k": 1, "parts.p_ns": 2, "l": "1; 2", "deep": '[{"z": 1}]'},
            {"m": True},
        ],
        "by": [{"name": "one", "n": 1}, {"name": "two", "n": 2, "o": 3}],
        "causes": [{"name": "cpu", "value": 5, "unit": "ns"}],
        "mixed.list": [{"q": 1}],
        "chains": [
            {"number": 1, "place": 1, "who": "a"},
            {"number": 1, "place": 2, "who": "b"},
            {"number": 2, "place": 1, "who": "c"},
        ],
    }


HOSTILE = (
    "<script>alert(1)</script>", "a|b", "[x](javascript:alert(1))", "**b**", "_e_", "`c`", "&lt;",
    "1. x", "# h", "- i", "\\", "a\nb", "![i](http://x/y.png)", "<!-- c -->", "$x$", "~~s~~", "=",
    "http://x.example/",
)  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_only_text_in_markdown(name: str) -> None:
    sentence, word = Sheet("y", [{"text": f"{name} z."}]), Sheet("w", [{"text": name}])
    made = html("\n".join(document(name, [Sheet("x", [{"n": name}]), sentence, word])))
    assert set(re.findall(r"</?(\w+)", made)) == {
        "h1", "h2", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "p"
    }  # fmt: skip
    plain = name.replace("\n", "\\x0a")
    text = (
        made.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&amp;", "&")
    )
    assert text.count(plain) == 4, made


def test_many_rows_and_columns_are_not_dropped_in_silence() -> None:
    wide = {f"c{n}": n for n in range(30)}
    text = "\n".join(document("x", [Sheet("y", [wide] * 50)]))
    assert "and 35 more rows: --csv has all" in text
    assert "and 18 more columns: --csv has all" in text


def test_numbers_stand_to_the_right() -> None:
    lines = list(pipes(["call", "n"], [["read", 1000], ["write", None]]))
    assert lines == ["| call | n |", "| --- | ---: |", "| read | 1,000 |", "| write | - |"]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    monkeypatch.setenv("COLUMNS", "300")  # the output must not depend on the terminal's width
    return lambda: run("candidates", "--markdown").stdout


def test_a_wide_terminal_changes_nothing(said: Callable[[], str]) -> None:
    assert said() == run("candidates", "--markdown").stdout


def test_long_lines_fold_and_names_in_them_stay_as_they_are() -> None:
    name = "/".join(["mailbox"] * 8) + "/a\nb\x1b"
    lines = _folded(f"  its thread did before: 4564:4 imap at 1.04 s: newfstatat {name} = 0")
    assert len(lines) > 1
    assert max(map(len, lines)) <= 80
    assert [line[:2] for line in lines] == ["  "] * len(lines)
    assert "/a\\x0ab\\x1b" in " ".join(lines)
