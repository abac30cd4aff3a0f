"""``servecast report``: a run as a page, as tables, and in the formats of other tools."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from apps.output import say, write_file

if TYPE_CHECKING:
    from apps.explanation import Explanation
    from simulator.result import Result

Saved = Annotated[Path, typer.Argument(metavar="FILE", help="A result (simulate -o R.json) or a scenario (.json).")]


def _file(flag: str, text: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(flag, help=text)
    return option


def register(app: typer.Typer) -> None:
    """Add the command to *app*."""
    app.command("report")(report_command)


def report_command(
    saved: Saved,
    html: Annotated[Path | None, _file("--html", "One page that needs nothing else, with pictures.")] = None,
    md: Annotated[Path | None, _file("--md", "The same as Markdown; printed, if nothing is asked for.")] = None,
    csv_requests: Annotated[Path | None, _file("--csv-requests", "One row per request.")] = None,
    csv_steps: Annotated[Path | None, _file("--csv-steps", "One row per engine step.")] = None,
    csv_seconds: Annotated[Path | None, _file("--csv-seconds", "One row per second, vLLM's metric names.")] = None,
    bench_json: Annotated[
        Path | None, _file("--bench-json", "As `vllm bench serve --save-detailed` writes it.")
    ] = None,
    prometheus: Annotated[Path | None, _file("--prometheus", "As /metrics shows it (text exposition).")] = None,
    at: Annotated[
        float | None, typer.Option("--at", min=0, help="Second of the run that --prometheus shows. [its end]")
    ] = None,
    trace: Annotated[Path | None, _file("--trace", "Steps and requests, for ui.perfetto.dev.")] = None,
    bench_requests: Annotated[
        Path | None, _file("--bench-requests", "The requests, for `vllm bench serve --dataset-name timed_trace`.")
    ] = None,
    png: Annotated[Path | None, _file("--png", "Folder for the pictures as PNG.")] = None,
    svg: Annotated[Path | None, _file("--svg", "Folder for the pictures as SVG.")] = None,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Search by simulation what would have prevented preemption.")
    ] = True,
) -> None:
    """Write a run as an HTML or Markdown report, CSV, bench JSON, Prometheus text, a Perfetto trace, PNG and SVG.

    The run is simulated again from its scenario: the same question, the same answer.

    Example:

    \b
      servecast simulate "vllm serve meta-llama/Llama-3.1-8B" --profile h200-llama-3.1-8b --rate 12 -o result.json
      servecast report result.json --html report.html --trace trace.json --bench-json predicted.json
    """
    from apps.output import check_places
    from apps.saved import saved_result

    files = (html, md, csv_requests, csv_steps, csv_seconds, bench_json, prometheus, trace, bench_requests)
    check_places(*files)
    result = saved_result(saved)
    writers: list[tuple[Path | None, Callable[[Path], None]]] = [
        (csv_requests, lambda path: _csv(path, result, "requests")),
        (csv_steps, lambda path: _csv(path, result, "steps")),
        (csv_seconds, lambda path: _csv(path, result, "timeline")),
        (bench_json, lambda path: _bench(path, result)),
        (prometheus, lambda path: _prometheus(path, result, at)),
        (trace, lambda path: _trace(path, result)),
        (bench_requests, lambda path: _requests(path, result)),
    ]
    for path, write in writers:
        if path is not None:
            write(path)
            say(f"wrote {path}")
    if html is None and md is None and png is None and svg is None and any(files):
        return
    explained = _explained(result, check)
    _pages(result, explained, html=html, md=md, png=png, svg=svg, bench_requests=bench_requests)


def _explained(result: Result, check: bool) -> Explanation:
    from apps.explanation import explain

    return explain(result.scenario, check=check)


def _pages(
    result: Result,
    explained: Explanation,
    *,
    html: Path | None,
    md: Path | None,
    png: Path | None,
    svg: Path | None,
    bench_requests: Path | None,
) -> None:
    """Write pictures and pages; print Markdown if nothing was asked for."""
    from apps.exports.report import as_html, as_markdown, save_pictures

    requests = None if bench_requests is None else str(bench_requests)
    for folder, kind in ((png, "png"), (svg, "svg")):
        if folder is not None:
            written = save_pictures(result, explained, folder, kind)
            say(f"wrote {len(written)} pictures to {folder}")
    if html is not None:
        write_file(html, as_html(result, explained, requests))
        say(f"wrote {html}")
    if md is not None:
        write_file(md, as_markdown(result, explained, _beside(md, svg, png), requests))
        say(f"wrote {md}")
    if html is None and md is None and png is None and svg is None:
        typer.echo(as_markdown(result, explained, None, requests).rstrip("\n"))


def _beside(page: Path, svg: Path | None, png: Path | None) -> str | None:
    """Return where the pictures lie, as it is seen from *page*."""
    import os

    folder, kind = (svg, "svg") if svg is not None else (png, "png")
    return None if folder is None else f"{Path(os.path.relpath(folder, page.parent)).as_posix()}/{{name}}.{kind}"


def _csv(path: Path, result: Result, table: str) -> None:
    from apps.output import write_csv

    write_csv(path, getattr(result, table))


def _bench(path: Path, result: Result) -> None:
    from datetime import datetime

    from apps.exports.bench_json import bench_json

    document = bench_json(result, date=datetime.now().strftime("%Y%m%d-%H%M%S"))
    write_file(path, json.dumps(document, allow_nan=False) + "\n")


def _prometheus(path: Path, result: Result, at: float | None) -> None:
    from apps.exports.prometheus import prometheus_text

    write_file(path, prometheus_text(result, at))


def _trace(path: Path, result: Result) -> None:
    from apps.exports.chrome_trace import chrome_trace

    write_file(path, json.dumps(chrome_trace(result), allow_nan=False) + "\n")


def _requests(path: Path, result: Result) -> None:
    from apps.exports.timed_trace import timed_trace

    write_file(path, "".join(f"{line}\n" for line in timed_trace(result)))
