"""JSON as frozen dataclasses: values are checked against the types of fields when read.

A field whose name is a Python keyword has an underscore at its end here, but not in JSON. A field
with a default may be missing; unknown fields are ignored.
"""

import dataclasses
import math
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
_PLAIN = {int: (int,), float: (int, float), str: (str,), bool: (bool,)}
_SAID = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def part(meaning: str, unit: str = "", **default: Any) -> Any:
    """Return a dataclass field with its meaning and unit; ``default`` or ``default_factory``."""
    return dataclasses.field(metadata={"meaning": meaning, "unit": unit}, **default)


def key_of(field: "dataclasses.Field[Any]") -> str:
    """Return the name of a field in JSON."""
    return field.name.rstrip("_")


def without_nan(value: Any) -> Any:
    """Return a value of lists, tuples and dicts with None for each nan, which JSON lacks."""
    if isinstance(value, dict):
        return {key: without_nan(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(one) for one in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def types_of(kind: Any) -> dict[str, Any]:
    """Return the types of a dataclass's fields by name."""
    return _hints(kind)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def decode(kind: type[T], value: Any, at: str = "") -> T:
    """Return a JSON value as ``kind``.

    Args:
        kind: A dataclass, int, float, str, bool, Any, list[X], dict[str, X], or one of them | None.
        value: Result of ``json.loads``.
        at: Place of the value, for errors.

    Raises:
        ValueError: it is not of that type, or lacks a field.
    """
    found: T = _decoded(kind, value, at)
    return found


def decoded(kind: type[T], value: Any) -> T | None:
    """Return a JSON value as ``kind``, null as None; it raises as ``decode`` does."""
    return None if value is None else decode(kind, value)


def encode(value: Any) -> Any:
    """Return dataclasses, and lists and dictionaries of them, as values for JSON."""
    if dataclasses.is_dataclass(value):
        return {key_of(f): encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: encode(one) for key, one in value.items()}
    return [encode(one) for one in value] if isinstance(value, list | tuple) else value


def _decoded(kind: Any, value: Any, at: str) -> Any:
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, value, at)
    if get_origin(kind) is UnionType:
        of = next(one for one in get_args(kind) if one is not NoneType)
        return None if value is None else _decoded(of, value, at)
    if get_origin(kind) is list:
        _expect(value, list, "a list", at)
        return [_decoded(get_args(kind)[0], one, f"{at}[{n}]") for n, one in enumerate(value)]
    if get_origin(kind) is dict:
        _expect(value, dict, "an object", at)
        return {key: _decoded(get_args(kind)[1], one, f"{at}.{key}") for key, one in value.items()}
    # True is an int in Python, but not a number in JSON.
    if not isinstance(value, _PLAIN[kind]) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{_place(at)} is {_shown(value)}, not {_SAID[kind]}")
    return value


def _dataclass(kind: Any, value: Any, at: str) -> Any:
    _expect(value, dict, "an object", at)
    types, found = types_of(kind), {}
    for field in dataclasses.fields(kind):
        key = key_of(field)
        if key in value:
            found[field.name] = _decoded(types[field.name], value[key], f"{at}.{key}")
        elif _is_required(field):
            raise ValueError(f"{_place(f'{at}.{key}')} is missing")
    return kind(**found)


def _is_required(field: "dataclasses.Field[Any]") -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


def _expect(value: Any, kind: type, said: str, at: str) -> None:
    if not isinstance(value, kind):
        raise ValueError(f"{_place(at)} is {_shown(value)}, not {said}")


def _place(at: str) -> str:
    return at.lstrip(".") or "it"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
