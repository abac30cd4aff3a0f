"""A question as the query of a link, and back: readable names for what is short, one packed word for what is long.

    ?rate=20&profile=h200-qwen3-14b          what differs from the first visit's question
    &z=eNqr...                               long texts (a pasted line, a CSV, a log): base64url of zlib of JSON

Whatever comes back is read as if a stranger had written it: unknown names and bad values are said, sizes are limited.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping

from pydantic import ValidationError

from apps.ui.question import MAX_UPLOAD, Question
from simulator.errors import input_error

#: Texts longer than this are packed.
_READABLE = 160
#: A query that browsers and proxies still carry.
LONGEST = 8000


def to_query(question: Question) -> dict[str, str]:
    """Return the query that `from_query` reads back; too long a one leaves out the uploads (see `left_out`)."""
    query = _packed(_changed(question))
    if _length(query) <= LONGEST:
        return query
    return _packed({name: value for name, value in _changed(question).items() if name not in _UPLOADS})


#: Uploaded texts, which may be too long for a link.
_UPLOADS = {"requests_csv": "your CSV", "config_json": "config.json", "log": "the log", "scenario_json": "the scenario"}


def left_out(question: Question) -> list[str]:
    """Return which uploads the link is too short for, in words."""
    if _length(_packed(_changed(question))) <= LONGEST:
        return []
    return [words for name, words in _UPLOADS.items() if getattr(question, name)]


def from_query(query: Mapping[str, str]) -> tuple[Question, list[str]]:
    """Return the question of a link, and a sentence for each part that could not be read."""
    given, problems = {name: value for name, value in query.items() if name != "z"}, []
    if "z" in query:
        try:
            given |= _unpacked(query["z"])
        except (ValueError, zlib.error, binascii.Error):
            problems.append("the packed part of the link (z=) is damaged; copy the whole link again")
    question = Question()
    for name, value in given.items():
        if name not in Question.model_fields:
            continue  # another page's, or a proxy's
        try:
            question = question.with_(**{name: value})
        except ValidationError as error:
            problems.append(f"{input_error(error, 'the link')}; the default is taken")
    return question, problems


def _changed(question: Question) -> dict[str, str]:
    defaults = Question()
    found = {}
    for name in Question.model_fields:
        value = getattr(question, name)
        if value != getattr(defaults, name):
            found[name] = value if isinstance(value, str) else json.dumps(value)
    return found


def _packed(changed: Mapping[str, str]) -> dict[str, str]:
    short = {name: value for name, value in changed.items() if len(value) <= _READABLE and "\n" not in value}
    long = {name: value for name, value in changed.items() if name not in short}
    if not long:
        return short
    packed = zlib.compress(json.dumps(long, ensure_ascii=False, separators=(",", ":")).encode(), 9)
    return short | {"z": base64.urlsafe_b64encode(packed).decode().rstrip("=")}


def _unpacked(word: str) -> dict[str, str]:
    """Return the texts packed into *word*; a bomb is cut off and then is not JSON."""
    data = base64.urlsafe_b64decode(word[: 4 * LONGEST] + "=" * (-len(word) % 4))
    text = zlib.decompressobj().decompress(data, MAX_UPLOAD).decode()
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return {str(name): str(value) for name, value in found.items()}


def _length(query: Mapping[str, str]) -> int:
    from urllib.parse import urlencode

    return len(urlencode(query))
