"""Help, man pages and completion have one source, and each has all of it."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable

import click
import pytest

from spoolscope.analysis.causes import CAUSES
from spoolscope.analysis.insights import insight_rules
from spoolscope.analysis.stack_rules import classify
from spoolscope.cli import main as cli
from spoolscope.cli.manual import topics
from spoolscope.cli.manual.__main__ import files
from spoolscope.cli.manual.causes import entries
from spoolscope.cli.manual.markdown import markdown
from spoolscope.cli.manual.pages import Page, page_of

COMMAND = [sys.executable, "-m", "spoolscope.cli.main"]


@pytest.fixture(scope="module")
def root() -> Page:
    return page_of(cli.group, "spoolscope")


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli._run(list(words))
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_every_verb_has_a_page_with_an_example(root: Page) -> None:
    assert {p.path.split()[1] for p in root.verbs} == set(cli.VERBS)
    assert [p.path for p in root.walk() if not p.verbs and not p.examples] == []


def test_examples_begin_with_the_command_that_they_are_of(root: Page) -> None:
    strange = [
        line
        for page in root.walk()
        for line in page.examples
        if not re.match(r" |(sudo )?(spoolscope|strace) ", line)
    ]
    assert strange == []


def test_help_shows_examples_before_options(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = said(capsys, "record", "--help")
    assert out.index("Examples:") < out.index("Records every process") < out.index("Options:")
    assert out.count("spool /mnt -o test.trace") == 1


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["explian"], "explain"),
        (["recrod", "--spool", "/x"], "record"),
        (["lab", "falts"], "faults"),
        (["explain", "--blam", "x"], "--blame"),
        (["help", "fidelty"], "fidelity"),
        (["help", "repaly"], "replay"),
    ],
)
def test_mistyped_words_are_answered_by_what_was_meant(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = said(capsys, *words)
    assert (code, out) == (2, "")
    assert re.search(rf"did you mean.*'{meant}'", err, re.I)


def test_a_word_like_no_other_gets_no_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = said(capsys, "zzzz")
    assert code == 2
    assert "did you mean" not in err.lower()


@pytest.mark.parametrize("topic", topics.TOPICS)
def test_every_topic_is_printed(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "help", topic)
    assert code == 0
    assert out.startswith("# ")
    assert ".md" not in out


def test_topics_are_the_pages_of_concepts(capsys: pytest.CaptureFixture[str]) -> None:
    assert {p.stem for p in topics.directory().iterdir()} | set(topics.MADE) == set(topics.TOPICS)
    _, out, _ = said(capsys, "help")
    assert all(f"  {topic} " in out for topic in topics.TOPICS)


def test_help_of_a_verb_is_that_of_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "help", "explain")[1] == said(capsys, "explain", "--help")[1]


def test_every_cause_has_an_example_and_a_remedy() -> None:
    assert set(entries()) == set(CAUSES)
    assert all(set(entry) == {"example", "helps"} for entry in entries().values())
    text = topics.text("causes")
    assert all(
        f"### {cause.label}\n" in text and cause.meaning in text for cause in CAUSES.values()
    )


def test_every_insight_is_on_its_page() -> None:
    text = topics.text("insights")
    assert [r for r in insight_rules() if f"### {r.code} {r.title}\n" not in text] == []
    assert "{" not in text


def test_functions_in_examples_have_the_cause_that_they_are_examples_of() -> None:
    named = {}
    for cause, entry in entries().items():
        for function in re.findall(r"(?:\(|\bin )`(\w+)`", entry["example"]):
            rule = classify(("schedule", function))
            named[function] = (cause, rule.cause if rule else "no rule")
    assert len(named) >= 5
    assert {f: causes for f, causes in named.items() if len(set(causes)) > 1} == {}


def test_man_pages_and_completion_are_whole(root: Page) -> None:
    made = files()
    pages = {f"share/man/man1/{p.name}.1": p for p in root.walk()}
    assert set(pages) < set(made)
    for place, page in pages.items():
        text = made[place].replace("\\-", "-").replace("\\e", "\\")
        assert all(o.names in text and o.meaning in text for o in page.options), place
        assert all(line in text for line in page.examples), place


def test_man_pages_are_correct_roff(require: Callable[[str, str], None]) -> None:
    if not shutil.which("mandoc"):
        require("mandoc", "no program mandoc")
    for place, text in files().items():
        if place.endswith(".1"):
            done = subprocess.run(
                ["mandoc", "-T", "lint", "-W", "error"], input=text, capture_output=True, text=True
            )
            assert (done.returncode, done.stdout) == (0, ""), place


def test_options_of_a_page_survive_markdown(root: Page) -> None:
    page = next(p for p in root.verbs if p.path == "spoolscope plan")
    rows = [line for line in markdown(page).splitlines() if line.startswith("| `")]
    assert len(rows) == len(page.options)
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 3 for row in rows)


@pytest.mark.slow
def test_bash_completes_verbs_and_options() -> None:
    def completed(words: str) -> list[str]:
        count = str(len(words.split(" ")) - 1)
        asked = {"_SPOOLSCOPE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": count}
        done = subprocess.run(COMMAND, env=os.environ | asked, capture_output=True, text=True)
        return [line.split(",")[-1] for line in done.stdout.splitlines()]

    assert completed("spoolscope exp")[0].startswith("exp")
    assert "--blame" in completed("spoolscope explain --bl")
    assert "faults" in completed("spoolscope lab fau")
    assert {"xfs", "xfs-log-64m"} <= set(completed("spoolscope replay x --on xf"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "completion", shell)
    assert code == 0
    assert f"_SPOOLSCOPE_COMPLETE={shell}_complete" in out
    if shell == "bash":
        done = subprocess.run(
            ["bash", "-c", f"{out}\ncomplete -p spoolscope"], capture_output=True, text=True
        )
        assert "spoolscope" in done.stdout, done.stderr


def test_a_group_lists_its_commands_in_its_page(root: Page) -> None:
    lab = next(p for p in root.verbs if p.path == "spoolscope lab")
    assert {p.path.split()[-1] for p in lab.verbs} == set(
        click.Group.list_commands(cli.group.get_command(click.Context(cli.group), "lab"), None)
    )
