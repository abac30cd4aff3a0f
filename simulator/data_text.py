"""Plain data as TOML, YAML or JSON text, by the suffix of a file's name; errors are one line that begins with it.

TOML has no null: what is None is left out there, so readers must take a missing key for None.
"""

from __future__ import annotations

import json
import tomllib
from typing import Any

from simulator.errors import InputError

SUFFIXES = ("toml", "yaml", "yml", "json")


def parse(text: str, name: str, kind: str | None = None) -> Any:
    """Return the data written in *text*, of *kind* (a suffix; default: that of *name*); JSON if it is none of them."""
    kind = kind or suffix(name)
    if kind == "toml":
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{name}: is not TOML ({error}); strings need quotes") from None
    if kind in ("yaml", "yml"):
        return _yaml(text, name)
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{name}: is not JSON ({error.msg} in line {error.lineno}); write it with to_json") from None


def dump(data: dict[str, Any], name: str) -> str:
    """Return *data* as text that `parse` reads back, ending in a newline."""
    kind = suffix(name)
    if kind == "toml":
        import tomli_w

        return tomli_w.dumps(_without_none(data))
    if kind in ("yaml", "yml"):
        import yaml

        return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=1000)
    return json.dumps(data, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def suffix(name: str) -> str:
    """Return the suffix of *name* in small letters, without its dot."""
    return name.lower().rpartition(".")[2]


def _yaml(text: str, name: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"{name}: is not YAML ({' '.join(str(error).split())[:120]}); correct it") from None


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, (list, tuple)) else value
