"""Pages of commands as man pages (man(7))."""

from spoolscope.cli.manual.pages import Block, Page, is_plain, lines_of

EXIT_CODES = (
    ("0", "All went well."),
    ("1", "An error: one line on standard error names it and what mends it."),
    ("2", "Wrong usage."),
    ("3", "The command finished, but its result is incomplete, or a replay diverged."),
    ("4", "What --fail-if says is so (compare)."),
    ("5", "The measured intervals do not decide what --fail-if says (compare)."),
)


def man_page(page: Page, version: str, others: list[str]) -> str:
    """Return a page of section 1.

    Args:
        page: The command.
        version: Version of spoolscope.
        others: Names of the pages for "see also".
    """
    lines = [
        f'.TH "{page.name.upper()}" 1 "" "spoolscope {version}" "User Commands"',
        ".SH NAME",
        f"{page.name} \\- {_text(page.summary.rstrip('.'))}",
        ".SH SYNOPSIS",
        f"\\fB{_text(page.path)}\\fR {_text(page.usage)}",
    ]
    if page.examples:
        lines += [".SH EXAMPLES", *_example(page.examples)]
    if page.blocks:
        lines += [".SH DESCRIPTION", _text(page.summary)]
        lines += [line for block in page.blocks for line in _block(block)]
    if page.options:
        lines += [".SH OPTIONS"]
        lines += [line for o in page.options for line in _item(o.names, o.meaning)]
    if page.verbs:
        lines += [".SH COMMANDS"]
        lines += [line for v in page.verbs for line in _item(v.path, v.summary)]
    lines += [".SH EXIT STATUS", *(line for code in EXIT_CODES for line in _item(*code))]
    lines += [".SH SEE ALSO", ", ".join(f"\\fB{_text(name)}\\fR(1)" for name in others)]
    return "\n".join(lines) + "\n"


def _item(term: str, meaning: str) -> list[str]:
    return [".TP", f"\\fB{_text(term)}\\fR", _text(meaning)]


def _block(block: Block) -> list[str]:
    text = lines_of(block)
    return [".PP", *_example(text)] if is_plain(block) else [".PP", _text(" ".join(text))]


def _example(lines: Block) -> list[str]:
    return [".nf", *map(_text, lines), ".fi"]


def _text(text: str) -> str:
    """Escape characters that roff would interpret."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
