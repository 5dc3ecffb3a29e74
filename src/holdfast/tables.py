"""Tables of settings into frozen dataclasses, with errors that name the key and what is allowed.

A field's type says what it takes: `int`, `float`, `bool`, `str`, `Literal[...]`, `tuple[int, ...]`,
`tuple[float, ...]`, `tuple[str, ...]`, a nested dataclass, or any of these in
`Annotated[..., msgspec.Meta(ge=, gt=, le=, lt=)]`. The string under a field is its help text. The same
code reads TOML values and the text of a command line.
"""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import numpy as np

from holdfast.errors import ConfigError, nearest

T = TypeVar("T")
TRUE, FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def build(kind: type[T], table: Mapping[str, Any], where: str = "") -> T:
    """Return `kind(**table)` with every value checked; `where` is the dotted place of the table."""
    return _made(kind, checked(kind, table, where), where)


def overlay(base: T, changes: Mapping[str, Any], where: str) -> T:
    """Return `base` with some fields replaced by checked values."""
    if not changes:
        return base
    values = checked(type(base), changes, where)
    return _made(lambda **given: replace(base, **given), values, where)  # type: ignore[type-var]


def checked(kind: type, table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the values of a table as the types that the fields of `kind` have."""
    hints = get_type_hints(kind, include_extras=True)
    known = [f.name for f in fields(kind)]
    values = {}
    for key, value in table.items():
        if key not in known:
            raise ConfigError(unknown_key(where, key, known))
        values[key] = convert(hints[key], value, dotted(where, key))
    return values


def _made(make: Callable[..., T], values: Mapping[str, Any], where: str) -> T:
    try:
        return make(**values)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}" if where else str(error)) from None


def unknown_key(where: str, key: str, known: list[str]) -> str:
    """Return the message for a key that does not exist."""
    place = f" in [{where}]" if where else ""
    return (
        f"Unknown key '{key}'{place}.{nearest(key, known)} "
        f"Known keys{place}: {', '.join(sorted(set(known)))}."
    )


def convert(hint: Any, value: Any, where: str) -> Any:
    """Return `value` as the type `hint`, or raise a ConfigError that says what is allowed."""
    bounds = None
    if get_origin(hint) is Annotated:
        hint, *extras = get_args(hint)
        bounds = next((e for e in extras if isinstance(e, msgspec.Meta)), None)
    result = _convert(hint, value, where, bounds)
    if bounds is not None:
        for item in result if isinstance(result, tuple) else (result,):
            if not _within(item, bounds):
                raise ConfigError(_wrong(where, value, hint, bounds))
    return result


def _convert(hint: Any, value: Any, where: str, bounds: msgspec.Meta | None) -> Any:
    origin = get_origin(hint)
    if isinstance(value, np.generic):
        value = value.item()
    if is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where} = {value!r} must be a table of settings.")
        return build(hint, value, where)
    if origin is Literal:
        if "on" in get_args(hint):  # a switch with more than two places: true is `on`
            value = {"true": "on", "false": "off"}.get(str(value).lower(), value)
        if value in get_args(hint):
            return value
    elif origin in (Union, types.UnionType):
        for choice in get_args(hint):
            if choice is type(None) and value in (None, "", "none"):
                return None
        rest = [c for c in get_args(hint) if c is not type(None)]
        return _convert(rest[0], value, where, bounds)
    elif origin is tuple:
        inner = get_args(hint)[0]
        items = [p for p in value.split(",") if p] if isinstance(value, str) else value
        if isinstance(items, list | tuple):
            return tuple(_convert(inner, _strip(v), where, bounds) for v in items)
        return (_convert(inner, items, where, bounds),)
    elif hint is bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in TRUE + FALSE:
            return value.lower() in TRUE
    elif hint is int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, str):
            number = _number(value)
            if number is not None and number.is_integer():
                return int(value.replace("_", "")) if value.lstrip("+-").isdigit() else int(number)
    elif hint is float:
        number = _number(value)
        if number is not None and math.isfinite(number):
            return number
    elif hint is str:
        if isinstance(value, str):
            return value
    elif hint is Any:
        return value
    elif origin is dict and isinstance(value, Mapping):
        return dict(value)
    raise ConfigError(_wrong(where, value, hint, bounds))


def _strip(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _within(value: Any, bounds: msgspec.Meta) -> bool:
    return not (
        (bounds.ge is not None and not value >= bounds.ge)
        or (bounds.gt is not None and not value > bounds.gt)
        or (bounds.le is not None and not value <= bounds.le)
        or (bounds.lt is not None and not value < bounds.lt)
    )


def _wrong(where: str, value: Any, hint: Any, bounds: msgspec.Meta | None) -> str:
    refused = f"{where} = {value!r} is not allowed. It takes {describe(hint, bounds)}"
    if where.startswith("phase "):  # stands in a file, and cannot be typed
        return f"{refused}."
    typed = f"--{where.replace('_', '-')}"
    if get_origin(hint) is dict:
        return f"{refused}; type its settings one by one: {typed}.name value"
    return f"{refused}; type for example: {typed} {example(hint, bounds)}"


def describe(hint: Any, bounds: msgspec.Meta | None = None) -> str:
    """Return in words what a type takes."""
    if get_origin(hint) is Annotated:
        hint, *extras = get_args(hint)
        bounds = next((e for e in extras if isinstance(e, msgspec.Meta)), None)
    origin = get_origin(hint)
    if origin is Literal:
        return "one of " + ", ".join(str(a) for a in get_args(hint))
    if origin is tuple:
        kind, _, bound = describe(get_args(hint)[0], bounds).removeprefix("a ").partition(" >")
        return f"{kind}s joined by commas" + (f", each >{bound}" if bound else "")
    if origin in (Union, types.UnionType):
        return describe(get_args(hint)[0]) + " or none"
    if origin is dict:
        return "a table"
    word = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}.get(
        hint, "a table"
    )
    if bounds is not None:
        limits = [
            f"{sign} {limit}"
            for sign, limit in (
                (">=", bounds.ge),
                (">", bounds.gt),
                ("<=", bounds.le),
                ("<", bounds.lt),
            )
            if limit is not None
        ]
        word += " " + " and ".join(limits)
    return word


def example(hint: Any, bounds: msgspec.Meta | None) -> str:
    """Return a value that the type takes."""
    origin = get_origin(hint)
    if origin is Literal:
        return str(get_args(hint)[0])
    if origin is tuple:
        return "64,64" if get_args(hint)[0] is int else "a,b"
    if hint is bool:
        return "true"
    if hint is str:
        return "text"
    low = 0.0
    if bounds is not None:
        low = next((float(b) for b in (bounds.ge, bounds.gt) if b is not None), 0.0)
        if bounds.gt is not None:
            low += 1 if hint is int else 0.1
    return str(int(low)) if hint is int else str(low)


def dotted(where: str, key: str) -> str:
    """Return `where.key`."""
    return f"{where}.{key}" if where else key


@cache
def field_docs(kind: type) -> dict[str, str]:
    """Return the string under each field of a dataclass."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    docs: dict[str, str] = {}
    name = ""
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and name:
            docs[name] = " ".join(str(node.value.value).split())
            name = ""
    return docs


def flatten(settings: Any, where: str = "") -> dict[str, Any]:
    """Return every leaf of a dataclass tree by its dotted key."""
    leaves: dict[str, Any] = {}
    for f in fields(settings):
        value = getattr(settings, f.name)
        key = dotted(where, f.name)
        if is_dataclass(value):
            leaves.update(flatten(value, key))
        else:
            leaves[key] = value
    return leaves


def help_rows(kind: type, where: str) -> list[tuple[str, str, str, str]]:
    """Return (flag, what it takes, default, help) for every leaf of a dataclass."""
    hints = get_type_hints(kind, include_extras=True)
    docs = field_docs(kind)
    rows = []
    for f in fields(kind):
        key = dotted(where, f.name)
        if is_dataclass(hints[f.name]):
            rows += help_rows(hints[f.name], key)
            continue
        default = "" if f.default is MISSING else text(f.default)
        rows.append(
            ("--" + key.replace("_", "-"), describe(hints[f.name]), default, docs.get(f.name, ""))
        )
    return rows


def text(value: Any) -> str:
    """Return a value as a person would type it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(map(text, value))
    return str(value)
