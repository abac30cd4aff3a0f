"""The start line of a server as a value that sliders can turn: read strictly, changed, written out again.

`with_flag` gives the line a person would have typed, so that what the page shows is what one can run.
"""

from __future__ import annotations

import json
import shlex
from typing import Any

from simulator.command_line import ServeArgs, parse
from simulator.flag_table import FLAGS


def with_flag(text: str, name: str, value: Any) -> str:
    """Return *text* as one line with the flag *name* set to *value*; None takes the flag away."""
    args = parse(text)
    given = {flag: known for flag, known in args.given.items() if flag != name}
    if value is not None:
        given[name] = value
    return written(args.model_copy(update={"given": given}))


def with_model(text: str, model: str) -> str:
    """Return *text* as one line that starts *model*; flags stay.  A text that starts nothing gives a new line."""
    from simulator.errors import ConfigError

    try:
        args = parse(text)
    except ConfigError:
        args = ServeArgs()
    return written(args.model_copy(update={"model": model}))


def written(args: ServeArgs) -> str:
    """Return the line that says *args*: ``vllm serve ...``, or ``LLM(...)`` for what was a Python call."""
    if args.usage_context == "llm":
        values = {"model": args.model, **args.given}
        return f"LLM({', '.join(f'{name}={value!r}' for name, value in values.items() if value is not None)})"
    words = [f"{name}={shlex.quote(value)}" for name, value in args.env.items()]
    words += ["vllm", "serve", *([shlex.quote(args.model)] if args.model else [])]
    for name, value in args.given.items():
        words += _flag(name, value)
    return " ".join(words)


def _flag(name: str, value: Any) -> list[str]:
    spelled = FLAGS[name].spelled
    if isinstance(value, bool):
        return [spelled if value else f"--no-{spelled.removeprefix('--')}"]
    if isinstance(value, (list, tuple)):
        return [spelled, *(shlex.quote(str(item)) for item in value)]
    if isinstance(value, dict):
        return [spelled, shlex.quote(json.dumps(value))]
    return [spelled, shlex.quote(str(value))]
