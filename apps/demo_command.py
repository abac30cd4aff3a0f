"""``servecast demo``: a measured run predicted again, prediction beside measurement."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from apps.output import FormatOption, OutputOption, Table, emit, say

RUN = "h200-llama-3.1-8b-chat12"
PROFILE = "h200-llama-3.1-8b"

#: Title, key of the summary, decimals.
METRICS = [
    *(
        (f"{title} {label} (ms)", f"{statistic}_{name}_ms", 2)
        for name, title in (("ttft", "TTFT"), ("tpot", "TPOT"), ("itl", "ITL"), ("e2el", "E2E latency"))
        for statistic, label in (("mean", "mean"), ("p50", "p50"), ("p99", "p99"))
    ),
    ("output throughput (tokens/s)", "output_throughput", 1),
    ("request throughput (requests/s)", "request_throughput", 2),
]


def register(app: typer.Typer) -> None:
    """Add the command to *app*."""
    app.command("demo")(demo_command)


def demo_command(
    run: Annotated[str, typer.Option("--run", help="Shipped measured run, or a file of one.")] = RUN,
    profile: Annotated[
        str, typer.Option("--profile", help="Step times: name of a shipped profile, or a file.")
    ] = PROFILE,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the simulation's noise.")] = 0,
    format: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Predict a run that was measured on a real server, and show both.

    Example:

    \b
      servecast demo --format md
    """
    from calibration.accuracy import predict_again
    from simulator.measured import load_measured

    measured = load_measured(run)
    _scenario, predicted = predict_again(measured, profile, seed)
    rows = comparison(measured.summary(), predicted)
    about = _about(measured.provenance, measured.workload_text, profile)
    data = {"run": measured.name, "provenance": dict(measured.provenance), "profile": profile, "metrics": rows}
    emit(format, table=[about, _table(rows)], data=data, rows=rows, output=output)
    for warning in predicted["warnings"]:
        say(f"warning: {warning}")


def comparison(measured: dict[str, Any], predicted: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one row per metric: measured, predicted, and the signed error in % of the measured value."""
    rows = []
    for title, key, digits in METRICS:
        truth, guess = measured[key], predicted[key]
        error = 100 * (guess / truth - 1) if truth and guess is not None else None
        rows.append({"metric": title, "measured": truth, "predicted": guess, "error_percent": error, "digits": digits})
    return rows


def _table(rows: list[dict[str, Any]]) -> Table:
    def text(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    cells = [
        [
            row["metric"],
            text(row["measured"], f",.{row['digits']}f"),
            text(row["predicted"], f",.{row['digits']}f"),
            text(row["error_percent"], "+.1f"),
        ]
        for row in rows
    ]
    return Table(columns=["metric", "measured", "predicted", "error %"], rows=cells, right=[1, 2, 3])


def _about(provenance: Any, workload: str, profile: str) -> str:
    """Say what was measured where, and what predicts it."""
    known = {key: provenance.get(key, "not recorded") for key in ("gpu", "vllm_version", "date", "command")}
    unseen = "; it was fitted without this run" if profile == PROFILE else ""
    return (
        f"Measured: {known['gpu']}, vLLM {known['vllm_version']}, {known['date']}\n"
        f"Server:   {known['command']}\n"
        f"Workload: {workload}\n"
        f"Predicted by profile {profile} from the same requests, sent at the same times, in one simulation{unseen}."
    )
