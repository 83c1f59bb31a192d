"""Every command as a page: the text of its ``--help`` in parts."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from inspect import cleandoc

import click

Block = list[str]
"""Lines of one paragraph; a first line ``\\b`` means that they are not wrapped."""
_PLAIN = "\b"
_EXAMPLE = re.compile(r"^Examples?:\s*")


@dataclass(frozen=True)
class Option:
    """An option, in the words of ``--help``."""

    names: str
    meaning: str


@dataclass(frozen=True)
class Page:
    """The help of one command.

    Attributes:
        path: The words of the command, as in ``spoolscope lab faults``.
        usage: Its arguments, as in ``[OPTIONS] TRACE``.
        summary: One sentence.
        examples: Command lines, without a prompt.
        blocks: Further paragraphs.
        options: Its options, in their order.
        verbs: The commands below it, by path.
    """

    path: str
    usage: str
    summary: str
    examples: Block
    blocks: list[Block]
    options: list[Option]
    verbs: list["Page"] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name of the page, as in ``spoolscope-lab-faults``."""
        return self.path.replace(" ", "-")

    def walk(self) -> Iterator["Page"]:
        """Yield this page and all below it."""
        yield self
        for verb in self.verbs:
            yield from verb.walk()


def paragraphs(text: str | None) -> list[Block]:
    """Split a help text or an epilog at its empty lines."""
    clean = cleandoc((text or "").split("\f")[0])
    return [block.split("\n") for block in re.split(r"\n{2,}", clean) if block]


def is_plain(block: Block) -> bool:
    """Return True if the lines of a block are not to be wrapped."""
    return block[0] == _PLAIN


def lines_of(block: Block) -> Block:
    """Return the lines of a block without its mark."""
    return block[1:] if is_plain(block) else block


def examples_first(command: click.Command) -> click.Command:
    """Move the examples of a command, and of those below it, before its options.

    The epilog keeps its other text; a command that was changed before is not changed again.
    """
    summary, *rest = paragraphs(command.help) or [[""]]
    examples, others = _examples(command.epilog)
    if examples:
        shown = [_PLAIN, "Examples:" if len(examples) > 1 else "Example:"]
        block = [*shown, *(f"  {line}" for line in examples)]
        command.help = _joined([summary, block, *rest])
        command.epilog = _joined(others) or None
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            examples_first(inner)
    return command


def page_of(command: click.Command, path: str, summary: str = "") -> Page:
    """Return the page of a command and, for a group, those below it."""
    context = click.Context(command, info_name=path, help_option_names=["-h", "--help"])
    blocks = paragraphs(command.help)
    examples, blocks = _found(blocks)
    more, others = _found(paragraphs(command.epilog))
    first = " ".join(lines_of(blocks[0])) if blocks else summary
    options = [option for p in command.get_params(context) if (option := _option(p, context))]
    verbs = []
    if isinstance(command, click.Group):
        names = command.list_commands(context)
        inner = [(name, command.get_command(context, name)) for name in names]
        verbs = [page_of(found, f"{path} {name}") for name, found in inner if found]
    usage = " ".join(command.collect_usage_pieces(context))
    return Page(path, usage, first, examples + more, blocks[1:] + others, options, verbs)


def _option(parameter: click.Parameter, context: click.Context) -> Option | None:
    record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
    return Option(*record) if record else None


def _found(blocks: list[Block]) -> tuple[Block, list[Block]]:
    """Separate the examples among paragraphs from the others."""
    examples: Block = []
    others = []
    for block in blocks:
        lines = lines_of(block)
        if not _EXAMPLE.match(lines[0]):
            others.append(block)
            continue
        first = _EXAMPLE.sub("", lines[0])
        shown = [*([first] if first else []), *lines[1:]]
        examples += _dedented(shown) if is_plain(block) else [" ".join(shown)]
    return examples, others


def _examples(text: str | None) -> tuple[Block, list[Block]]:
    return _found(paragraphs(text))


def _dedented(lines: Block) -> Block:
    margin = min((len(line) - len(line.lstrip()) for line in lines if line), default=0)
    return [line[margin:] for line in lines]


def _joined(blocks: list[Block]) -> str:
    return "\n\n".join("\n".join(block) for block in blocks)
