"""``servecast accuracy``: how far off the predictions are, on runs that were measured and not used for fitting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps.output import FormatOption, OutputOption, Table, emit, say, write_file

if TYPE_CHECKING:
    from calibration.accuracy import Comparison

PROFILE = "h200-llama-3.1-8b"


def register(app: typer.Typer) -> None:
    """Add the command to *app*."""
    app.command("accuracy")(accuracy_command)


def accuracy_command(
    runs: Annotated[
        list[str] | None, typer.Argument(help="Measured runs, shipped or files; default: all shipped.")
    ] = None,
    profile: Annotated[str, typer.Option("--profile", help="Name of a shipped profile, or a file.")] = PROFILE,
    format: FormatOption = None,
    output: OutputOption = None,
    reports: Annotated[
        Path | None,
        typer.Option("--reports", help="Folder of reports of `servecast validate`: their errors in a table."),
    ] = None,
    replications: Annotated[
        int, typer.Option("--replications", help="Also count the metrics inside 90 % intervals of so many simulations.")
    ] = 0,
    update: Annotated[
        Path | None, typer.Option("--update", help="Write the table between the accuracy marks of this Markdown file.")
    ] = None,
    keep: Annotated[
        Path | None, typer.Option("--keep", help="With --reports: write them here as the explorer reads them (JSON).")
    ] = None,
) -> None:
    """Predict measured runs again and print the signed errors; or gather those of validation reports.

    Examples:

    \b
      servecast accuracy h200-llama-3.1-8b-chat12 --format json
      servecast accuracy --reports validation
    """
    from simulator.errors import InputError

    if reports is not None:
        _of_reports(reports, runs, format, output, update, keep)
        return
    if keep is not None:
        raise InputError(f"--keep {keep}: keeps reports; give their folder with --reports")
    from calibration.accuracy import COMPARED, compare
    from simulator.measured import load_measured, names

    done = []
    for name in runs or names():
        say(f"predicting {name} ...")
        done.append(compare(load_measured(name), profile))
    rows = [
        {
            "run": item.run.name,
            "metric": title,
            "measured": item.measured[key],
            "predicted": item.predicted[key],
            "error_percent": item.error_percent(key),
        }
        for item in done
        for title, key in COMPARED
    ]
    about = [f"{item.run.name}: {item.run.workload_text}; {_where(item)}" for item in done]
    about += _coverage(done, profile, replications)
    emit(format, table=[_table(done), *about], data={"profile": profile, "metrics": rows}, rows=rows, output=output)
    if update is not None:
        _update(update, _markdown(done, about))


def _of_reports(
    folder: Path, runs: list[str] | None, format: Any, output: Path | None, update: Path | None, keep: Path | None
) -> None:
    import json

    from apps import accuracy_reports
    from simulator.errors import InputError

    if runs:
        raise InputError(f"--reports {folder}: gathers all reports of that folder; leave {', '.join(runs)} out")
    found = accuracy_reports.read_reports(folder)
    shown, lines = accuracy_reports.table(found), accuracy_reports.summary(found)
    rows = accuracy_reports.rows(found)
    emit(format, table=[shown, *lines], data={"summary": lines, "metrics": rows}, rows=rows, output=output)
    if keep is not None:
        write_file(keep, json.dumps(accuracy_reports.kept(found), indent=1) + "\n")
    if update is not None:
        _update(update, "\n".join([_markdown_table(shown.columns, shown.rows), "", *lines]))


def _coverage(done: list[Comparison], profile: str, replications: int) -> list[str]:
    """Say how many metrics of all runs lie in their intervals; nothing without replications."""
    if not replications:
        return []
    from calibration.accuracy import coverage

    found = {item.run.name: coverage(item.run, profile, replications) for item in done}
    inside, count = sum(one.inside for one in found.values()), sum(one.count for one in found.values())
    lines = [f"inside their 90 % interval: {inside} of {count} metrics ({100 * inside / count:.0f} %)"]
    return lines + [f"outside: {name}: {', '.join(one.outside)}" for name, one in found.items() if one.outside]


def _where(item: Comparison) -> str:
    known: Any = item.run.provenance
    return f"{known.get('gpu')}, vLLM {known.get('vllm_version')}, {known.get('date')}"


def _cells(done: list[Comparison]) -> tuple[list[str], list[list[str]]]:
    from calibration.accuracy import COMPARED

    columns = ["signed error, %", *(title for title, _key in COMPARED)]
    return columns, [[item.run.name, *(f"{item.error_percent(key):+.1f}" for _t, key in COMPARED)] for item in done]


def _table(done: list[Comparison]) -> Table:
    columns, cells = _cells(done)
    return Table(columns=columns, rows=cells, right=range(1, len(columns)))


def _markdown(done: list[Comparison], about: list[str]) -> str:
    return "\n".join([_markdown_table(*_cells(done)), "", *(f"* {line}" for line in about)])


def _markdown_table(columns: Sequence[str], cells: Iterable[Sequence[str]]) -> str:
    head = ["| " + " | ".join(columns) + " |", "|---|" + "--:|" * (len(columns) - 1)]
    return "\n".join([*head, *("| " + " | ".join(row) + " |" for row in cells)])


def _update(path: Path, text: str) -> None:
    """Replace what stands between the marks ``<!-- accuracy -->`` and ``<!-- /accuracy -->`` of *path*."""
    from simulator.errors import InputError
    from simulator.request_list import read_text

    begin, end = "<!-- accuracy -->", "<!-- /accuracy -->"
    page = read_text(path)
    before, found, rest = page.partition(begin)
    _old, closed, after = rest.partition(end)
    if not found or not closed:
        raise InputError(f"{path}: has no {begin} ... {end} marks to write between; add them")
    write_file(path, f"{before}{begin}\n{text}\n{end}{after}")
