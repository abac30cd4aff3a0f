"""What a server says it serves: the name of its model and its longest request; and the key it may want to hear."""

from __future__ import annotations

import json
import os
import urllib.error
from collections.abc import Sequence
from dataclasses import dataclass

from calibration.server import ServerError, fetch

#: vLLM reads its key from here too.
KEY_VARIABLE = "VLLM_API_KEY"


@dataclass(frozen=True)
class Served:
    """The model of a running server: the name requests must use, and its max_model_len if it tells."""

    name: str
    max_model_len: int | None


def served(url: str, api_key: str | None) -> Served:
    """Ask the server at *url*.  Raises `ServerError` of one line if it does not answer as vLLM does."""
    try:
        model = json.loads(fetch(f"{url}/v1/models", api_key=api_key))["data"][0]
        longest = model.get("max_model_len")
        return Served(str(model["id"]), int(longest) if longest else None)
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            wrong = "another" if api_key else "an"
            raise ServerError(f"{url} wants {wrong} API key; set {KEY_VARIABLE} to it") from None
        raise ServerError(f"{url}/v1/models answers {error.code} {error.reason}; is that a vLLM server?") from None
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ServerError(f"{url}/v1/models does not answer as vLLM does ({error})") from None


def api_key(arguments: Sequence[str]) -> str | None:
    """Return the key a server is started with, else that of the environment; None without one."""
    for index, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name in ("--api-key", "--api_key"):
            return value if equals else next(iter(arguments[index + 1 :]), None)
    return os.environ.get(KEY_VARIABLE) or None
