"""What descriptions of workloads are made of: a frozen base with errors of one line, and checked words for numbers."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from simulator import durations, lengths, rates
from simulator.errors import input_error


class Described(BaseModel):
    """Frozen; bad values raise an `InputError` of one line."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: What an error is about.
    about: ClassVar[str] = "workload"

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as error:
            raise input_error(error, self.about) from None


def _number_or_inf(value: float) -> float | str:
    return "inf" if math.isinf(value) else value


def _length(value: Any) -> Any:
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if isinstance(text, str):
        lengths.parse(text)
    return text


def _duration(value: Any) -> Any:
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        durations.parse(str(value))
    return value


def _shape(value: Any) -> Any:
    if isinstance(value, str):
        rates.parse_shape(value)
    return value


#: A positive number, infinity included; JSON has no infinity, so it is written "inf" there, as vLLM's bench does.
Positive = Annotated[float, Field(gt=0), PlainSerializer(_number_or_inf, when_used="json")]

#: Tokens, in words of `simulator.lengths`; a whole number is taken, too.
Length = Annotated[str, BeforeValidator(_length)]

#: Seconds, or a distribution in words of `simulator.durations`.
Duration = Annotated[float | str, BeforeValidator(_duration)]

#: How a rate changes over time, in words of `simulator.rates`.
RateShape = Annotated[str, BeforeValidator(_shape)]

#: Requests to send in all.
Count = Annotated[int, Field(ge=1, le=10_000_000)]
