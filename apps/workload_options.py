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
) -> Workload:
    """Return the workload the options describe.

    Raises `InputError` unless exactly one source is named, and for options that its source does not know.
    """
    from simulator import workload as kinds

    source = _source(rate, concurrency, requests, trace)
    given: dict[str, Any] = {
        "--burstiness": burstiness,
        "--max-concurrency": max_concurrency,
        "--rate-scale": rate_scale,
        "--prompt-tokens": prompt_tokens,
        "--output-tokens": output_tokens,
        "--num-prompts": num_prompts,
    }
    given = {option: value for option, value in given.items() if value is not None}
    _check_known(source, given)
    fields = {option.removeprefix("--").replace("-", "_"): value for option, value in given.items()}
    if source == "--rate":
        return kinds.RateWorkload(rate=rate, **fields)
    if source == "--concurrency":
        return kinds.ConcurrencyWorkload(concurrency=concurrency, **fields)
    limit = fields.pop("num_prompts", None)
    if source == "--trace":
        return kinds.TraceWorkload(name=trace, limit=limit, **fields)
    fields.setdefault("max_concurrency", concurrency)
    return kinds.RequestsWorkload(path=str(requests), limit=limit, **fields)


_KNOWN = {
    "--rate": ("--burstiness", "--max-concurrency", "--prompt-tokens", "--output-tokens", "--num-prompts"),
    "--concurrency": ("--prompt-tokens", "--output-tokens", "--num-prompts"),
    "--requests": ("--max-concurrency", "--rate-scale", "--num-prompts"),
    "--trace": ("--max-concurrency", "--rate-scale", "--num-prompts"),
}


def _source(rate: float | None, concurrency: int | None, requests: Path | None, trace: str | None) -> str:
    from simulator.errors import InputError

    named = {"--rate": rate, "--requests": requests, "--trace": trace, "--concurrency": concurrency}
    sources = [option for option, value in named.items() if value is not None]
    if sources == ["--requests", "--concurrency"]:  # a closed loop over a list of one's own
        return "--requests"
    if not sources:
        raise InputError("no workload: give one of --rate R, --concurrency N, --requests FILE.csv, --trace NAME")
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
