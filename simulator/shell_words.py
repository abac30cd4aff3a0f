"""Text as pasted from a terminal, a web page or a script, to lists of words, as a POSIX shell splits them.

Nothing is executed or expanded, except variables that the same text assigns (``MODEL=x; vllm serve $MODEL``) and
``${NAME:-default}``.  Lines may end in a backslash (also with blanks after it), in Windows' ``^`` or PowerShell's
backtick; a line that starts with a flag continues the one before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from simulator.errors import ConfigError

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")
_TYPOGRAPHY = str.maketrans(
    {"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u200b": "",
     "\ufeff": "", "\x00": ""}
)  # fmt: skip
_PROMPT = re.compile(r"^[ \t]*(?:\([\w.-]+\)[ \t]*)?(?:[\w.@:~/-]*[$%>]|#(?=[ \t]*(?:sudo|vllm|docker|python)))[ \t]+")
_CONTINUED = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\n){0,40}[ \t]*-{1,2}[A-Za-z]")
_LINE_END = re.compile(r"[\\^`][ \t]*(?:\n|\Z)")
_PLACEHOLDER = re.compile(r"<[^<>\s|&;]+>")
_REDIRECTION = re.compile(r"&?>>?(?:&\d?)?\|?|<<?<?-?")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^{}]*))?\})")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


def clean(text: str) -> str:
    """Return *text* without colours, carriage returns, typographic quotes and dashes, and prompts."""
    text = _ANSI.sub("", text).translate(_TYPOGRAPHY).replace("\r\n", "\n").replace("\r", "\n")
    text = re.sub(r"(?<!\S)[–—](?=[A-Za-z])", "--", text)
    return "\n".join(_PROMPT.sub("", line) for line in text.split("\n"))


def split_commands(text: str) -> list[list[str]]:
    """Return the words of every command in *text*; raises `ConfigError` for an unbalanced quote."""
    return _Splitter(text).commands()


class _Splitter:
    """One pass over the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.word: list[str] | None = None
        self.words: list[str] = []
        self.done: list[list[str]] = []
        self.drop_next = False  # the word after a redirection

    def commands(self) -> list[list[str]]:
        while self.at < len(self.text):
            self._step(self.text[self.at])
        self._end_command()
        return self.done

    def _step(self, char: str) -> None:
        line_end = _LINE_END.match(self.text, self.at) if char in "\\^`" else None
        if line_end is not None:
            self.at = line_end.end()
            self._end_word()
        elif char in "'\"":
            self._put(self._quoted(char))
        elif char == "\\":
            self._put(self.text[self.at + 1 : self.at + 2])
            self.at += 2
        elif char.isspace():
            self._space(char)
        elif char == "#" and self.word is None:
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
        elif char in ";&|<>":
            self._operator(char)
        elif self.text.startswith("$(", self.at):
            end = self.text.find(")", self.at)
            end = len(self.text) if end < 0 else end + 1
            self._put(self.text[self.at : end])
            self.at = end
        else:
            self._put(char)
            self.at += 1

    def _put(self, text: str) -> None:
        if self.word is None:
            self.word = []
        self.word.append(text)

    def _space(self, char: str) -> None:
        self._end_word()
        self.at += 1
        if char == "\n" and not _CONTINUED.match(self.text, self.at):
            self._end_command()

    def _quoted(self, quote: str) -> str:
        """Return the text inside quotes and go behind them."""
        parts: list[str] = []
        at = self.at + 1
        while at < len(self.text):
            char = self.text[at]
            if char == quote:
                self.at = at + 1
                return "".join(parts)
            if char == "\\" and quote == '"' and self.text[at + 1 : at + 2] in ('"', "\\", "$", "`", "\n"):
                at += 1
                char = "" if self.text[at] == "\n" else self.text[at]
            parts.append(char)
            at += 1
        shown = " ".join(self.text[self.at : self.at + 40].split())
        raise ConfigError(f"the quote that starts at {shown!r} is never closed; add the missing {quote}")

    def _operator(self, char: str) -> None:
        placeholder = _PLACEHOLDER.match(self.text, self.at)
        if char == "<" and placeholder is not None:
            self._put(placeholder[0])
            self.at = placeholder.end()
            return
        redirection = _REDIRECTION.match(self.text, self.at)
        if redirection is not None:
            if self.word is not None and "".join(self.word).isdigit():
                self.word = None
            self._end_word()
            self.at = redirection.end()
            self.drop_next = not redirection[0][-1].isdigit()
            return
        self._end_command()
        self.at += 1

    def _end_word(self) -> None:
        if self.word is not None and not self.drop_next:
            self.words.append("".join(self.word))
        self.drop_next = self.drop_next and self.word is None
        self.word = None

    def _end_command(self) -> None:
        self._end_word()
        self.drop_next = False
        if self.words:
            self.done.append(self.words)
        self.words = []


def assignment(word: str) -> tuple[str, str] | None:
    """Return (name, value) if *word* assigns a variable."""
    found = _ASSIGNMENT.fullmatch(word)
    return (found[1], found[2]) if found else None


def expand(word: str, variables: Mapping[str, str]) -> str:
    """Return *word* with the variables that are known, and with the defaults of those that are not."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name in variables:
            return variables[name]
        return found[0] if found[3] is None else found[3]

    return _VARIABLE.sub(value, word) if "$" in word else word
