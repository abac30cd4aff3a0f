"""``vllm bench serve`` as the client, for those who trust nobody else's times: it sends a table, its result is read.

The table goes in as a ``timed_trace`` data set (vLLM 0.24 and later), whose own times are the send times; a limit of
concurrency is the bench's.  Each 512 tokens of a prompt get an id of their own, so no prompts share a prefix; a table
with shared prefixes is refused.  The bench reads the same clock as the recorder, so that steps and requests meet.  It
needs the model's tokenizer, and does not say how late it was.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from calibration.bench_json import BenchResult, read_bench
from calibration.server import ServerError
from simulator.errors import InputError
from simulator.request_table import RequestTable

CHUNK = 512
RESULT = "bench.json"
_API_SERVER = "vllm.entrypoints.openai.api_server"
_TAIL = 12


def trace_lines(table: RequestTable, run: int = 0) -> str:
    """Return *table* as a timed trace; another *run* has other prompts."""
    if len(table.segment_id):
        raise InputError("vllm-bench cannot send shared prefixes; leave out --client, or send requests without them")
    lines = []
    number = run << 32
    for arrival, prompt, output in zip(table.arrival_s, table.prompt_tokens, table.output_tokens, strict=True):
        chunks = -(-int(prompt) // CHUNK)
        lines.append(json.dumps({
            "timestamp": round(float(arrival), 6), "input_length": int(prompt), "output_length": int(output),
            "hash_ids": list(range(number, number + chunks)),
        }))  # fmt: skip
        number += chunks
    return "\n".join(lines) + "\n"


def bench_command(
    vllm: Sequence[str], url: str, model: str, tokenizer: str, trace: Path, count: int, max_concurrency: int | None
) -> list[str]:
    """Return the command that sends a trace and leaves its result beside it."""
    limit = [] if max_concurrency is None else ["--max-concurrency", str(max_concurrency)]
    return [
        *vllm, "bench", "serve", "--backend", "openai", "--endpoint", "/v1/completions", "--base-url", url,
        "--model", model, "--tokenizer", tokenizer, "--dataset-name", "timed_trace", "--dataset-path", str(trace),
        "--timed-trace-chunk-hash-size", str(CHUNK), "--num-prompts", str(count), "--ignore-eos",
        "--temperature", "0", "--save-result", "--save-detailed", "--result-dir", str(trace.parent),
        "--result-filename", RESULT, "--percentile-metrics", "ttft,tpot,itl,e2el", "--ready-check-timeout-sec", "0",
        *limit,
    ]  # fmt: skip


def replay_with_bench(
    url: str,
    model: str,
    table: RequestTable,
    folder: Path,
    *,
    vllm: Sequence[str] = ("vllm",),
    tokenizer: str | None = None,
    max_concurrency: int | None = None,
    run: int = 0,
    api_key: str | None = None,
    timeout_s: float = 3600.0,
) -> BenchResult:
    """Send *table* with the bench and return its result; trace, log and result stay in *folder*."""
    folder.mkdir(parents=True, exist_ok=True)
    trace, result, log = folder / "trace.jsonl", folder / RESULT, folder / "bench.log"
    trace.write_text(trace_lines(table, run), encoding="utf-8")
    result.unlink(missing_ok=True)
    command = bench_command(vllm, url, model, tokenizer or model, trace, len(table), max_concurrency)
    try:
        with log.open("wb") as out:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, timeout=timeout_s, check=False,
                env={**os.environ, **({"OPENAI_API_KEY": api_key} if api_key else {})},
            )  # fmt: skip
    except OSError as error:
        raise InputError(
            f"cannot start {vllm[0]!r} ({error.strerror}); vllm-bench needs vLLM where this runs"
        ) from None
    except subprocess.TimeoutExpired:
        raise ServerError(
            f"vllm bench serve was not done after {timeout_s:.0f} s; its log is {log}", _tail(log)
        ) from None
    if done.returncode or not result.is_file():
        message = f"vllm bench serve ended with exit code {done.returncode} and no result; its log is {log}"
        raise ServerError(message, _tail(log))
    return read_bench(result)[-1]


def bench_words(command: str) -> tuple[str, ...]:
    """Return how vLLM's command line is called where *command* starts the server; ``vllm`` if that is not told."""
    words = shlex.split(command)
    if "serve" in words[1:4]:
        return tuple(words[: words.index("serve")])
    if _API_SERVER in words[1:4]:
        return (*words[: words.index(_API_SERVER)], "vllm.entrypoints.cli.main")
    return ("vllm",)


def requests_document(data: Any, table: RequestTable, max_concurrency: int | None, name: str) -> dict[str, Any]:
    """Return a detailed result of the bench in the form of `calibration.answers`; *table* is what was sent.

    Its start is where every request was sent at its time or later.
    """
    if not isinstance(data, dict):
        raise InputError(f"{name}: is not a result of `vllm bench serve`")
    columns = [data.get(key) for key in ("start_times", "ttfts", "itls", "output_lens")]
    if not all(isinstance(column, list) and len(column) == len(table) for column in columns):
        raise InputError(f"{name}: does not hold times of all {len(table)} requests; it needs vLLM 0.24 or later")
    errors = data.get("errors") or [""] * len(table)
    starts, arrivals = [float(start) for start in data["start_times"]], table.arrival_s.tolist()
    base = min(start - arrival for start, arrival in zip(starts, arrivals, strict=True))
    good, failed = [], []
    for row, (start, ttft, itls, tokens) in enumerate(zip(*columns, strict=True)):
        wanted = int(table.output_tokens[row])
        one = {
            "i": row, "t": round(arrivals[row], 6), "send": round(start - base, 6),
            "isl": int(table.prompt_tokens[row]), "osl": wanted,
        }  # fmt: skip
        error = errors[row] or ("" if tokens == wanted else f"{tokens} tokens came, {wanted} were asked for")
        if error:
            failed.append({**one, "error": " ".join(str(error).split())[-200:], "messages": len(itls)})
            continue
        gaps = [round(1e3 * gap, 3) for gap in itls]
        good.append({**one, "ttft": round(ttft, 6), "e2e": round(ttft + sum(itls), 6), "n": tokens, "itl": gaps})
    return {
        "t_base": round(base, 6), "duration": float(data["duration"]), "conc": max_concurrency, "requests": good,
        "failed": failed,
    }  # fmt: skip


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").replace("\r", "\n").splitlines()
    return "\n".join([line for line in lines if line.strip()][-_TAIL:])
