"""Python's way of writing arguments: the ``non-default args: {...}`` line of a log, and calls such as ``LLM(...)``.

The text is parsed, never run: only literals are taken, everything else is left out with a note.
"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass, field
from typing import Any

from simulator.errors import ConfigError

_LOG = re.compile(r"non-default args:\s*(?=\{)")
_CALL = re.compile(r"(?<![\w\"'])(?:vllm\.)?(LLM|AsyncEngineArgs|EngineArgs|Namespace)\s*(?=\()")
_REPR = re.compile(r"<(?:\w+\.(\w+):)?[^<>]*>")
_CLOSES = {"(": ")", "[": "]", "{": "}"}


@dataclass
class PythonArguments:
    """Arguments by name; *context* is who was called."""

    values: dict[str, Any]
    context: str  # "log", or the name of the callee
    notes: list[str] = field(default_factory=list)


def python_arguments(text: str) -> PythonArguments | None:
    """Return the arguments in *text*, or None if it is neither of the two forms.  Raises `ConfigError` if damaged."""
    found = _LOG.search(text)
    if found is not None:
        node = _parse(_balanced(text, found.end()), "the `non-default args` line")
        if not isinstance(node, ast.Dict):
            raise ConfigError("the `non-default args` line holds no {...}; copy the whole line of the log")
        names = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
        return _collect(list(zip(names, node.values, strict=True)), "log")
    found = _CALL.search(text)
    if found is None:
        return None
    node = _parse("f" + _balanced(text, found.end()), f"the {found[1]}(...) call")
    if not isinstance(node, ast.Call):
        raise ConfigError(f"the {found[1]}(...) call cannot be read; copy it with both parentheses")
    pairs: list[tuple[Any, ast.expr]] = [(word.arg, word.value) for word in node.keywords]
    return _collect([("model", node.args[0]), *pairs] if node.args else pairs, found[1])


def _balanced(text: str, start: int) -> str:
    """Return the bracketed expression that starts at *start*."""
    open_brackets: list[str] = []
    quote = ""
    at = start
    while at < len(text):
        char = text[at]
        if quote:
            if char == "\\":
                at += 1
            elif char == quote:
                quote = ""
        elif char in "'\"":
            quote = char
        elif char in _CLOSES:
            open_brackets.append(_CLOSES[char])
        elif open_brackets and char == open_brackets[-1]:
            open_brackets.pop()
            if not open_brackets:
                return text[start : at + 1]
        at += 1
    raise ConfigError(f"the bracket that starts at {text[start : start + 40]!r} is never closed; copy the whole text")


def _parse(text: str, what: str) -> ast.expr:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for attempt in (text, _REPR.sub(lambda found: repr(found[1]) if found[1] else "...", text)):
            try:
                return ast.parse(attempt.strip(), mode="eval").body
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
    raise ConfigError(f"{what} is not valid Python: {' '.join(text.split())[:60]!r}; copy it as it was printed")


def _collect(pairs: list[tuple[Any, ast.expr]], context: str) -> PythonArguments:
    found = PythonArguments({}, context)
    for name, node in pairs:
        if not isinstance(name, str):
            found.notes.append("arguments given by ** are not read; write them out")
            continue
        known, value = _literal(node)
        if known:
            found.values[name] = value
        else:
            found.notes.append(f"{name[:60]} is not a plain value and was left out; write the value")
    return found


def _literal(node: ast.expr) -> tuple[bool, Any]:
    """Return (whether it is one, the value); of a dict, what is literal in it."""
    if isinstance(node, ast.Attribute):  # torch.bfloat16 and the like: its last name is how vLLM spells the value
        return True, node.attr
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        if not isinstance(node, ast.Dict):
            return False, None
        value = {}
        for key, inner in zip(node.keys, node.values, strict=True):
            known, part = _literal(inner)
            if known and isinstance(key, ast.Constant):
                value[key.value] = part
    return value is not ..., value
