"""The records have the same layout in C, Rust and Python, member by member."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spoolscope.traces.calls import CALLS
from spoolscope.traces.flat import DTYPES
from spoolscope.traces.native import find_binary

ROOT = Path(__file__).resolve().parents[2]
HEADERS = [
    ROOT / "traces" / "include" / f"spoolscope_{name}.h" for name in ("records", "snapshot", "plan")
]
PREFIX = "spsc_"

# struct name -> (size, {member: (offset, size)})
Layout = dict[str, tuple[int, dict[str, tuple[int, int]]]]


@pytest.fixture(scope="module")
def c_layout(tmp_path_factory: pytest.TempPathFactory, require: Callable[..., None]) -> Layout:
    """Return the layout of the headers by clang's BPF back end."""
    require("clang")
    require("bpftool")
    work = tmp_path_factory.mktemp("btf")
    text = "".join(header.read_text() for header in HEADERS)
    names = re.findall(r"^struct (\w+) \{", text, re.MULTILINE)
    source = work / "layout.c"
    variables = "".join(f"struct {name} _{name};\n" for name in names)
    source.write_text(f'#include "{HEADERS[-1]}"\n{variables}')
    triplet = subprocess.check_output(["gcc", "-print-multiarch"], text=True).strip()
    include = ["-I", f"/usr/include/{triplet}"]
    target = work / "layout.o"
    subprocess.run(
        ["clang", "-g", "-O1", "-target", "bpf", *include, "-c", source, "-o", target], check=True
    )
    dump = subprocess.check_output(["bpftool", "-j", "btf", "dump", "file", str(target)])
    return _from_btf({t["id"]: t for t in json.loads(dump)["types"]})


def test_numpy_repeats_the_header(c_layout: Layout) -> None:
    assert _from_numpy() == c_layout


def test_rust_repeats_the_header(c_layout: Layout) -> None:
    assert _from_rust() == c_layout


def test_rust_and_numpy_agree_without_a_compiler() -> None:
    assert _from_rust() == _from_numpy()


def test_every_gap_is_an_explicit_member() -> None:
    for name, (size, members) in _from_numpy().items():
        assert sum(length for _, length in members.values()) == size, f"hidden padding in {name}"


def test_call_ids_have_no_holes_and_no_duplicates() -> None:
    assert [call.id for call in CALLS.values()] == list(range(len(CALLS)))


def test_call_classes_and_argument_words_are_explained_in_the_file() -> None:
    comments = "".join(
        line[1:] for line in (ROOT / "traces/calls.txt").read_text().splitlines() if line[:1] == "#"
    )
    known = set(re.findall(r"[\w]+", comments)) | {"iovcnt"}
    for call in CALLS.values():
        assert {call.klass, *call.args} <= known, call


def _from_btf(types: dict[int, dict[str, Any]]) -> Layout:
    structs = {}
    for kind in types.values():
        if kind["kind"] != "STRUCT" or not kind["name"].startswith(PREFIX):
            continue
        members = {
            m["name"]: (m["bits_offset"] // 8, _size(types, m["type_id"])) for m in kind["members"]
        }
        structs[kind["name"].removeprefix(PREFIX)] = (kind["size"], members)
    return structs


def _size(types: dict[int, dict[str, Any]], type_id: int) -> int:
    kind = types[type_id]
    if kind["kind"] == "ARRAY":
        return int(kind["nr_elems"]) * _size(types, kind["type_id"])
    if kind["kind"] in ("TYPEDEF", "CONST", "VOLATILE"):
        return _size(types, kind["type_id"])
    return int(kind["size"])


def _from_numpy() -> Layout:
    return {
        name: (
            dtype.itemsize,
            {m: (offset, part.itemsize) for m, (part, offset, *_) in dtype.fields.items()},
        )
        for name, dtype in DTYPES.items()
    }


def _from_rust() -> Layout:
    program = find_binary("spoolscope-replay")
    printed = json.loads(subprocess.check_output([program, "layout"]))
    return {
        name: (
            struct["size"],
            {m["name"]: (m["offset"], m["size"]) for m in struct["members"]},
        )
        for name, struct in printed.items()
    }
