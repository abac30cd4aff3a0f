"""``servecast explain``: why TTFT is what it is, why a token was late, when preemption began."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from apps.output import Format, FormatOption, OutputOption, Table, emit, say

if TYPE_CHECKING:
    from apps.explanation import Explanation

Saved = Annotated[Path, typer.Argument(metavar="FILE", help="A result (simulate -o R.json) or a scenario (.json).")]
Request = Annotated[int | None, typer.Option("--request", min=0, help="Explain this request: its row in the workload.")]
Token = Annotated[
    int | None, typer.Option("--token", min=2, help="Explain the gap before this token of --request; 1 is the first.")
]
Check = Annotated[
    bool, typer.Option("--check/--no-check", help="Check by simulation what would have prevented preemption.")
]


def register(app: typer.Typer) -> None:
    """Add the command to *app*."""
    app.command("explain")(explain_command)


def explain_command(
    saved: Saved,
    request: Request = None,
    token: Token = None,
    check: Check = True,
    format: FormatOption = None,
    output: OutputOption = None,
) -> None:
    """Explain a simulated run: the parts of TTFT (mean, slowest 1 %, one request), the latest token, preemption.

    Example:

    \b
      servecast simulate "vllm serve meta-llama/Llama-3.1-8B" --profile h200-llama-3.1-8b --rate 20 -o result.json
      servecast explain result.json
      servecast explain result.json --request 17 --token 40
    """
    from apps.explanation import explain
    from apps.saved import saved_scenario
    from simulator.errors import InputError

    if token is not None and request is None:
        raise InputError("--token belongs to a request; say which with --request N")
    found = explain(saved_scenario(saved), request=request, token=token, check=check)
    rows = [{"part": name, **values} for name, values in found.ttft_rows().items()]
    emit(format, table=parts(found), data=found.data(), rows=rows, output=output)
    for warning in found.result.summary()["warnings"] if format is not Format.json else ():
        say(f"warning: {warning}")


def parts(found: Explanation) -> list[Table | str]:
    """Return the explanation for people."""
    from apps.simulate_command import headline

    shown: list[Table | str] = [headline(found.result.summary())]
    columns = [f"{name} (ms)" for name in found.views]
    rows: list[list[str]] = []
    for name, values in found.ttft_rows().items():
        if name == "TTFT" or any(values.values()):
            rows.append([name, *(f"{value:,.2f}" for value in values.values())])
    shown.append(
        Table(["part of TTFT", *columns], rows, title=f"Why TTFT: {found.who}", right=range(1, 1 + len(columns)))
    )
    shown += found.words()
    return shown
