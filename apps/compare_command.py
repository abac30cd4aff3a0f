"""``servecast compare``: two servers under the same requests, side by side, with the differences."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps import workload_options as options
from apps.output import FormatOption, OutputOption, Table, emit, say
from apps.simulate_command import ModelConfig, OverLength, headline, number

if TYPE_CHECKING:
    from simulator.scenario import Scenario

A = Annotated[
    str,
    typer.Argument(
        metavar="A", help="A start line (quoted), a saved scenario (.json, .toml, .yaml) or a result (.json)."
    ),
]
B = Annotated[str | None, typer.Argument(metavar="[B]", help="What A is compared with; default: the same line.")]


def _option(flag: str, text: str, side: str) -> Any:
    return typer.Option(f"--{flag}-{side}", help=f"{text} of {side.upper()} only.")


_PROFILE, _GPU, _VERSION = "Step times: shipped profile or file", "GPU", "vLLM version"


def register(app: typer.Typer) -> None:
    """Add the command to *app*."""
    app.command("compare")(compare_command)


def compare_command(
    a: A,
    b: B = None,
    profile: Annotated[str | None, typer.Option("--profile", help=f"{_PROFILE}, of both.")] = None,
    profile_a: Annotated[str | None, _option("profile", _PROFILE, "a")] = None,
    profile_b: Annotated[str | None, _option("profile", _PROFILE, "b")] = None,
    gpu: Annotated[str | None, typer.Option("--gpu", help="GPU of both; default: the profile's.")] = None,
    gpu_a: Annotated[str | None, _option("gpu", _GPU, "a")] = None,
    gpu_b: Annotated[str | None, _option("gpu", _GPU, "b")] = None,
    vllm_version: Annotated[str | None, typer.Option("--vllm-version", help="vLLM version of both.")] = None,
    vllm_version_a: Annotated[str | None, _option("vllm-version", _VERSION, "a")] = None,
    vllm_version_b: Annotated[str | None, _option("vllm-version", _VERSION, "b")] = None,
    model_config: ModelConfig = None,
    rate: options.Rate = None,
    burstiness: options.Burstiness = None,
    concurrency: options.Concurrency = None,
    max_concurrency: options.MaxConcurrency = None,
    requests: options.Requests = None,
    trace: options.Trace = None,
    rate_scale: options.RateScale = None,
    prompt_tokens: options.PromptTokens = None,
    output_tokens: options.OutputTokens = None,
    num_prompts: options.NumPrompts = None,
    over_length: OverLength = "fail",
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same requests.")] = 0,
    replications: Annotated[
        int, typer.Option("--replications", min=0, help="Further seeds that tell real differences from noise. [0]")
    ] = 0,
    format: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Compare two servers under the same requests: latencies, throughput, preemptions, KV cache.

    Example:

    \b
      servecast compare "vllm serve meta-llama/Llama-3.1-8B --max-num-seqs 64" "vllm serve meta-llama/Llama-3.1-8B" \\
        --profile h200-llama-3.1-8b --rate 12 --num-prompts 300 --replications 4
    """
    source = {
        "rate": rate, "burstiness": burstiness, "concurrency": concurrency, "max_concurrency": max_concurrency,
        "requests": requests, "trace": trace, "rate_scale": rate_scale, "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens, "num_prompts": num_prompts,
    }  # fmt: skip
    rest = {"model_config": model_config, "over_length": over_length, "seed": seed}
    servers = {
        "A": {"profile": profile_a or profile, "gpu": gpu_a or gpu, "vllm_version": vllm_version_a or vllm_version},
        "B": {"profile": profile_b or profile, "gpu": gpu_b or gpu, "vllm_version": vllm_version_b or vllm_version},
    }
    sides = {"A": a, "B": a if b is None else b}
    questions = {side: _question(side, text, servers[side], source, rest) for side, text in sides.items()}
    _show(questions, replications, format, output)


def _question(
    side: str, text: str, server: dict[str, Any], source: dict[str, Any], rest: dict[str, Any]
) -> Scenario | dict[str, Any]:
    """Return what *text* is: a scenario to simulate, or the summary of a result."""
    from simulator.errors import InputError, ServecastError
    from simulator.request_list import read_text
    from simulator.scenario import Scenario

    try:
        if not _is_file(text.strip()):
            return Scenario.from_command(text, workload=options.workload(**source), **server, **rest)
        saved = read_text(Path(text.strip()))
        given = [name for name, value in (server | source).items() if value is not None]
        if given:
            raise InputError(f"{text.strip()} says all by itself; leave out --{given[0].replace('_', '-')}")
        return _saved(saved, text.strip())
    except ServecastError as error:
        raise type(error)(f"{side}: {error}") from None


def _is_file(text: str) -> bool:
    """Whether *text* names a file and is not a start line, which may end in the name of one."""
    from simulator import data_text

    return data_text.suffix(text) in data_text.SUFFIXES and (len(text.split()) == 1 or Path(text).is_file())


def _saved(text: str, name: str) -> Scenario | dict[str, Any]:
    from simulator import data_text
    from simulator.scenario import Scenario

    data = data_text.parse(text, name)
    if isinstance(data, dict) and isinstance(data.get("provenance"), dict) and "completed" in data:
        return data
    return Scenario.from_text(text, name)


def _summary(side: str, question: Scenario | dict[str, Any], seed_offset: int = 0) -> dict[str, Any]:
    from simulator.errors import ServecastError
    from simulator.simulate import simulate

    if isinstance(question, dict):
        return question
    try:
        return simulate(question.model_copy(update={"seed": question.seed + seed_offset})).summary()
    except ServecastError as error:
        raise type(error)(f"{side}: {error}") from None


def _show(questions: dict[str, Scenario | dict[str, Any]], replications: int, format: Any, output: Path | None) -> None:
    from simulator.comparison import compare
    from simulator.errors import InputError

    if replications and any(isinstance(question, dict) for question in questions.values()):
        raise InputError("--replications needs servers or scenarios: a result cannot be simulated again")
    both = {side: _summary(side, question) for side, question in questions.items()}
    pairs = [
        (_summary("A", questions["A"], offset), _summary("B", questions["B"], offset))
        for offset in range(1, replications + 1)
    ]
    rows = compare(both["A"], both["B"], [(both["A"], both["B"]), *pairs] if pairs else ())
    warnings = [f"{side}: {text}" for side in both for text in both[side]["warnings"]]
    if not _same_requests(questions):
        warnings.insert(0, "A and B do not serve the same requests")
    about = "\n".join(f"{side}: {headline(summary)}" for side, summary in both.items())
    data = {"a": both["A"], "b": both["B"], "rows": rows, "replications": replications, "warnings": warnings}
    emit(format, table=[about, difference_table(rows)], data=data, rows=rows, output=output)
    for warning in warnings:
        say(f"warning: {warning}")


def _same_requests(questions: dict[str, Scenario | dict[str, Any]]) -> bool:
    """Whether both sides are known to be sent the same."""
    a, b = questions["A"], questions["B"]
    if isinstance(a, dict) and isinstance(b, dict):
        keys = ("total_input_tokens", "completed", "failed", "dropped")
        return all(a.get(key) == b.get(key) for key in keys)
    if isinstance(a, dict) or isinstance(b, dict):
        return False
    return a.workload == b.workload and a.seed == b.seed


def difference_table(rows: list[dict[str, Any]]) -> Table:
    """Return the rows of `simulator.comparison.compare` as a table."""
    from simulator.comparison import METRICS

    shown = {metric.key: metric for metric in METRICS}
    with_noise = any("verdict" in row for row in rows)
    cells = []
    for row in rows:
        metric = shown[row["key"]]

        def text(value: float | None, sign: str = "", digits: int = metric.digits, scale: float = metric.scale) -> str:
            return number(value) if value is None else format_(scale * value, sign, digits)

        percent = row["difference_percent"]
        line = [row["metric"], text(row["a"]), text(row["b"]), text(row["difference"], "+")]
        line.append("-" if percent is None else f"{percent:+.1f}")
        if with_noise:
            line += [text(row.get(key), "+") for key in ("mean_difference", "low", "high")]
            line.append(row.get("verdict", "-"))
        cells.append(line)
    columns = ["metric", "A", "B", "B - A", "%"]
    columns += ["mean of all seeds", "90 % low", "high", "verdict"] if with_noise else []
    return Table(columns=columns, rows=cells, right=range(1, 8 if with_noise else 5))


def format_(value: float, sign: str, digits: int) -> str:
    """Return *value* as text, with a plus if *sign* says so."""
    return f"{value:{sign},.{digits}f}"
