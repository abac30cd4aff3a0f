"""What can go wrong, in words a user can act on.

Every error is one line that names the value, the rule and the fix.  Nothing else is raised on bad input; the command
line prints the line and exits with 1.  Warnings are plain lines, collected in the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError


class ServecastError(Exception):
    """Base of all errors a user can cause; ``str(error)`` is one line."""


class ConfigError(ServecastError):
    """A value of the configuration that vLLM would refuse, or that contradicts another one."""


class InputError(ServecastError):
    """A file or an option that cannot be read as what it should be."""


class UnsupportedError(ServecastError):
    """Valid for vLLM, but not covered by the simulation; the message names the feature."""


class DoesNotFitError(ServecastError):
    """The model does not fit on the GPU: vLLM would refuse to start (exit code 2 on the command line)."""


class EngineDiedError(ServecastError):
    """vLLM itself would have died while serving (the message is its own), or would hang for ever."""


Model = TypeVar("Model", bound=BaseModel)


def validated(kind: type[Model], data: Mapping[str, Any], what: str) -> Model:
    """Return *data* as a *kind*, or raise an `InputError` of one line: *what*, then the first problem."""
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise input_error(error, what) from None


def input_error(error: ValidationError, what: str) -> InputError:
    """Return the first problem of *error* as an `InputError` of one line that starts with *what*."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "value"
    value = repr(first.get("input"))
    value = value if len(value) <= 60 else value[:57] + "..."
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return InputError(f"{what}: {where}: {first['msg'].removeprefix('Value error, ')}, got {value}{more}")
