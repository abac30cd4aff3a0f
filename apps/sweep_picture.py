"""Pictures of a sweep: a metric along an axis, a line for each value of the others; SVG, PNG, or a page of both rows
and curves.  Drawn by matplotlib; a page is one file and needs nothing else."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from apps.output import Table, replacing
from apps.planning.sweep_summary import Average, curves
from simulator.errors import InputError

SUFFIXES = (".svg", ".png", ".html")
#: More lines than these cannot be told apart.
MOST_LINES = 10
_UNITS = {"request_throughput": "requests/s", "prefix_cache_hit_rate": "share", "kv_cache_usage_max": "share"}


def check_picture(path: Path) -> None:
    """Raise `InputError` unless *path* can become a picture."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{path}: a plot is an .svg, .png or .html file; name it so")
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: there is no folder {path.parent}; create it first")


def axis_of(found: Sequence[Average], wanted: str | None) -> str:
    """Return the axis along which curves are drawn: *wanted*, or the numeric one with the most values."""
    names = list(found[0].values) if found else []
    if wanted is not None and wanted not in names:
        raise InputError(f"--x {wanted}: does not vary; the axes are {', '.join(names)}")
    numeric = [name for name in names if all(_is_number(average.values[name]) for average in found)]
    if wanted is not None and wanted not in numeric:
        raise InputError(
            f"--x {wanted}: its values are words; draw along a numeric axis ({', '.join(numeric) or 'none'})"
        )
    if not numeric:
        raise InputError("nothing to draw along: no axis has numbers only; leave out --plot")
    return wanted or max(numeric, key=lambda name: len({average.values[name] for average in found}))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def draw(path: Path, title: str, found: Sequence[Average], axis: str, metrics: Sequence[str], table: Table) -> None:
    """Write the curves of *metrics* along *axis* to *path*; a page holds *table* as well."""
    suffix = path.suffix.lower()
    with replacing(path) as part:
        if suffix == ".html":
            text = io.StringIO()
            _figure(title, found, axis, metrics).savefig(text, format="svg", metadata={"Date": None})
            part.write_text(_page(title, text.getvalue(), table), encoding="utf-8")
        else:
            metadata: dict[str, Any] = {"Date": None} if suffix == ".svg" else {}
            _figure(title, found, axis, metrics).savefig(part, format=suffix[1:], dpi=150, metadata=metadata)


def _figure(title: str, found: Sequence[Average], axis: str, metrics: Sequence[str]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.4 * len(metrics)), layout="constrained")
    figure.suptitle(title, fontsize="small")
    for place, metric in zip(figure.subplots(len(metrics), 1, squeeze=False)[:, 0], metrics, strict=True):
        lines = curves(found, axis, metric)
        for line in lines[:MOST_LINES]:
            place.plot(line.x, line.y, marker="o", markersize=3, label=line.name or None)
        left_out = len(lines) - MOST_LINES
        place.set(xlabel=axis, ylabel=f"{metric} ({_UNITS[metric]})" if metric in _UNITS else metric)
        place.set_ylim(bottom=0)
        place.grid(alpha=0.3)
        if any(line.name for line in lines):
            place.legend(fontsize="x-small", title=f"and {left_out} more" if left_out > 0 else None)
    return figure


def _page(title: str, svg: str, table: Table) -> str:
    def row(cells: Sequence[str], kind: str) -> str:
        return "<tr>" + "".join(f"<{kind}>{html.escape(cell)}</{kind}>" for cell in cells) + "</tr>"

    lines = "\n".join(row(cells, "td") for cells in table.rows)
    style = (
        "body{font:14px sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}svg{max-width:100%;height:auto}"
        "table{border-collapse:collapse}td,th{padding:.2rem .6rem;border-bottom:1px solid #ccc;text-align:right}"
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{style}</style><h1>Sweep</h1><p>{html.escape(title)}</p>{svg[svg.index('<svg') :]}"
        f"<table>{row(table.columns, 'th')}\n{lines}</table></html>\n"
    )
