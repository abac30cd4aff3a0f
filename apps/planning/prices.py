"""What a GPU costs per hour: the user's own price, or one list price as an assumption (``profiles/prices.json``)."""

from __future__ import annotations

import json

from pydantic import BaseModel, ConfigDict, Field

from simulator import shipped
from simulator.errors import InputError, validated


class Price(BaseModel):
    """US dollars per GPU hour and where the number comes from; *assumed* unless it is the user's."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    usd_per_gpu_hour: float = Field(gt=0)
    source: str
    assumed: bool


def own_price(usd_per_gpu_hour: float) -> Price:
    """Return the user's price; `InputError` unless it is positive."""
    return validated(
        Price, {"usd_per_gpu_hour": usd_per_gpu_hour, "source": "given", "assumed": False}, "the price of a GPU hour"
    )


def list_price(gpu: str) -> Price | None:
    """Return the list price of a GPU of the catalogue by its name there; None if none is shipped."""
    path = shipped.path("profiles", "prices.json")
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["prices"]
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path}: the shipped prices cannot be read ({error}); give --price") from None
    for entry in entries:
        if entry["gpu"] == gpu:
            source = f"an assumption: {entry['offer']}, {entry['source']}, read {entry['read']}"
            return Price(usd_per_gpu_hour=entry["usd_per_gpu_hour"], source=source, assumed=True)
    return None
