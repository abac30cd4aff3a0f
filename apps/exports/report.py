"""The report of a simulated run: one page a person can hand on, as HTML that needs nothing else, or as Markdown.

What is asked and answered, in this order: the answer in one paragraph; the load and the server; latencies and totals;
pictures; why; what it rests on; what to run next; what the words mean.  Both forms are made of the same parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from apps.explain_command import parts as why
from apps.explanation import Explanation
from apps.exports import plots
from apps.exports.commands import TRACE_FILE, next_commands
from apps.html_page import html_table, page
from apps.output import Table, markdown
from apps.simulate_command import headline, interval_table, latency_table, number, totals_table
from calibration.bars import DEFINITIONS
from simulator.result import Result
from simulator.scenario import Scenario

_WORDS = ("TTFT", "TPOT", "ITL", "E2E", "output throughput", "request throughput")


@dataclass(frozen=True)
class Heading:
    """Begins a section."""

    text: str


@dataclass(frozen=True)
class Code:
    """Text to paste, in a language."""

    text: str
    language: str


@dataclass(frozen=True)
class Picture:
    """A picture by its name in `apps.exports.plots`."""

    name: str
    title: str


Part = Heading | Code | Picture | Table | str

_PICTURES = (
    Picture("latencies", "Latencies over requests"),
    Picture("timeline", "The engine over time"),
    Picture("requests", "TTFT by the time of sending"),
    Picture("ttft", "What TTFT is made of"),
)


def title(result: Result) -> str:
    """Return the title of the report."""
    source = result.provenance
    return f"Predicted: {source.model} on {source.gpu}, vLLM {source.vllm_version}"


def report_parts(result: Result, explained: Explanation, trace_file: str | None = None) -> list[Part]:
    """Return the report; *trace_file* is where the requests for the bench were written, if they were."""
    summary = result.summary()
    found: list[Part] = [
        answer(summary),
        headline(summary) + ".",
        f"Load: {load_words(result.scenario, result)}.",
        Heading("Latency and throughput"),
        latency_table(summary),
        totals_table(summary),
    ]
    if summary["intervals"]:
        found.append(interval_table(summary))
    found += [Heading("Pictures"), *_PICTURES, Heading("Why"), *why(explained)[1:]]
    found += [Heading("What it rests on"), *rests_on(summary)]
    found.append(Heading("What to run next"))
    for command in next_commands(result.scenario, trace_file=trace_file or TRACE_FILE):
        found.append(command.title + (f" ({command.note})" if command.note else ""))
        found.append(Code(command.text, command.language))
    words = Table(["word", "meaning"], [[word, DEFINITIONS[word]] for word in _WORDS])
    return [*found, Heading("What the words mean"), words]


def answer(summary: dict[str, Any]) -> str:
    """Return the answer in a paragraph."""
    failed = summary["failed"] + summary["dropped"]
    told = [
        f"{summary['completed']:,} requests at {number(summary['request_throughput'])} requests/s: TTFT p50 "
        f"{number(summary['p50_ttft_ms'], 0)} ms, p99 {number(summary['p99_ttft_ms'], 0)} ms; TPOT mean "
        f"{number(summary['mean_tpot_ms'], 1)} ms; E2E latency p50 {number(summary['p50_e2el_ms'], 0)} ms; "
        f"{number(summary['output_throughput'], 0)} output tokens/s.",
        f"The KV cache is at most {100 * summary['kv_cache_usage_max']:.0f} % full; {summary['preemptions']:,} "
        "preemptions.",
    ]
    if failed:
        told.append(f"{failed:,} requests were not answered.")
    if summary["engine_died"]:
        told.append(f"The engine stopped: {summary['engine_died']}.")
    if not summary["provenance"]["calibrated"]:
        told.append("NOT CALIBRATED: a first answer.")
    return " ".join(told)


def load_words(scenario: Scenario, result: Result) -> str:
    """Return the load in words: what was asked for, and how many requests it is."""
    asked = {
        key: value
        for key, value in scenario.workload.model_dump(mode="json", exclude_defaults=True).items()
        if key not in ("kind", "rows", "num_prompts")
    }
    told = ", ".join(f"{key} {value}" for key, value in asked.items())
    return f"{scenario.workload.kind}{f' ({told})' if told else ''}, {len(result.table):,} requests"


def rests_on(summary: dict[str, Any]) -> list[Part]:
    """Return provenance and warnings."""
    rows = [[key, str(value)] for key, value in summary["provenance"].items()]
    return [Table(["provenance", "value"], rows), *(f"Warning: {warning}" for warning in summary["warnings"])]


def as_html(result: Result, explained: Explanation, trace_file: str | None = None) -> str:
    """Return the report as one HTML page; pictures are inside as SVG."""
    drawn = plots.pictures(result, explained)
    body = [f"<h1>{escape(title(result))}</h1>"]
    for number_, part in enumerate(report_parts(result, explained, trace_file)):
        if isinstance(part, Heading):
            body.append(f"<h2>{escape(part.text)}</h2>")
        elif isinstance(part, Code):
            body.append(f"<pre><code>{escape(part.text)}</code></pre>")
        elif isinstance(part, Picture):
            body.append(f'<figure role="img" aria-label="{escape(part.title)}">{plots.svg(drawn[part.name])}</figure>')
        elif isinstance(part, Table):
            body.append((f"<h3>{escape(part.title)}</h3>" if part.title else "") + html_table(part))
        else:
            verdict = ' class="verdict"' if number_ == 0 else ""
            body.append(f"<p{verdict}>{escape(part)}</p>")
    scenario = escape(result.scenario.to_json())
    if len(scenario) < 100_000:  # a list of a million requests would drown the page
        body.append(f"<details><summary>The question, as a scenario</summary><pre>{scenario}</pre></details>")
    body.append(f"<p>servecast {escape(result.provenance.servecast_version)}</p>")
    return page(title(result), body)


def as_markdown(
    result: Result, explained: Explanation, pictures: str | None = None, trace_file: str | None = None
) -> str:
    """Return the report as Markdown; *pictures* is where they lie, seen from the page: ``plots/{name}.svg``."""
    found = [f"# {title(result)}"]
    for part in report_parts(result, explained, trace_file):
        if isinstance(part, Heading):
            found.append(f"## {part.text}")
        elif isinstance(part, Code):
            found.append(f"```{part.language}\n{part.text}\n```")
        elif isinstance(part, Table):
            found.append(markdown(part))
        elif not isinstance(part, Picture):
            found.append(part)
        elif pictures is not None:
            found.append(f"![{part.title}]({pictures.format(name=part.name)})")
    if pictures is None:
        found.remove("## Pictures")
    return "\n\n".join(found) + "\n"


def save_pictures(result: Result, explained: Explanation, folder: Path, kind: str) -> Sequence[Path]:
    """Write every picture to *folder* as ``NAME.png`` or ``NAME.svg``; return the paths."""
    from apps.output import replacing

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, draw in plots.pictures(result, explained).items():
        path = folder / f"{name}.{kind}"
        with replacing(path) as part:
            part.write_bytes(plots.png(draw) if kind == "png" else plots.svg(draw).encode())
        written.append(path)
    return written
