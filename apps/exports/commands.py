"""What to type next: start the simulated server, send it the simulated load, check the prediction against it.

next_commands(scenario)     the list a report ends with
serve_command(scenario)     ``vllm serve ...`` alone
kubernetes_args(scenario)   the container of a Deployment, as YAML
bench_command(scenario)     ``vllm bench serve ...`` with the same load
"""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import dataclass

from apps.exports.serve_flags import ServeFlags, serve_flags
from apps.exports.timed_trace import CHUNK, waits_for_answers
from simulator.lengths import Constant, parse
from simulator.scenario import Scenario
from simulator.traces import apply_over_length
from simulator.workload import ConcurrencyWorkload, RateWorkload, traffic

#: Where the bench is told to find the requests; `timed_trace` makes the file.
TRACE_FILE = "requests.jsonl"
MEASURED_FILE = "measured.json"


@dataclass(frozen=True)
class NextCommand:
    """One thing to run: what it does, the text to paste, what to know about it; *language* for highlighting."""

    title: str
    text: str
    note: str = ""
    language: str = "console"


def next_commands(scenario: Scenario, *, trace_file: str = TRACE_FILE) -> tuple[NextCommand, ...]:
    """Return the commands to run next for *scenario*, in order.

    *trace_file* is where the requests lie for the bench (`apps.exports.timed_trace`), if it needs them.
    """
    flags = serve_flags(scenario)
    unsaid = f"no flag says: {', '.join(flags.unsaid)}" if flags.unsaid else ""
    bench = bench_command(scenario, trace_file=trace_file)
    sent = "the simulated requests, from the exported trace; needs the bench of vLLM 0.23 or later"
    return (
        NextCommand("Start the server", flags.command(), unsaid),
        NextCommand("or in Kubernetes", kubernetes_args(scenario, flags), unsaid, "yaml"),
        NextCommand("Send the same load", bench, sent if trace_file in bench else ""),
        NextCommand("Set the measurement beside the prediction", _beside(scenario, flags)),
    )


def serve_command(scenario: Scenario) -> str:
    """Return the ``vllm serve`` line of the simulated server: only flags that differ from its version's defaults."""
    return serve_flags(scenario).command()


def kubernetes_args(scenario: Scenario, flags: ServeFlags | None = None) -> str:
    """Return the container of the simulated server as YAML for a Deployment."""
    flags = flags if flags is not None else serve_flags(scenario)
    engine = scenario.engine
    gpus = engine.tensor_parallel_size * engine.pipeline_parallel_size * engine.data_parallel_size
    lines = ["containers:", "- name: vllm", f"  image: vllm/vllm-openai:v{engine.vllm_version}", "  args:"]
    lines += [f"  - {json.dumps(word)}" for word in ["--model", *flags.words()]]
    if flags.env:
        lines.append("  env:")
        for name, value in flags.env.items():
            lines += [f"  - name: {name}", f"    value: {json.dumps(value)}"]
    return "\n".join([*lines, "  resources:", "    limits:", f"      nvidia.com/gpu: {gpus}"])


def bench_command(scenario: Scenario, *, trace_file: str = TRACE_FILE) -> str:
    """Return the ``vllm bench serve`` line that sends the load of *scenario*.

    Constant lengths are asked for as random prompts; any other load is replayed from *trace_file*, request by request.
    """
    words = ["vllm", "bench", "serve", "--model", scenario.engine.model]
    words += _random_prompts(scenario) or _replayed(scenario, trace_file)
    words += ["--ignore-eos", "--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,90,95,99"]
    words += ["--save-result", "--save-detailed", "--result-filename", MEASURED_FILE]
    return shlex.join(words)


def _random_prompts(scenario: Scenario) -> list[str]:
    """Return the options for prompts of one length, or nothing if the workload is not of that kind."""
    load = scenario.workload
    if not isinstance(load, (RateWorkload, ConcurrencyWorkload)):
        return []
    prompt, output = parse(load.prompt_tokens), parse(load.output_tokens)
    if not isinstance(prompt, Constant) or not isinstance(output, Constant):
        return []
    words = ["--dataset-name", "random", "--random-input-len", str(prompt.tokens)]
    words += ["--random-output-len", str(output.tokens), "--num-prompts", str(load.num_prompts)]
    if isinstance(load, ConcurrencyWorkload):
        return [*words, "--max-concurrency", str(load.concurrency)] if load.think_time_s in (0, "0") else []
    if math.isinf(load.burstiness) or load.rate_shape is not None:  # the bench has no word for them
        return []
    words += ["--request-rate", f"{load.rate:g}"]
    words += [] if load.burstiness == 1 else ["--burstiness", f"{load.burstiness:g}"]
    return words + ([] if load.max_concurrency is None else ["--max-concurrency", str(load.max_concurrency)])


def _replayed(scenario: Scenario, trace_file: str) -> list[str]:
    """Return the options that send the requests of *trace_file*, each at its time or as a place becomes free."""
    longest = scenario.engine.max_model_len
    sent = traffic(scenario.workload, scenario.seed, longest)
    table, _dropped = apply_over_length(sent.table, longest, scenario.over_length)
    words = ["--backend", "vllm", "--dataset-name", "timed_trace", "--dataset-path", trace_file]
    words += ["--timed-trace-chunk-hash-size", str(CHUNK), "--num-prompts", str(len(table))]
    if waits_for_answers(table):
        return words
    if not table.arrival_s.any():
        words.append("--no-self-timed")
    return words + ([] if sent.max_concurrency is None else ["--max-concurrency", str(sent.max_concurrency)])


def _beside(scenario: Scenario, flags: ServeFlags) -> str:
    words = ["servecast", "import", MEASURED_FILE, "--server", flags.command()]
    words += ["--profile", scenario.profile] if scenario.profile is not None else ["--gpu", scenario.gpu.name]
    return shlex.join([*words, "--vllm-version", scenario.engine.vllm_version])
