"""Sweeps as TOML or YAML: written by hand or by ``servecast sweep --save``, and back without loss.

command = "vllm serve meta-llama/Llama-3.1-8B"
profile = "h200-llama-3.1-8b"           # any option of the command, or flag of vLLM, for all configurations
num_prompts = 300
replications = 3

[vary]
max_num_seqs = [64, 128, 256]
rate = "2..20:2"                        # a list, or what --vary takes
"gpu,tensor_parallel_size" = [["L4", 2], ["A100-80", 1]]
"""

from __future__ import annotations

from typing import Any

from apps.planning.sweep import Sweep
from apps.planning.sweep_values import Value, read_choices
from simulator import data_text
from simulator.errors import InputError

_OWN = ("schema_version", "command", "slo", "seed", "replications")


def read_sweep(text: str, name: str) -> Sweep:
    """Return the sweep written in *text*, TOML or YAML (JSON is YAML) by the suffix of *name*.

    Raises `InputError` of one line that begins with *name*.
    """
    _check_suffix(name)
    data = data_text.parse(text, name)
    if not isinstance(data, dict) or "command" not in data:
        raise InputError(f"{name}: is no sweep: it needs a command and a table vary; see docs/sweeps.md")
    vary = data.get("vary")
    if not isinstance(vary, dict):
        raise InputError(f"{name}: has no table vary; write [vary] and e.g. max_num_seqs = [64, 128]")
    own = {key: data[key] for key in _OWN if key in data}
    options = {key: value for key, value in data.items() if key not in _OWN and key != "vary"}
    try:
        return Sweep(**own, options=options, vary={str(axis): _choices(str(axis), vary[axis]) for axis in vary})
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def write_sweep(sweep: Sweep, name: str) -> str:
    """Return *sweep* as TOML or YAML text by the suffix of *name*."""
    _check_suffix(name)
    return data_text.dump(as_data(sweep), name)


def as_data(sweep: Sweep) -> dict[str, Any]:
    """Return *sweep* as a file shows it: options on top, ``vary`` last."""
    data: dict[str, Any] = {"schema_version": sweep.schema_version, "command": sweep.command, **sweep.options}
    if sweep.slo is not None:
        data["slo"] = sweep.slo
    data |= {"seed": sweep.seed, "replications": sweep.replications}
    return data | {"vary": {axis: [_listed(choice) for choice in values] for axis, values in sweep.vary.items()}}


def _listed(choice: Any) -> Any:
    return list(choice) if isinstance(choice, tuple) else choice


def _choices(axis: str, values: Any) -> tuple[Value | tuple[Value, ...], ...]:
    if isinstance(values, str):
        return read_choices(values, axis)
    if not isinstance(values, list):
        values = [values]
    return tuple(tuple(value) if isinstance(value, list) else value for value in values)


def _check_suffix(name: str) -> None:
    if data_text.suffix(name) not in data_text.SUFFIXES:
        raise InputError(f"{name}: a sweep is a .toml, .yaml, .yml or .json file; rename it")
