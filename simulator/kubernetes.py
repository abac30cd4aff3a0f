"""Words of a container's command from Kubernetes or docker-compose YAML, or from a JSON list; no YAML library needed.

Read are ``command``, ``args``, ``entrypoint`` and ``image`` (flow lists, dash lists, block scalars, plain scalars), and
``VLLM_...`` entries of ``env``.  Anchors, templates and multi-line plain scalars are not.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from simulator.errors import ConfigError
from simulator.shell_words import split_commands

_KEY = re.compile(r"^([ \t]*)((?:-[ \t]+)*)[\"']?(command|args|entrypoint|image)[\"']?[ \t]*:(?:[ \t]+(.*))?$")
_DASH = re.compile(r"^([ \t]*)-(?:[ \t]+(.*))?$")
_ENV = re.compile(r"name:[ \t]*[\"']?(VLLM_\w+)[\"']?[ \t]*\n[ \t]*value:[ \t]*[\"']?([^\"'\n]*)")
_ENV_SHORT = re.compile(r"^[ \t]*-?[ \t]*[\"']?(VLLM_\w+)[:=][ \t]*[\"']?([^\"'\n]*)", re.MULTILINE)
_BLOCK = re.compile(r"[|>][+-]?\d?[ \t]*(?:#.*)?$")


@dataclass
class Container:
    """What one container runs."""

    parts: dict[str, list[str]] = field(default_factory=dict)
    image: str | None = None
    env: dict[str, str] = field(default_factory=dict)

    @property
    def words(self) -> list[str]:
        """The entrypoint's words, then the arguments."""
        return [word for key in ("entrypoint", "command", "args") for word in self.parts.get(key, ())]

    @property
    def runs_vllm(self) -> bool:
        """Does anything in it look like a vLLM server?"""
        return "vllm" in (self.image or "") or any("vllm" in word or word.startswith("--") for word in self.words)


def container(text: str) -> Container | None:
    """Return the first container of *text* that runs vLLM; None if *text* is no such list."""
    stripped = text.strip()
    if stripped.startswith("["):
        return Container({"args": _flow(stripped)})
    if stripped.startswith("{"):
        return _from_json(stripped)
    lines = text.split("\n")
    if all(_DASH.match(line) for line in lines if line.strip() and not line.strip().startswith("#")) and stripped:
        return Container({"args": _dashes(lines, 0, -1)[0]})
    found = [each for each in _containers(lines) if each.parts and each.runs_vllm]
    if not found:
        return None
    found[0].env = {name: value.strip() for name, value in _ENV.findall(text) + _ENV_SHORT.findall(text)}
    return found[0]


def _containers(lines: list[str]) -> list[Container]:
    """Return the containers in the order of the text; a key that comes again starts the next one."""
    found = [Container()]
    at = 0
    while at < len(lines):
        key = _KEY.match(lines[at])
        at += 1
        if key is None:
            continue
        name, rest = key[3], (key[4] or "").strip()
        current = found[-1]
        if name in current.parts or (name == "image" and current.image is not None):
            current = Container()
            found.append(current)
        if name == "image":
            current.image = _scalar(rest)
            continue
        current.parts[name], at = _value(lines, at, len(key[1]) + len(key[2]), rest)
    return found


def _value(lines: list[str], at: int, indent: int, rest: str) -> tuple[list[str], int]:
    """Return (words, next line) of the value of a key whose name stands at column *indent*."""
    rest = "" if rest.startswith("#") else rest
    if not rest:
        return _dashes(lines, at, indent)
    if _BLOCK.match(rest):
        text, at = _block(lines, at, indent, folded=rest[0] == ">")
        return _words(text), at
    if rest.startswith("["):
        text = rest
        while text.count("[") > text.count("]") and at < len(lines):
            text += "\n" + lines[at]
            at += 1
        return _flow(text), at
    return _words(_scalar(rest)), at


def _words(text: str) -> list[str]:
    """Return a scalar as the words of its last command that mentions vLLM, or of all of it."""
    commands = split_commands(text)
    chosen = [words for words in commands if any("vllm" in word for word in words)]
    return (chosen or commands or [[]])[0]


def _dashes(lines: list[str], at: int, indent: int) -> tuple[list[str], int]:
    """Return (items, next line) of a dash list that is not left of column *indent*."""
    words: list[str] = []
    while at < len(lines):
        line = lines[at]
        dash = _DASH.match(line)
        if not line.strip() or line.strip().startswith("#"):
            at += 1
            continue
        if dash is None or len(dash[1]) < indent or re.match(r"[\w.-]+:(\s|$)", dash[2] or ""):
            break
        item = (dash[2] or "").strip()
        at += 1
        if _BLOCK.match(item):
            text, at = _block(lines, at, len(dash[1]), folded=item[0] == ">")
            words.append(text)
        else:
            words += _item(_scalar(item))
    return words, at


def _item(text: str) -> list[str]:
    """Return one argument; ``--flag value`` written as one item is taken as the two words that were meant."""
    two = re.fullmatch(r"(--?[\w.-]+)[ \t]+(\S.*)", text)
    return [two[1], _scalar(two[2])] if two else [text]


def _block(lines: list[str], at: int, indent: int, *, folded: bool) -> tuple[str, int]:
    taken: list[str] = []
    while at < len(lines) and (not lines[at].strip() or len(lines[at]) - len(lines[at].lstrip()) > indent):
        taken.append(lines[at].strip())
        at += 1
    return (" " if folded else "\n").join(taken).strip(), at


def _scalar(text: str) -> str:
    """Return a YAML scalar without its quotes or its comment."""
    text = text.strip()
    if text[:1] == '"':
        closed = re.match(r'"((?:[^"\\]|\\.)*)"', text)
        return re.sub(r'\\(["\\/])', r"\1", closed[1]) if closed else text
    if text[:1] == "'":
        closed = re.match(r"'((?:[^']|'')*)'", text)
        return closed[1].replace("''", "'") if closed else text
    return re.split(r"[ \t]#", text, maxsplit=1)[0].strip()


def _flow(text: str) -> list[str]:
    """Return the items of ``[a, "b", 'c']``."""
    try:
        items = json.loads(text)
    except (ValueError, RecursionError):
        items = None
    if isinstance(items, list):
        return [item if isinstance(item, str) else json.dumps(item) for item in items]
    end = text.rfind("]")
    if end < 0:
        raise ConfigError(f"the list that starts at {text[:40]!r} is never closed; add the missing ]")
    pattern = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'|[^,\s][^,\n]*"
    inner = re.sub(r"(?m)(?<=[,\[])[ \t]*#.*$", "", text[1:end])
    return [word for item in re.findall(pattern, inner) for word in _item(_scalar(item))]


def _from_json(text: str) -> Container | None:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _search(data, 0)


def _search(data: Any, depth: int) -> Container | None:
    """Return the first object with ``args`` or ``command`` that runs vLLM."""
    if depth > 20 or not isinstance(data, (dict, list)):
        return None
    if isinstance(data, dict):
        parts = {
            key: [str(word) for word in data[key]] for key in ("command", "args") if isinstance(data.get(key), list)
        }
        image = data.get("image")
        found = Container(parts, image if isinstance(image, str) else None)
        if parts and found.runs_vllm:
            return found
    for inner in data.values() if isinstance(data, dict) else data:
        deeper = _search(inner, depth + 1)
        if deeper is not None:
            return deeper
    return None
