"""The verb help: concepts of the documentation, and the help of every verb."""

import sys

import click

from spoolscope.cli.manual import topics
from spoolscope.cli.printing import say
from spoolscope.traces.errors import USAGE, SpoolscopeError

EPILOG = """\b
Examples:
  spoolscope help
  spoolscope help causes
  spoolscope help replay
"""


def _verbs(root: click.Context) -> list[str]:
    group = root.command
    return group.list_commands(root) if isinstance(group, click.Group) else []


def _beginning(context: click.Context, _: click.Parameter, begun: str) -> list[str]:
    known = [*topics.TOPICS, *_verbs(context.find_root())]
    return [name for name in known if name.startswith(begun)]


@click.command("help", epilog=EPILOG)
@click.argument("topic", required=False, shell_complete=_beginning)
@click.pass_context
def command(context: click.Context, topic: str | None) -> int:
    """Explain a TOPIC, or list the topics; for a verb, show its --help.

    Topics are pages of the documentation, printed as Markdown where standard
    output is no terminal.
    """
    root = context.find_root()
    group, verbs = root.command, _verbs(root)
    if topic is None:
        width = max(map(len, topics.TOPICS))
        say("Topics", *(f"  {name:<{width}}  {what}" for name, what in topics.TOPICS.items()))
        say("", "Next: spoolscope help TOPIC; 'spoolscope --help' lists the verbs")
    elif topic in topics.TOPICS:
        _show(topics.shown(topic))
    elif topic in verbs and isinstance(group, click.Group):
        found = group.get_command(root, topic)
        if found is not None:
            inner = click.Context(found, parent=root, info_name=topic)
            say(*inner.get_help().split("\n"))
    else:
        raise SpoolscopeError(f"no topic '{topic}'", remedy=_remedy(topic, verbs), exit_code=USAGE)
    return 0


def _remedy(topic: str, verbs: list[str]) -> str:
    for page in ("causes", "insights"):  # explain and the report print names of these
        if f"`{topic}`" in topics.shown(page) or f"### {topic} " in topics.shown(page):
            return f"'spoolscope help {page}' has it"
    near = topics.nearest(topic, [*topics.TOPICS, *verbs])
    return f"did you mean '{near}'?" if near else "'spoolscope help' lists the topics"


def _show(text: str) -> None:
    if not sys.stdout.isatty():
        say(*text.rstrip("\n").split("\n"))
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console(width=min(100, Console().width)).print(Markdown(text, hyperlinks=False))
