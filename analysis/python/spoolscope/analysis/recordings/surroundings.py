"""Other differences between two recordings: machine, mount, recorder."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spoolscope.traces.trace import Trace

_OF_MACHINE = {"kernel": "kernel", "arch": "architecture", "cpus": "CPUs"}
_OF_SPOOL = {"fstype": "filesystem", "size_bytes": "size of the filesystem, bytes"}
_OF_RECORDER = {
    "version": "spoolscope",
    "tier": "tier",
    "filter": "what was recorded",
    "sample_hz": "samples a second",
    "max_overhead_ppm": "allowed overhead, ppm",
    "complete": "complete",
}


@dataclass(frozen=True)
class Difference:
    """One fact that differs, in words for each recording."""

    what: str
    reference: str
    candidate: str


def surroundings(reference: Trace, candidate: Trace) -> list[Difference]:
    """Return the facts of the recordings' meta.json that differ and may matter."""
    return list(_differences(reference.meta, candidate.meta))


def names_match(reference: Trace, candidate: Trace) -> bool:
    """Return True if equal names mean the same file: real names, or pseudonyms of one key."""
    hidden = [
        bool(trace.meta.get("pseudonymised")) and trace.names is None
        for trace in (reference, candidate)
    ]
    keys = [trace.meta.get("key_id") for trace in (reference, candidate)]
    return hidden[0] == hidden[1] and (not hidden[0] or keys[0] == keys[1])


def _differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterable[Difference]:
    yield from _unequal(ours, theirs, _OF_MACHINE)
    spools = [meta.get("spools") or [] for meta in (ours, theirs)]
    if len(spools[0]) != len(spools[1]):
        yield Difference("spools", str(len(spools[0])), str(len(spools[1])))
    for one, other in zip(*spools, strict=False):
        yield from _unequal(one, other, _OF_SPOOL)
        yield from _words("mount options", one.get("options"), other.get("options"))
        yield from _words("features", one.get("features"), other.get("features"))
    yield from _unequal(ours, theirs, _OF_RECORDER)


def _unequal(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], wanted: Mapping[str, str]
) -> Iterable[Difference]:
    for key, label in wanted.items():
        if ours.get(key) != theirs.get(key):
            yield Difference(label, _said(ours.get(key)), _said(theirs.get(key)))


def _words(what: str, ours: Any, theirs: Any) -> Iterable[Difference]:
    """Yield the words that only one of two lists has."""
    one, other = (
        set(words.split(",") if isinstance(words, str) else words or []) for words in (ours, theirs)
    )
    if one != other:
        yield Difference(
            what, ",".join(sorted(one - other)) or "-", ",".join(sorted(other - one)) or "-"
        )


def _said(value: Any) -> str:
    if value is None or value == {}:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_said(one)}" for key, one in value.items())
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
