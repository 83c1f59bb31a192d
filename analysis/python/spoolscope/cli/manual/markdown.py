"""Pages of commands as Markdown, for the site."""

from spoolscope.cli.manual.pages import Page, is_plain, lines_of


def markdown(page: Page) -> str:
    """Return the page of a command and, below it, of those that it groups."""
    return "\n".join(_lines(page, 1)) + "\n"


def index(root: Page) -> str:
    """Return a table of all verbs with links to their pages."""
    rows = [f"| [{p.path}]({p.name}.md) | {p.summary} |" for p in root.verbs]
    lines = ["# Commands", "", "Made from the commands' own help.", "", *_usage(root)]
    lines += ["| command | what it does |", "|---|---|", *rows, ""]
    lines += [text for block in root.blocks for text in (" ".join(lines_of(block)), "")]
    return "\n".join(lines)


def _usage(page: Page) -> list[str]:
    return ["```text", f"{page.path} {page.usage}".rstrip(), "```", ""]


def _lines(page: Page, level: int) -> list[str]:
    lines = ["#" * level + f" {page.path}", "", page.summary, "", *_usage(page)]
    if page.examples:
        lines += ["```console", *_prompted(page.examples), "```", ""]
    for block in page.blocks:
        text = lines_of(block)
        lines += ["```text", *text, "```", ""] if is_plain(block) else [_plain(" ".join(text)), ""]
    if page.options:
        lines += ["| option | meaning |", "|---|---|"]
        lines += [f"| `{_cell(o.names)}` | {_cell(_plain(o.meaning))} |" for o in page.options]
        lines += [""]
    for verb in page.verbs:
        lines += _lines(verb, level + 1)
    return lines


def _prompted(examples: list[str]) -> list[str]:
    """Put a prompt before each command; indent continuation lines."""
    return [line if line.startswith(" ") else f"$ {line}" for line in examples]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _plain(text: str) -> str:
    """Escape text that would be markup."""
    for mark in "*_<[":
        text = text.replace(mark, "\\" + mark)
    return text
