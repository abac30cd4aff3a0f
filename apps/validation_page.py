"""A validation report for people: tables for the terminal and Markdown, and a self-contained HTML page with pictures.

Everything is drawn from the data of `calibration.validation_data`, so a saved JSON file can be drawn again.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from apps.html_page import html_table, page
from apps.output import Table
from apps.svg import Line, chart

Data = Mapping[str, Any]

VERDICTS = {True: "ok", False: "MISS", None: ""}


def report(data: Data) -> list[Table | str]:
    """Return the report as paragraphs and tables."""
    return [
        title(data),
        data["words"],
        *about(data),
        metrics_table(data),
        *why(data),
        definitions_table(data),
        *(f"note: {note}" for note in notes(data)),
    ]


def markdown_head(data: Data) -> str:
    """Return the heading of a Markdown page."""
    return f"# {title(data)}"


def title(data: Data) -> str:
    """Return what was compared."""
    return f"Predicted against measured: {data['predicted']['model']}, {', '.join(data['measured']['runs'])}"


def about(data: Data) -> list[str]:
    """Return where both sides come from."""
    predicted, measured = data["predicted"], data["measured"]
    source = measured["provenance"]
    words = {"gpu": "", "vllm_version": "vLLM ", "date": ""}
    server = ", ".join(f"{word}{source[key]}" for key, word in words.items() if key in source)
    load = measured["workload"] or f"{measured['requests']} requests"
    if measured["concurrency"]:
        load += f", at most {measured['concurrency']} in flight"
    timed = f"profile {predicted['profile']}" if predicted["profile"] else "data sheet only, not calibrated"
    if data["host"] and data["host"]["expected"]["measured"]:
        timed += " at this host's speed, measured before"
    return [
        f"Measured: {server}; {load}; {len(measured['runs'])} run(s) of the same requests.",
        f"Predicted: {timed}, from the same requests; mean of {predicted['seeds']} seeds.",
        *(f"Client: {lag['words']}." for lag in data["client_lag"]),
        *([_host(data["host"])] if data["host"] else []),
    ]


def _host(host: Data) -> str:
    sides = {"expected": "expected", "seen": "during the run"}
    parts = [
        f"{words} GPU {host[side]['gpu_scale']:.3f}, CPU {host[side]['cpu_scale']:.2f}, "
        f"launches {host[side]['launch_scale']:.2f}"
        for side, words in sides.items()
    ]
    return f"Host, times relative to the profile's: {'; '.join(parts)}."


def notes(data: Data) -> list[str]:
    """Return warnings of both sides."""
    return [*data["predicted"]["warnings"], *data["measured"]["notes"]]


def metrics_table(data: Data) -> Table:
    """Return one row per metric."""
    rows = []
    judged = data["verdict"] != "not judged"
    repeated = any(row["spread_percent"] is not None for row in data["metrics"])
    other_host = bool(data["host"] and data["host"]["is_other"])
    for row in data["metrics"]:
        interval = "-" if row["low"] is None else f"{_number(row['low'])} .. {_number(row['high'])}"
        inside = {True: "inside", False: "outside", None: ""}[row["is_inside"]]
        rows.append([
            f"{row['title']} ({row['unit']})", _number(row["predicted"]), _number(row["measured"]),
            _signed(row["error_percent"]), *([_signed(row["error_percent_at_host_speed"])] if other_host else []),
            *([_signed(row["spread_percent"], "")] if repeated else []),
            "" if row["bar_percent"] is None else f"{row['bar_percent']:g}",
            VERDICTS[row["keeps_bar"] if judged else None], interval, inside,
        ])  # fmt: skip
    more = [*(["at the host's speed %"] if other_host else []), *(["spread %"] if repeated else [])]
    columns = ["metric", "predicted", "measured", "error %", *more, "bar %", "", "90 % interval", "measured is"]
    return Table(columns=columns, rows=rows, right=range(1, 5 + len(more)))


def why(data: Data) -> list[Table | str]:
    """Return where the error arises; a sentence if the run does not tell."""
    if not data["contributions"]:
        return ["The engine's steps were not recorded, so it cannot be said where the error arises."]
    found: list[Table | str] = [
        "Where the error arises:\n" + "\n".join(f"- {one['words']}" for one in data["explanations"])
    ]
    titles = {"ttft": "time to first token, mean", "token": "time per token after the first, mean over tokens"}
    for metric, name in titles.items():
        rows = [
            [one["title"], f"{100 * one['share']:.0f}", _number(one["predicted_ms"]), _number(one["measured_ms"]),
             f"{one['effect_ms']:+.3f}"]
            for one in data["contributions"] if one["metric"] == metric
        ]  # fmt: skip
        columns = ["phase", "share %", "predicted ms", "measured ms", "effect ms"]
        found.append(Table(columns, rows, title=name, right=range(1, 5)))
    rows = [
        [one["area"], one["what"], _number(one["predicted"]), _number(one["measured"]), one["unit"],
         _signed(100 * (one["predicted"] / one["measured"] - 1) if one["measured"] else None),
         f"{one['count']:,}" if one["count"] else ""]
        for one in data["mechanisms"]
    ]  # fmt: skip
    columns = ["area", "what", "predicted", "measured", "unit", "difference %", "seen"]
    found.append(Table(columns, rows, title="mechanisms, at the recorded composition of steps", right=(2, 3, 5, 6)))
    return found


def definitions_table(data: Data) -> Table:
    """Return what the words mean."""
    return Table(["word", "meaning"], [[name, text] for name, text in data["definitions"].items()])


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.2f}"


def _signed(value: float | None, sign: str = "+") -> str:
    return "-" if value is None else f"{value:{sign}.1f}"


# HTML ----------------------------------------------------------------------------------------------------------------


def html(data: Data) -> str:
    """Return the report as one page that needs nothing else."""
    verdict = str(data["verdict"])
    body = [
        f"<h1>{escape(title(data))}</h1>",
        f'<p class="verdict {verdict.split()[0]}">{escape(str(data["words"]))}</p>',
        *(f"<p>{escape(line)}</p>" for line in about(data)),
        html_table(metrics_table(data)),
        f'<div class="pictures">{"".join(pictures(data))}</div>',
        "<h2>Where the error arises</h2>",
        *(_html_part(part) for part in why(data)),
        "<h2>What the words mean</h2>",
        html_table(definitions_table(data)),
        *(f"<p>note: {escape(note)}</p>" for note in notes(data)),
        f"<p>servecast {escape(str(data['servecast_version']))}</p>",
    ]
    return page(title(data), body)


def pictures(data: Data) -> list[str]:
    """Return the charts: distributions of the latencies, and the state of the engine over time."""
    found = data["pictures"]
    charts = []
    for key, name in (("ttft_ms", "TTFT"), ("tpot_ms", "TPOT"), ("e2el_ms", "E2E latency")):
        lines = [Line(side, found[key][side], range(len(found[key][side]))) for side in ("predicted", "measured")]
        charts.append(chart(f"{name}: share of requests below", lines, "ms", "%"))
    for key, name in (
        ("running", "requests running"),
        ("waiting", "requests waiting"),
        ("kv_cache_usage", "KV blocks in use"),
    ):
        sides = {side: found["timeline"][side] for side in ("predicted", "measured") if found["timeline"][side]}
        scale = 100 if key == "kv_cache_usage" else 1
        lines = [Line(side, values["time_s"], [scale * v for v in values[key]]) for side, values in sides.items()]
        charts.append(chart(name, lines, "s", "% of blocks" if scale == 100 else "requests"))
    return charts


def _html_part(part: Table | str) -> str:
    if isinstance(part, Table):
        return f"<h3>{escape(part.title)}</h3>{html_table(part)}"
    head, *items = part.split("\n- ")
    return (
        "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>" if items else f"<p>{escape(head)}</p>"
    )
