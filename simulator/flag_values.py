"""Values of flags: text or Python values to JSON values of the flag's type, refused as vLLM refuses them.

Integers with a suffix follow vLLM's parser: ``16k`` is 16000, ``25.6k`` 25600, ``16K`` 16384; a decimal with a binary
suffix (``1.5K``) is refused there too.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from simulator.errors import ConfigError
from simulator.flag_table import Flag

_SUFFIXES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_LARGEST = 1 << 62


def convert(flag: Flag, value: Any) -> Any:
    """Return *value* (text, or a Python value) as the flag's type; `ConfigError` names value, rule and fix."""
    if value is None:
        return None
    if flag.kind == "bool":
        return switch_value(value, flag)
    if flag.kind == "human_int":
        return human_int(flag, value)
    if flag.kind == "int":
        return json_or_level(value) if flag.name == "optimization_level" else _int(flag, value)
    if flag.kind == "float":
        return _float(flag, value)
    if flag.kind == "int_list":
        return _int_list(flag, value)
    if flag.kind == "json":
        return _json(flag, value)
    if flag.kind == "list":
        return [str(item) for item in value] if isinstance(value, (list, tuple)) else [str(value)]
    return value if isinstance(value, str) else str(value)


def _short(value: Any) -> str:
    """Return *value* as it is shown in a message: one line, not too long."""
    text = repr(value)
    return text if len(text) <= 50 else text[:47] + "..."


def is_switch_value(word: str) -> bool:
    """Is *word* the value of a switch written the old way (``--enable-chunked-prefill False``)?"""
    return word.lower() in ("true", "false")


def switch_value(value: Any, flag: Flag) -> bool:
    """Return the value of a switch."""
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("true", "1", "yes", "on"):
        return True
    if text in ("false", "0", "no", "off"):
        return False
    raise ConfigError(
        f"{flag.spelled} must be true or false, got {_short(value)}; write {flag.spelled} or "
        f"--no-{flag.spelled.removeprefix('--')}"
    )


def _int(flag: Flag, value: Any) -> int:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value // 1
    is_text = isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d{1,25}\s*", value, re.ASCII)
    if not is_number and not is_text:
        hint = " (no suffix here)" if isinstance(value, str) and re.fullmatch(r"[\d.]+[kKmMgG]", value) else ""
        raise ConfigError(f"{flag.spelled} must be a whole number, got {_short(value)}; write digits only{hint}")
    return _in_range(flag, int(value))


def _in_range(flag: Flag, number: int) -> int:
    if abs(number) > _LARGEST:
        raise ConfigError(f"{flag.spelled} must be below 2**62, got {_short(number)}; write a sensible number")
    return number


def human_int(flag: Flag, value: Any) -> int:
    """Return a whole number that may have a suffix; ``auto`` (and -1) for max_model_len is -1."""
    if not isinstance(value, str):
        return _int(flag, value)
    text = value.strip()
    if flag.name == "max_model_len" and text.lower() == "auto":
        return -1
    found = re.fullmatch(r"(\d{1,20}(?:\.\d{1,20})?)([kKmMgGtT])", text, re.ASCII)
    if found is None:
        if re.fullmatch(r"[+-]?\d{1,25}", text, re.ASCII):
            return _in_range(flag, int(text))
        raise ConfigError(f"{flag.spelled} must be a whole number, got {_short(value)}; write e.g. 16384, 16K or 16k")
    number, suffix = found[1], found[2]
    if "." in number and suffix.isupper():
        raise ConfigError(
            f"{flag.spelled} {value.strip()}: decimals are not allowed with binary suffixes like {suffix}; "
            f"did you mean {number}{suffix.lower()}?"
        )
    return _in_range(flag, int(float(number) * _SUFFIXES[suffix]) if "." in number else int(number) * _SUFFIXES[suffix])


def _float(flag: Flag, value: Any) -> float:
    number = math.nan
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value) if abs(value) < 1e300 or not math.isfinite(value) else math.inf
    elif isinstance(value, str) and re.fullmatch(r"[\s\d.eE+_-]{1,40}", value, re.ASCII):
        try:
            number = float(value)
        except ValueError:
            number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"{flag.spelled} must be a finite number, got {_short(value)}; write e.g. 0.9")
    return number


def _int_list(flag: Flag, value: Any) -> list[int]:
    items = value if isinstance(value, (list, tuple)) else [value]
    numbers: list[int] = []
    for item in items:
        parts = re.split(r"[\s,]+", item.strip().strip("[]()").strip(", ")) if isinstance(item, str) else [item]
        numbers += [_int(flag, part) for part in parts if part != ""]
    if not numbers:
        raise ConfigError(f"{flag.spelled} needs at least one whole number; write e.g. {flag.spelled} 1 2 4 8")
    return numbers


def parse_json(text: str) -> Any:
    """Return *text* as the JSON value it is, else as it stands (Python's True, False and None are known too)."""
    if text in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[text]
    try:
        value = json.loads(text, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return text
    return value


def json_or_level(value: Any) -> Any:
    """Return the value of ``-O``: a level 0..3, or a compilation config."""
    value = parse_json(value) if isinstance(value, str) else value
    if isinstance(value, dict):
        return value
    level = re.fullmatch(r"(?:[oO])?([0-3])", str(value).strip().rpartition(".")[2]) if value is not True else None
    if level is None:
        raise ConfigError(f"-O must be a level from 0 to 3, got {_short(value)}; write -O2 (the default)")
    return int(level[1])


def _json(flag: Flag, value: Any) -> Any:
    """Return a JSON object; a compilation config may be a bare level, limits may be written ``image=2,video=1``."""
    if isinstance(value, dict):
        return value
    parsed = parse_json(value) if isinstance(value, str) else value
    if isinstance(parsed, dict):
        return parsed
    if flag.name == "compilation_config" and isinstance(parsed, int) and not isinstance(parsed, bool):
        return {"level": parsed}
    if flag.name == "limit_mm_per_prompt" and re.fullmatch(r"(?:\w+=\d+,?)+", str(value)):
        return dict(part.split("=") for part in str(value).strip(",").split(","))
    raise ConfigError(
        f"{flag.spelled} must be a JSON object, got {_short(value)}; write e.g. {flag.spelled} '{{\"key\": 1}}' "
        "in single quotes"
    )
