"""Values of an axis, written in one word: text in, numbers and words out.

    64,128,256           a list; true and false are switches, what is no number stays a word
    2..20:2              from 2 to 20 in steps of 2, both ends included; without a step 1
    1..64:*2             1, 2, 4 ... 64: each twice the one before
    1,2,8..32:8          both
    "choice:1,2",512     a word with a comma in double quotes
    L4/2,A100-80/1       pairs, for an axis that varies two names together (gpu,tensor_parallel_size)

Numbers are exact decimals (0.8..0.95:0.05 ends at 0.95).  A whole number is one whether written 2 or 2.0.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from decimal import Decimal

from simulator.errors import InputError

Value = bool | int | float | str

#: Names whose values stay words: 0.20 is a version, not a number.
WORDS = ("profile", "gpu", "vllm_version", "model_config", "over_length", "model", "requests", "trace")

#: Beyond, a range is a slip of the pen.
MOST = 10_000

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(?::(\*?)({_NUMBER}))?")
_DECIMAL = re.compile(_NUMBER)


def read_choices(text: str, axis: str) -> tuple[Value | tuple[Value, ...], ...]:
    """Return the values of *axis* written in *text*; `InputError` names axis, value, rule and fix."""
    names = axis.split(",")
    words = _words(text, axis)
    if len(names) == 1:
        return tuple(value for word in words for value in _spread(word, axis))
    return tuple(
        tuple(_one(part.strip(), name) for part, name in zip(word.split("/"), names, strict=False))
        if word.count("/") == len(names) - 1
        else tuple(word.split("/"))  # the sweep says how many parts are needed
        for word in words
    )


def _words(text: str, axis: str) -> list[str]:
    try:
        words = next(csv.reader([text], skipinitialspace=True, strict=True), [])
    except csv.Error as error:
        raise InputError(f"{axis}: {text[:60]!r} cannot be read ({error}); write values with commas between") from None
    words = [word.strip() for word in words]
    if not words:
        raise InputError(f"{axis} has no values; write e.g. {axis}=64,128 or {axis}=2..20:2")
    if not all(words):
        raise InputError(f"{axis}: {text[:60]!r} has an empty value; write e.g. 64,128 or 2..20:2")
    return words


def _one(word: str, name: str) -> Value:
    return word if name in WORDS else read_value(word)


def read_value(word: str) -> Value:
    """Return *word* as the switch, the number or the word it is."""
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    return plain(float(word) if not word.lstrip("+-").isdigit() else int(word)) if _DECIMAL.fullmatch(word) else word


def plain(value: Value) -> Value:
    """Return *value* with whole numbers as whole numbers; infinity and what is no number as words."""
    if isinstance(value, float):
        return str(value) if not math.isfinite(value) else int(value) if value.is_integer() else value
    return value


def text_of(value: Value | None) -> str:
    """Return *value* as a file or a table shows it; `read_value` reads it back."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _spread(word: str, axis: str) -> Iterator[Value]:
    found = None if axis in WORDS else _RANGE.fullmatch(word)
    if found is None:
        yield _one(word, axis)
        return
    first, last, factor = Decimal(found[1]), Decimal(found[2]), bool(found[3])
    step = Decimal(found[4] or 1)
    if last < first:
        raise InputError(f"{axis}: the range {word} ends before it begins; write the smaller end first")
    if step <= 0 or (factor and (step <= 1 or first <= 0)):
        rule = "a positive start and a factor above 1" if factor else "a step above 0"
        raise InputError(f"{axis}: the range {word} needs {rule}; write e.g. 2..20:2 or 1..64:*2")
    count = 0
    while first <= last:
        count += 1
        if count > MOST:
            raise InputError(f"{axis}: the range {word} has more than {MOST:,} values; take a larger step")
        yield plain(float(first))
        first = first * step if factor else first + step
