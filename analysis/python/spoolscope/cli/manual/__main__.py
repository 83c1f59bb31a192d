"""Write man pages and completion below a prefix: ``python -m spoolscope.cli.manual PREFIX``."""

import sys
from pathlib import Path

from spoolscope.cli.main import group
from spoolscope.cli.manual.completion import SHELLS, script
from spoolscope.cli.manual.man import man_page
from spoolscope.cli.manual.pages import Page, page_of
from spoolscope.traces.files import write_file
from spoolscope.traces.version import version


def files() -> dict[str, str]:
    """Return {path below a prefix: text} of all man pages and completion scripts."""
    root = page_of(group, "spoolscope")
    made = {f"share/man/man1/{p.name}.1": _man(p, root) for p in root.walk()}
    return made | {place: script(shell) for shell, place in SHELLS.items()}


def _man(page: Page, root: Page) -> str:
    around = page.verbs or root.verbs
    others = sorted({root.name, *(p.name for p in around)} - {page.name})
    return man_page(page, version(), others)


def main(prefix: Path) -> None:
    """Write the files below a prefix."""
    for place, text in files().items():
        target = prefix / place
        target.parent.mkdir(parents=True, exist_ok=True)
        write_file(target, text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
