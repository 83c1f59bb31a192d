"""The records have the same layout in C, Rust and Python, member by member."""

import ast
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from spoolscope.replay.plan import VERSION as PLAN_VERSION
from spoolscope.traces import abi, capture, constants, flat
from spoolscope.traces.calls import CALLS, FAMILIES, having, of_effect, of_family, of_kind
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
def btf(
    tmp_path_factory: pytest.TempPathFactory, require: Callable[..., None]
) -> dict[int, dict[str, Any]]:
    """Return the types of the headers by clang's BPF back end."""
    require("clang")
    require("bpftool")
    work = tmp_path_factory.mktemp("btf")
    text = "".join(header.read_text() for header in HEADERS)
    names = re.findall(r"^(struct|enum) (\w+) \{", text, re.MULTILINE)
    source = work / "layout.c"
    variables = "".join(f"{kind} {name} _{name};\n" for kind, name in names)
    source.write_text(f'#include "{HEADERS[-1]}"\n{variables}')
    triplet = subprocess.check_output(["gcc", "-print-multiarch"], text=True).strip()
    include = ["-I", f"/usr/include/{triplet}"]
    target = work / "layout.o"
    subprocess.run(
        ["clang", "-g", "-O1", "-target", "bpf", *include, "-c", source, "-o", target], check=True
    )
    dump = subprocess.check_output(["bpftool", "-j", "btf", "dump", "file", str(target)])
    return {t["id"]: t for t in json.loads(dump)["types"]}


@pytest.fixture(scope="module")
def c_layout(btf: dict[int, dict[str, Any]]) -> Layout:
    return _from_btf(btf)


@pytest.fixture(scope="module")
def rust() -> dict[str, Any]:
    printed: dict[str, Any] = json.loads(
        subprocess.check_output([find_binary("spoolscope-replay"), "layout"])
    )
    return printed


def test_numpy_repeats_the_header(c_layout: Layout) -> None:
    assert _from_numpy() == c_layout


def test_rust_repeats_the_header(c_layout: Layout, rust: dict[str, Any]) -> None:
    assert _from_rust(rust) == c_layout


def test_rust_and_numpy_agree_without_a_compiler(rust: dict[str, Any]) -> None:
    assert _from_rust(rust) == _from_numpy()


def test_python_repeats_the_enumerators_of_the_header(btf: dict[int, dict[str, Any]]) -> None:
    in_c = {
        value["name"].removeprefix("SPSC_"): value["val"]
        for kind in btf.values()
        if kind["kind"] == "ENUM"
        for value in kind["values"]
    }
    assert len(in_c) > 100
    assert _numbers(constants) == in_c


def test_rust_repeats_the_constants(rust: dict[str, Any]) -> None:
    known = _numbers(constants) | {
        "STACK_FRAMES": flat.STACK_FRAMES, "NONE": flat.NONE, "VERSION": PLAN_VERSION,
        "CAPTURE_VERSION": capture.VERSION,
    }  # fmt: skip
    shared = known.keys() & rust["constants"].keys()
    assert {name: known[name] for name in shared} == {n: rust["constants"][n] for n in shared}
    # The form is the file's own; the tests of captures read files that Rust wrote.
    own = {"COMM", "NO_CALL", "STATE_OPEN", "STATE_CLOSED", "CHUNK_MAGIC"}
    assert rust["constants"].keys() - shared == own | {"CODEC_STORED", "CODEC_ZSTD"}


def test_python_has_the_constants_of_linux(rust: dict[str, Any]) -> None:
    assert {name: n & 0xFFFF_FFFF for name, n in _numbers(abi).items()} == rust["linux"]


def test_constants_of_linux_have_one_place_in_python() -> None:
    """Names that the standard library has (os, stat, fcntl) may be taken from there."""
    found = set()
    for file in ROOT.glob("*/python/**/*.py"):
        for node in ast.parse(file.read_text()).body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            names = {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
            if names & _numbers(abi).keys():
                found.add(file.name)
    assert found == {"abi.py"}


def test_every_gap_is_an_explicit_member() -> None:
    for name, (size, members) in _from_numpy().items():
        assert sum(length for _, length in members.values()) == size, f"hidden padding in {name}"


def test_call_ids_have_no_holes_and_no_duplicates() -> None:
    assert [call.id for call in CALLS.values()] == list(range(len(CALLS)))


def test_the_words_of_calls_are_explained_in_the_file() -> None:
    comments = "".join(
        line[1:] for line in (ROOT / "traces/calls.txt").read_text().splitlines() if line[:1] == "#"
    )
    known = set(re.findall(r"[\w]+", comments)) | {"iovcnt"}
    for call in CALLS.values():
        assert {call.klass, call.effect, call.family, *call.args} <= known, call
    assert f"families, in the order in which they are shown: {' '.join(FAMILIES)}" in comments
    assert set(FAMILIES) == {call.family for call in CALLS.values()}


def test_calls_are_chosen_by_words_that_some_call_has() -> None:
    assert of_effect("links", "renames") == of_kind("rename", "link")
    assert of_family("sync") == (*having("klass", "sync"), "msync")
    with pytest.raises(KeyError, match="no call has the effect open"):
        of_effect("opens", "open")


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


def _from_rust(printed: dict[str, Any]) -> Layout:
    return {
        name: (
            struct["size"],
            {m["name"]: (m["offset"], m["size"]) for m in struct["members"]},
        )
        for name, struct in printed["records"].items()
    }


def _numbers(module: ModuleType) -> dict[str, int]:
    """Return the constants of a module of numbers."""
    return {name: n for name, n in vars(module).items() if name.isupper() and type(n) is int}
