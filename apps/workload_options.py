"""The options that describe a workload, shared by every command that simulates one; exactly one source of requests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from simulator.workload import Workload

Rate = Annotated[
    float | None,
    typer.Option("--rate", help="Open loop: requests/s, gamma arrivals as `vllm bench serve`; inf: at once."),
]
Burstiness = Annotated[
    float | None, typer.Option("--burstiness", help="Shape of the gaps: 1 Poisson, below 1 bursty, inf even. [1]")
]
Concurrency = Annotated[
    int | None,
    typer.Option("--concurrency", help="Closed loop: clients that send again when answered; alone or with --requests."),
]
MaxConcurrency = Annotated[
    int | None,
    typer.Option("--max-concurrency", help="Open loop: requests in flight at most; others wait in the client."),
]
Requests = Annotated[
    Path | None,
    typer.Option("--requests", help="CSV of requests: arrival_s, prompt_tokens, output_tokens[, prefix_id, ...]."),
]
Trace = Annotated[
    str | None,
    typer.Option(
        "--trace", help="Shipped trace: azure-conv-2023, azure-code-2023, mooncake-conversation, mooncake-synthetic."
    ),
]
RateScale = Annotated[
    float | None, typer.Option("--rate-scale", help="Send a trace or a list so many times faster. [1]")
]
PromptTokens = Annotated[
    str | None,
    typer.Option("--prompt-tokens", help="512, uniform:50:300, lognormal:MEDIAN:SIGMA[:MIN:MAX], ... [512]"),
]
OutputTokens = Annotated[str | None, typer.Option("--output-tokens", help="The same for outputs. [128]")]
NumPrompts = Annotated[
    int | None, typer.Option("--num-prompts", help="Requests to send; default 1000, or all of a list or trace.")
]

RateShape = Annotated[
    str | None,
    typer.Option("--rate-shape", help="Factor on --rate over time: steps:0=1,600=4,1200=1 or diurnal:0.5:24h."),
]
Users = Annotated[int | None, typer.Option("--users", help="Closed loop of people who chat and think (--turns ...).")]
ThinkTime = Annotated[
    str | None,
    typer.Option(
        "--think-time", help="From an answer to the next request: exponential:20, lognormal:15:1, 20s ... [0]"
    ),
]
Turns = Annotated[
    str | None, typer.Option("--turns", help="Requests of a chat, its history in each: 4, uniform:1:9 ... [1]")
]
SystemPromptTokens = Annotated[
    int | None, typer.Option("--system-prompt-tokens", help="Tokens before every prompt, the same in all chats. [0]")
]
Mix = Annotated[
    Path | None, typer.Option("--mix", help="Classes of chats with shares or rates, .toml, .yaml or .json.")
]

#: Options that make chats of requests.
_CHATS = ("--turns", "--system-prompt-tokens")


def workload(
    *,
    rate: float | None = None,
    burstiness: float | None = None,
    concurrency: int | None = None,
    max_concurrency: int | None = None,
    requests: Path | None = None,
    trace: str | None = None,
    rate_scale: float | None = None,
    prompt_tokens: str | None = None,
    output_tokens: str | None = None,
    num_prompts: int | None = None,
    rate_shape: str | None = None,
    users: int | None = None,
    think_time: str | None = None,
    turns: str | None = None,
    system_prompt_tokens: int | None = None,
    mix: Path | None = None,
) -> Workload:
    """Return the workload the options describe.

    Raises `InputError` unless exactly one source is named, and for options that its source does not know.
    """
    from simulator import workload as kinds
    from simulator.errors import InputError
    from simulator.mixes import SessionsWorkload

    source = _source(rate, concurrency, requests, trace, users, mix)
    given: dict[str, Any] = {
        "--burstiness": burstiness,
        "--max-concurrency": max_concurrency,
        "--rate-scale": rate_scale,
        "--prompt-tokens": prompt_tokens,
        "--output-tokens": output_tokens,
        "--num-prompts": num_prompts,
        "--rate-shape": rate_shape,
        "--think-time": think_time,
        "--turns": turns,
        "--system-prompt-tokens": system_prompt_tokens,
    }
    given = {option: value for option, value in given.items() if value is not None}
    _check_known(source, given)
    fields = {option.removeprefix("--").replace("-", "_"): value for option, value in given.items()}
    if "think_time" in fields:
        fields["think_time_s"] = fields.pop("think_time")
    if source == "--mix":
        return _mix(mix, fields)
    if source == "--users" or (source == "--rate" and any(option in given for option in _CHATS)):
        return SessionsWorkload(rate=rate, users=users, **fields)
    if source == "--rate":
        if "think_time_s" in fields:
            raise InputError("--think-time: a request at --rate follows no other; give --turns, or --users")
        return kinds.RateWorkload(rate=rate, **fields)
    if source == "--concurrency":
        return kinds.ConcurrencyWorkload(concurrency=concurrency, **fields)
    limit = fields.pop("num_prompts", None)
    if source == "--trace":
        return kinds.TraceWorkload(name=trace, limit=limit, **fields)
    fields.setdefault("max_concurrency", concurrency)
    return kinds.RequestsWorkload(path=str(requests), limit=limit, **fields)


_KNOWN = {
    "--rate": (
        "--burstiness",
        "--max-concurrency",
        "--prompt-tokens",
        "--output-tokens",
        "--num-prompts",
        "--rate-shape",
        "--think-time",
        *_CHATS,
    ),
    "--concurrency": ("--prompt-tokens", "--output-tokens", "--num-prompts", "--think-time"),
    "--users": ("--prompt-tokens", "--output-tokens", "--num-prompts", "--think-time", *_CHATS),
    "--mix": ("--num-prompts",),
    "--requests": ("--max-concurrency", "--rate-scale", "--num-prompts"),
    "--trace": ("--max-concurrency", "--rate-scale", "--num-prompts"),
}


def _mix(path: Path | None, fields: dict[str, Any]) -> Workload:
    """Return the mix that a file describes, with the options put in."""
    from simulator.data_text import parse
    from simulator.errors import InputError
    from simulator.mixes import MixWorkload
    from simulator.request_list import read_text

    data = parse(read_text(str(path)), str(path))
    if not isinstance(data, dict) or data.get("kind", "mix") != "mix":
        raise InputError(f"{path}: is not a mix; it needs classes (docs/workloads.md)")
    try:
        return MixWorkload(**{**data, **fields})
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _source(
    rate: float | None,
    concurrency: int | None,
    requests: Path | None,
    trace: str | None,
    users: int | None,
    mix: Path | None,
) -> str:
    from simulator.errors import InputError

    named = {
        "--rate": rate, "--requests": requests, "--trace": trace, "--concurrency": concurrency, "--users": users,
        "--mix": mix,
    }  # fmt: skip
    sources = [option for option, value in named.items() if value is not None]
    if sources == ["--requests", "--concurrency"]:  # a closed loop over a list of one's own
        return "--requests"
    if not sources:
        raise InputError(
            "no workload: give one of --rate R, --concurrency N, --users N, --requests FILE.csv, --trace NAME, --mix "
            "FILE"
        )
    if len(sources) > 1:
        limit = " (--max-concurrency limits an open loop)" if "--concurrency" in sources else ""
        raise InputError(f"{' and '.join(sources)} both describe the workload; give exactly one of them{limit}")
    return sources[0]


def _check_known(source: str, given: dict[str, Any]) -> None:
    from simulator.errors import InputError

    for option in given:
        if option not in _KNOWN[source]:
            owners = " or ".join(name for name, known in _KNOWN.items() if option in known)
            raise InputError(f"{option} does not go with {source}; it belongs to {owners}")
