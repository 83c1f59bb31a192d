"""Names of any bytes can be converted to text and back; no text controls a terminal."""

import argparse
import json
import random
import runpy
import unicodedata
from pathlib import Path

import pytest

from spoolscope.traces.text import decoded, escaped, shown, shown_json


def test_escaped_bytes_come_back() -> None:
    assert decoded("caf%C3%A9 100%25") == "café 100%".encode()
    assert decoded("raw %FF") == b"raw \xff"


def test_a_stray_byte_leaves_the_names_beside_it_alone() -> None:
    assert escaped("Bücher/".encode() + b"\xfcber%") == "Bücher/%FCber%25"


def test_random_bytes_come_back() -> None:
    rng = random.Random(21)
    for _ in range(3000):
        pieces = [rng.randbytes(2), chr(rng.randrange(0xD800)).encode(), b"%", b"C3"]
        raw = b"".join(rng.choices(pieces, k=6))
        assert decoded(escaped(raw)) == raw


@pytest.mark.parametrize("name", [bytes(range(1, 256)), "café 100%".encode(), b"%41", b"plain"])
def test_every_name_comes_back(name: bytes) -> None:
    assert decoded(escaped(name)) == name


LIVE = Path(__file__).parents[2] / "tracers/live/bcctop.py"
HOSTILE = (
    "\x1b]0;x\x07\r\n\t\x00\x7f\x85\x9b\xad\u200b\u200e\u2028\u202e\u2066\ufeff\udcff\U000e0041"
)
"""Title, bell, line ends, DEL, C1, soft hyphen, invisible characters, bidi marks, a stray byte."""


def is_hidden(character: str) -> bool:
    """Return whether it is invisible by the Unicode database, not by isprintable()."""
    spaces = unicodedata.category(character) == "Zs" and character != " "
    others = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    return spaces or others or character in IGNORABLE


# DerivedCoreProperties.txt, Default_Ignorable_Code_Point, without category C.
IGNORABLE = {
    *map(chr, (0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x3164)),
    *map(chr, (*range(0xFE00, 0xFE10), 0xFFA0, *range(0xE0100, 0xE01F0))),
}


def test_every_hidden_character_is_written_out_and_every_other_stays() -> None:
    for character in map(chr, range(0x110000)):
        if is_hidden(character):
            assert shown(character) == ascii(character)[1:-1].replace("\\n", "\\x0a").replace(
                "\\r", "\\x0d"
            ).replace("\\t", "\\x09")
        elif character != "\u2800":  # an empty cell, visible by the database
            assert shown(character) == character


def test_random_texts_stay_one_line_without_a_hidden_character() -> None:
    rng = random.Random(21)
    for _ in range(3000):
        raw = [rng.choice((rng.randrange(0x300), rng.randrange(0x110000))) for _ in range(9)]
        text = "".join(map(chr, raw)) + rng.choice(HOSTILE)
        assert not any(map(is_hidden, shown(text)))
        told = shown_json({text: [text]}, indent=1)
        assert told.isascii()
        assert not any(map(is_hidden, told.replace("\n", "")))
        assert json.loads(told) == json.loads(json.dumps({text: [text]}))


@pytest.mark.parametrize("text", ["", "Bücher/日本語/почта", "a b\\x", "e\u0301", "…µ✗ 😀"])
def test_what_is_seen_is_not_changed(text: str) -> None:
    assert shown(text) == text


def test_the_live_tools_show_names_in_the_same_way() -> None:
    live = runpy.run_path(str(LIVE))["shown"]
    every = "".join(map(chr, range(0x110000)))
    assert live(every) == shown(every)


def test_a_screen_of_the_live_tools_shows_names(capsys: pytest.CaptureFixture[str]) -> None:
    live = runpy.run_path(str(LIVE))
    asked = argparse.Namespace(interval=0, count=1, noclear=True, maxrows=5)
    live["refresh"](asked, "COMM", lambda: [HOSTILE])
    with pytest.raises(SystemExit) as end:
        live["fail"](HOSTILE)
    told = capsys.readouterr().out.replace("\n", "") + str(end.value)
    assert not any(map(is_hidden, told))
