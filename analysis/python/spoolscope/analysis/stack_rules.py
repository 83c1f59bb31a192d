"""Rules that name the cause of a kernel stack.

A rule is one line of data in ``rules/*.toml``::

    { cause = "dir_lock", stack = "@rwsem << filename_create|do_renameat2" },

``<`` separates frames, the innermost first; other frames may lie between them, but not with
``<<``. ``|`` separates alternatives (kernels inline and rename differently), ``*`` is a wildcard,
``@name`` stands for the alternatives of that name in ``rules/sets.toml``. Compiler suffixes
(``.constprop.0``, ``.isra.0``, ``.part.0``, ``.cold``) are ignored. Files are read in order of
their names and the first rule that matches wins.

A rule with ``around = true`` is about work that kernels do within other work, such as reclaiming
memory: a wait inside it is named by its own rule, unless that is in a file with ``last_resort =
true``.
"""

import re
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path

from spoolscope.analysis.causes import BLOCKED_CAUSES
from spoolscope.traces.errors import SpoolscopeError
from spoolscope.traces.files import regular

_SUFFIX = re.compile(
    r"\.(?:constprop|isra|part|cold|llvm|lto_priv|cfi(?:_jt)?|__uniq)(?:\.\d+)*"
    r"|\+0x[0-9a-f]+(?:/0x[0-9a-f]+)?|\s+\[[\w-]+\]"
)
_SET = re.compile(r"@(\w+)")


@dataclass(frozen=True)
class Rule:
    """One rule: the stacks it matches, the cause it gives, and its filesystem."""

    cause: str
    stack: str
    filesystem: str
    around: bool = False
    last_resort: bool = False

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Return what its stacks match; it is compiled when first used."""
        return _pattern(self.stack)

    @cached_property
    def stems(self) -> tuple[tuple[str, ...], ...]:
        """Return parts of the names of each frame: one of them is in every stack that matches."""
        frames = split_stack(self.stack)
        return tuple(tuple(max(name.split("*"), key=len) for name in names) for _, names in frames)

    def may_match(self, text: str) -> bool:
        """Return False if no stack with frames of this text can match; much quicker than to try."""
        for stems in self.stems:
            for stem in stems:
                if stem in text:
                    break
            else:
                return False
        return True


def bare(symbol: str) -> str:
    """Return a function name without what compilers add to clones, and the kernel in its log.

    Compilers add ``.isra.0`` and others; the log adds the place in the function and its module, as
    ``+0x1a/0x30 [ext4]``.
    """
    return _SUFFIX.sub("", symbol)


@cache
def frame_sets() -> Mapping[str, str]:
    """Return the named alternatives, {name: "a|b*"}."""
    file = files("spoolscope.analysis").joinpath("rules/sets.toml")
    return tomllib.loads(file.read_text("utf-8"))


def split_stack(stack: str) -> list[tuple[str, list[str]]]:
    """Return the separator before each frame of a rule ("", "<" or "<<"), and its alternatives.

    Raises:
        SpoolscopeError: a frame is empty, or a set is unknown.
    """
    parts = re.split(r"(<<?)", stack)
    frames = []
    for arrow, text in zip(["", *parts[1::2]], parts[::2], strict=True):
        try:
            named = _SET.sub(lambda found: frame_sets()[found[1]], text)
        except KeyError as error:
            raise SpoolscopeError(
                f"the rule {stack!r} names the unknown set @{error.args[0]}",
                remedy=f"use one of: {', '.join(frame_sets())}",
            ) from error
        alternatives = [name.strip() for name in named.split("|")]
        if not all(alternatives):
            raise SpoolscopeError(
                f"the rule {stack!r} has an empty frame", remedy='write it as "inner < outer"'
            )
        frames.append((arrow, alternatives))
    return frames


def _pattern(stack: str) -> re.Pattern[str]:
    between = {"": "", "<": r"(?:\n|\n.*?\n)", "<<": r"\n"}
    text = ""
    for arrow, alternatives in split_stack(stack):
        globs = "|".join(re.escape(a).replace(r"\*", "[^\n]*") for a in alternatives)
        text += rf"{between[arrow]}(?<![^\n])(?:{globs})(?![^\n])"
    return re.compile(text, re.DOTALL)


def compile_rule(
    cause: str,
    stack: str,
    filesystem: str = "any",
    causes: Collection[str] = BLOCKED_CAUSES,
    *,
    around: bool = False,
    last_resort: bool = False,
) -> Rule:
    """Build a rule that gives one of ``causes``.

    Raises:
        SpoolscopeError: the cause is not in the closed list, a frame is empty or a set unknown.
    """
    if cause not in causes:
        raise SpoolscopeError(
            f"a rule names the unknown cause {cause!r}",
            remedy=f"use one of: {', '.join(causes)}",
        )
    split_stack(stack)  # raises
    return Rule(cause, stack, filesystem, around, last_resort)


def parse_rules(text: str, source: str, causes: Collection[str] = BLOCKED_CAUSES) -> list[Rule]:
    """Parse one rules file; ``source`` is its name for messages.

    Raises:
        SpoolscopeError: not TOML, or a line without ``cause`` and ``stack``.
    """
    try:
        document = tomllib.loads(text)
        filesystem = str(document.get("filesystem", "any"))
        return [
            compile_rule(
                line["cause"],
                line["stack"],
                line.get("filesystem", filesystem),
                causes,
                around=bool(line.get("around")),
                last_resort=bool(document.get("last_resort")),
            )
            for line in document["rules"]
        ]
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise SpoolscopeError(
            f"cannot read the rules in {source}: {error}",
            remedy='a rule is { cause = "flush", stack = "inner < outer" }',
        ) from error


@cache
def shipped_rules() -> tuple[Rule, ...]:
    """Return the rules that come with the package, in order."""
    folder = files("spoolscope.analysis").joinpath("rules")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name[0].isdigit())
    texts = ((name, folder.joinpath(name).read_text("utf-8")) for name in names)
    return tuple(rule for name, text in texts for rule in parse_rules(text, name))


def load_rules(extra: Path | None = None) -> tuple[Rule, ...]:
    """Return the rules of the file ``extra``, which come first, and the shipped ones.

    Raises:
        SpoolscopeError: the file is missing or malformed.
    """
    if extra is None:
        return shipped_rules()
    try:
        text = regular(extra).read_text("utf-8")
    except OSError as error:
        raise SpoolscopeError(
            f"cannot read the rules file {extra}: {error.strerror}", remedy="check --rules"
        ) from error
    return (*parse_rules(text, str(extra)), *shipped_rules())


def classify(frames: Sequence[str], rules: Iterable[Rule] | None = None) -> Rule | None:
    """Return the first rule that matches a stack (innermost frame first), if any."""
    rules = shipped_rules() if rules is None else tuple(rules)
    return _first("\n".join(map(bare, frames)), rules)


def of_use(frames: Iterable[str], rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Return the rules that can match stacks of these frames.

    Most can match none of a trace: to compile them all would take longer than to use them.
    """
    text = "\n".join(map(bare, frames))
    return tuple(rule for rule in rules if rule.may_match(text))


def _first(text: str, rules: Sequence[Rule]) -> Rule | None:
    for rule in rules:
        if rule.may_match(text) and (found := rule.pattern.search(text)):
            inner = _first(text[: found.start()], rules) if rule.around and found.start() else None
            return inner if inner and not inner.last_resort else rule
    return None
