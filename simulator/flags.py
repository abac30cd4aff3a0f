"""Command-line words to values: vLLM's spellings, types and refusals, nothing executed.

`read_flags` accepts what vLLM's argparse accepts (``--a-b``, ``--a_b``, ``--a=b``, ``--no-a``, ``--a.b=c``, short
flags, unique beginnings of flags, the last of two wins) and old spellings of switches (``--a=False``).  Flags that are
not read are skipped with their values: in silence if they do not touch performance, else with a note.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any

from simulator import flag_table as table
from simulator.errors import ConfigError
from simulator.flag_answers import ANSWERS
from simulator.flag_table import FLAGS, Flag
from simulator.flag_values import convert, is_switch_value, parse_json, switch_value

_NEGATIVE = re.compile(r"-(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_SHORT = re.compile(
    r"(-O|-tp|-pp|-dp|-cc|-sc|-ac|-q|-dcp|-pcp|-ep|-asc|-dp[a-z]|-n|-r)(=|\.(?=[A-Za-z_])|$)(.*)", re.DOTALL
)


class Reading:
    """What the words of one command line say: positional words, values by flag, notes."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}
        self.positional: list[str] = []
        self.notes: list[str] = []
        self.unknown_values: list[str] = []

    def note(self, text: str) -> None:
        """Add *text* once."""
        if text not in self.notes:
            self.notes.append(text)


def read_flags(words: Sequence[str]) -> Reading:
    """Return what *words* (the arguments after the command) say.  Raises `ConfigError` for a value vLLM refuses."""
    reading, at = Reading(), 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            reading.positional += words[at:]
            break
        if not is_flag(word):
            reading.positional.append(word)
            continue
        name, path, value = split_flag(word)
        following = _values_at(words, at)
        at += _take(reading, name, path, value, following)
    return reading


def is_flag(word: str) -> bool:
    """Does *word* start a flag?  A negative number is a value."""
    return len(word) > 1 and word[0] == "-" and not _NEGATIVE.fullmatch(word) and not word[1].isspace()


def split_flag(word: str) -> tuple[str, tuple[str, ...], str | None]:
    """Return (name with underscores, keys after dots, value after ``=``) of a flag."""
    short = _SHORT.fullmatch(word) if not word.startswith("--") else None
    if short is None and re.fullmatch(r"-O(?:\d|\{).*", word, re.DOTALL):
        return "optimization_level", (), word[2:]
    if short is not None:
        name = table.ALIASES[short[1]]
        if short[2] == ".":
            key, equals, value = short[3].partition("=")
            name = "compilation_config" if short[1] == "-O" else name
            return name, tuple(key.rstrip("+").split(".")), value if equals else None
        return name, (), short[3] if short[2] == "=" else None
    spelled, equals, value = word.partition("=")
    name, *path = spelled.lstrip("-").split(".")
    name = name.replace("-", "_")
    return table.ALIASES.get(name, name), tuple(key.rstrip("+") for key in path), value if equals else None


def _values_at(words: Sequence[str], at: int) -> list[str]:
    """Return the words from *at* up to the next flag."""
    end = at
    while end < len(words) and not is_flag(words[end]):
        end += 1
    return list(words[at:end])


def _take(reading: Reading, name: str, path: tuple[str, ...], value: str | None, following: list[str]) -> int:
    """Put one flag into *reading*; return how many of the *following* words belong to it."""
    name = _known(reading, name)
    if name in FLAGS:
        return _take_read(reading, FLAGS[name], path, value, following)
    if name.startswith("no_") and FLAGS.get(name[3:], FLAGS["model"]).kind == "bool":
        if value is not None:
            raise ConfigError(f"--{_dashed(name)} takes no value, got {value[:40]!r}; write it alone")
        reading.given[name[3:]] = False
        return 0
    return _skip(reading, name, value, following)


def _known(reading: Reading, name: str) -> str:
    """Return the flag that *name* is the unique beginning of, as argparse does, else *name*."""
    if kind_of(name) or len(name) < 5:
        return name
    beginnings = [known for known in (*FLAGS, *SKIPPED) if known.startswith(name)]
    if len(beginnings) != 1:
        return name
    if beginnings[0] in FLAGS:
        reading.note(f"--{_dashed(name)} is read as --{_dashed(beginnings[0])}")
    return beginnings[0]


def _take_read(reading: Reading, flag: Flag, path: tuple[str, ...], value: str | None, following: list[str]) -> int:
    if flag.kind == "bool" and not path:
        if value is None and following and is_switch_value(following[0]):
            reading.given[flag.name] = switch_value(following[0], flag)
            return 1
        reading.given[flag.name] = True if value is None else switch_value(value, flag)
        return 0
    if flag.kind in ("list", "int_list") and value is None and not path:
        if not following:
            raise ConfigError(f"{flag.spelled} needs at least one value; write it after the flag")
        reading.given[flag.name] = convert(flag, following)
        return len(following)
    if value is None and not following:
        raise ConfigError(f"{flag.spelled} needs a value; write {flag.spelled} VALUE or leave the flag out")
    text, taken = (value, 0) if value is not None else (following[0], 1)
    if path:
        _put_nested(reading.given, flag, path, text)
    else:
        _put(reading.given, flag, convert(flag, text))
    return taken


def _put(given: dict[str, Any], flag: Flag, value: Any) -> None:
    """Set a value; ``-O '{...}'`` is a compilation config, and two JSON objects for one flag are merged."""
    name = flag.name
    if name == "optimization_level" and isinstance(value, dict):
        name = "compilation_config"
    if isinstance(value, dict) and isinstance(given.get(name), dict):
        value = {**given[name], **value}
    given[name] = value


def _put_nested(given: dict[str, Any], flag: Flag, path: tuple[str, ...], text: str) -> None:
    if flag.kind != "json":
        raise ConfigError(
            f"{flag.spelled}.{'.'.join(path)[:40]}: {flag.spelled} has no keys; write {flag.spelled} VALUE"
        )
    here = given.get(flag.name)
    here = given[flag.name] = dict(here) if isinstance(here, dict) else {}
    for key in path[:-1]:
        inner = here.get(key)
        inner = here[key] = dict(inner) if isinstance(inner, dict) else {}
        here = inner
    here[path[-1]] = parse_json(text)


#: Every flag that is skipped: whether it takes no value, one, or several.
SKIPPED: dict[str, str] = {
    **dict.fromkeys(table.SILENT_SWITCHES, "none"),
    **dict.fromkeys(table.SILENT_VALUES, "one"),
    **dict.fromkeys(table.SILENT_LISTS, "many"),
    **{name: "one" if value else "none" for name, value in table.NOT_MODELLED.items()},
}


def kind_of(name: str) -> str:
    """Return what is known about a flag: "read", "skipped", "answered", or "" for an unknown one."""
    bare = name.removeprefix("no_")
    if name in FLAGS or FLAGS.get(bare, FLAGS["model"]).kind == "bool":
        return "read"
    if name in ANSWERS:
        return "answered"
    return "skipped" if name in SKIPPED or SKIPPED.get(bare) == "none" else ""


def _skip(reading: Reading, name: str, value: str | None, following: list[str]) -> int:
    """Skip a flag and its value, with a note unless it does not touch performance."""
    if name in ANSWERS:
        reading.note(answer(name))
        return 1 if ANSWERS[name].takes_value and value is None and following else 0
    takes = SKIPPED.get(name) or SKIPPED.get(name.removeprefix("no_"))
    if takes is None:
        reading.note(unknown(name))
        if value is None and following:
            reading.unknown_values.append(following[0])
            return 1
        return 0
    if name == "config":
        reading.note("--config: the file is not read; give its settings as flags")
    if name.removeprefix("no_") in table.NOT_MODELLED:
        reading.note(f"--{_dashed(name)} is not modelled (ignored)")
    if value is not None:
        return 0
    if takes == "none":
        return 1 if following and is_switch_value(following[0]) else 0
    if takes == "many" and len(following) > 1:  # the last one may be the model, as in `--api-key KEY MODEL`
        reading.unknown_values.append(following[-1])
    return len(following) if takes == "many" else min(1, len(following))


def _dashed(name: str) -> str:
    return name.replace("_", "-")[:60]


def answer(name: str) -> str:
    """Return the sentence about a flag that vLLM does not have."""
    return f"--{_dashed(name)} {ANSWERS[name].text}"


def unknown(name: str) -> str:
    """Return the sentence about an unknown flag, with the closest known one."""
    near = closest(name)
    return f"unknown flag --{_dashed(name)} (ignored)" + (f"; did you mean --{_dashed(near)}?" if near else "")


def closest(name: str) -> str | None:
    """Return the flag most like *name*, or None if none is."""
    names = [*FLAGS, *(f"no_{flag.name}" for flag in FLAGS.values() if flag.kind == "bool"), *SKIPPED]
    found = difflib.get_close_matches(name[:60], names, n=1, cutoff=0.75)
    return found[0] if found else None
