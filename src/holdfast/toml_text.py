"""Values as TOML writes them, and as one types them."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any


def toml_text(value: Any) -> str:
    """Return a value as it stands in a TOML file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)  # the escapes of both are the same
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(toml_text, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {toml_text(v)}" for k, v in value.items()) + "}"
    return repr(value) if value is not None else '"none"'


def typed(value: Any) -> Any:
    """Return a typed text as TOML reads it (`false`, `3`, `[1, 2]`), or as the text that it is."""
    if not isinstance(value, str):
        return value
    try:
        found = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return value
    return found if isinstance(found, bool | int | float | str | list | dict) else value


def untyped(value: Any) -> str:
    """Return what to type so that `typed` gives the value."""
    return value if isinstance(value, str) and typed(value) == value else toml_text(value)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml_text(key)
