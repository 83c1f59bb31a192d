"""A scrubbed copy has other names and is otherwise equal; the original is not changed."""

import hashlib
from pathlib import Path

import pytest

from spoolscope.traces import scrub as scrubbing
from spoolscope.traces.errors import USAGE, SpoolscopeError
from spoolscope.traces.private import Hiding
from spoolscope.traces.pseudonym import key_id
from spoolscope.traces.schema import TABLES
from spoolscope.traces.trace import Trace

SAMPLE = Path(__file__).resolve().parents[1] / "samples" / "postfix-dovecot"
KEY = bytes(range(32))
HIDING = Hiding(KEY)


def scrub(old: Path, new: Path, hiding: Hiding = HIDING) -> int:
    return scrubbing.scrub(old, new, hiding, lambda _what, _share: None)


def digests(trace: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in trace.iterdir()}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    before = digests(SAMPLE)
    new = tmp_path_factory.mktemp("scrub") / "new.trace"
    assert scrub(SAMPLE, new) > 1000
    assert digests(SAMPLE) == before
    assert [path.name for path in new.parent.iterdir()] == ["new.trace"]
    assert {file.stat().st_mode & 0o777 for file in new.iterdir()} == {0o600}
    return Trace.open(new)


@pytest.mark.parametrize("name", TABLES)
def test_only_names_are_others(copy: Trace, name: str) -> None:
    old, new = Trace.open(SAMPLE).table(name), copy.table(name)
    for column in TABLES[name].columns:
        if not column.private:
            assert new[column.name].equals(old[column.name]), column.name


def test_names_keep_their_length_their_words_and_stay_apart(copy: Trace) -> None:
    old = Trace.open(SAMPLE).table("paths")["path"].to_pylist()
    new = copy.table("paths")["path"].to_pylist()
    assert len(set(new)) == len(set(old))
    same = {part for a, b in zip(old, new, strict=True) for part in a.split("/") if part in b}
    assert same >= {"new", "cur", "tmp", "dovecot.index.log", "dovecot-uidlist"}
    assert sum(a != b for a, b in zip(old, new, strict=True)) > 0.9 * len(old)
    meta = copy.meta
    assert (meta["pseudonymised"], meta["key_id"]) == (True, key_id(KEY))


def test_hidden_names_are_not_hidden_twice_with_one_key(copy: Trace, tmp_path: Path) -> None:
    with pytest.raises(SpoolscopeError, match="with this key already") as refused:
        scrub(copy.path, tmp_path / "again")
    assert refused.value.exit_code == USAGE
    assert "--key-file" in refused.value.remedy
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(copy: Trace, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    for taken in (copy.path, SAMPLE, tmp_path, tmp_path / "link"):
        with pytest.raises(SpoolscopeError, match="exists"):
            scrub(SAMPLE, taken)
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


def test_a_name_that_is_left_is_found_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected fault: one of the sample's names slips through."""
    each, let_through = scrubbing.mapped, []

    def leaky(values, hide):
        hidden = each(values, hide).to_pylist()
        for i, text in enumerate(values.to_pylist()):
            name, pseudonym = ((path or "").split("/")[-1] for path in (text, hidden[i]))
            is_mail = "/cur/" in (text or "")
            if not let_through and is_mail and name != pseudonym:
                let_through.append(text)
                hidden[i] = text
        return scrubbing.pa.array(hidden)

    monkeypatch.setattr(scrubbing, "mapped", leaky)
    with pytest.raises(SpoolscopeError, match=r"left in the copy, first in paths\.path"):
        scrub(SAMPLE, tmp_path / "new")
    assert let_through
    assert list(tmp_path.iterdir()) == []
