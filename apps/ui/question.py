"""What the widgets say, as one frozen value, and the scenario it stands for.  No Streamlit here.

A `Question` holds raw inputs, so a half-typed one is a value too; `check` reads them with the command line's own strict
readers and returns the scenario, or a sentence for each input that cannot be read.  Nothing of it names a file on the
server: models, profiles and traces are the shipped ones, uploads travel as text.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from simulator.engine_config import EngineConfig
from simulator.errors import ConfigError, InputError, ServecastError
from simulator.gpu_spec import GpuSpec
from simulator.model_spec import ModelSpec
from simulator.scenario import Scenario
from simulator.workload import ConcurrencyWorkload, RateWorkload, RequestsWorkload, TraceWorkload, Workload

#: What one question may ask of a server that others use too.
MAX_REQUESTS = 20_000
#: An upload, in bytes.
MAX_UPLOAD = 6_000_000

#: The largest whole number a browser counts exactly.
LARGEST = 2**53 - 1

Finite = Annotated[float, Field(allow_inf_nan=False)]
Whole = Annotated[int, Field(ge=-LARGEST, le=LARGEST)]
Load = Literal["rate", "concurrency", "trace", "file"]


class Question(BaseModel):
    """Everything a page can ask; the defaults are the question of the first visit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    server: str = "vllm serve meta-llama/Llama-3.1-8B --max-model-len 16384"
    gpu: str = ""  # "": the profile's
    profile: str = "h200-llama-3.1-8b"  # "": a roofline from the data sheet
    vllm_version: str = ""
    config_json: str = ""  # config.json of a model that is not in the catalogue
    log: str = ""  # lines of a start-up log that tell the memory of a real server

    load: Load = "rate"
    rate: Annotated[float, Field(gt=-math.inf)] = 12.0  # inf: all at once
    burstiness: Finite = 1.0
    concurrency: Whole = 32
    trace: str = "azure-conv-2023"
    rate_scale: Finite = 1.0
    requests_csv: str = ""
    prompt_tokens: str = "lognormal:300:1.0:8:4000"
    output_tokens: str = "lognormal:180:0.8"
    num_prompts: Whole = 1000
    over_length: Literal["fail", "drop"] = "fail"
    seed: int = Field(default=0, ge=0, le=LARGEST)

    b_server: str = ""  # "": A's line
    b_gpu: str = ""
    b_profile: str = ""
    b_vllm_version: str = ""
    replications: int = Field(default=4, ge=0, le=32)

    slo: str = "ttft_p99=500ms,tpot_p99=50ms"
    axis: Literal["rate", "concurrency", "users"] = "rate"
    think_time: str = "20s"  # of users, between an answer and the next request
    target: Finite = 0.0  # a load to plan GPUs for; 0: the rate on the left
    price: Finite = 0.0  # US $ a GPU hour; 0: the list price
    draws: int = Field(default=0, ge=0, le=40)  # profiles drawn anew for the interval of the capacity

    scenario_json: str = ""  # a saved scenario: stands in for server and load

    def with_(self, **changes: Any) -> Question:
        """Return the question with some inputs changed, checked again."""
        return Question.model_validate(self.model_dump() | changes)

    def b_side(self) -> Question:
        """Return the question of the other server of a comparison: its own inputs, else A's; the same load."""
        return self.with_(
            server=self.b_server.strip() or self.server,
            gpu=self.b_gpu or self.gpu,
            profile=self.b_profile or self.profile,
            vllm_version=self.b_vllm_version or self.vllm_version,
        )


@dataclass(frozen=True)
class Checked:
    """A question as understood: its scenario, or in ``problems`` a sentence for each input that was not."""

    scenario: Scenario | None = None
    problems: dict[str, str] = field(default_factory=dict)


@functools.lru_cache(maxsize=16)
def check(question: Question) -> Checked:
    """Return the scenario of *question*, or a sentence beside each input that cannot be read."""
    problems: dict[str, str] = {}

    def attempt(name: str, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except ServecastError as error:
            problems[name] = " ".join(str(error).split())
            return None

    if question.scenario_json:
        found = attempt("scenario_json", lambda: _saved(question.scenario_json))
        return Checked(found, problems)
    for name in ("prompt_tokens", "output_tokens"):
        attempt(name, lambda name=name: _length(getattr(question, name)))  # type: ignore[misc]
    load = None if problems else attempt(_where(question), lambda: workload(question))
    server = attempt("server", lambda: server_of(question))
    if load is None or server is None:
        return Checked(None, problems)
    scenario = attempt("server", lambda: _scenario(question, load))
    return Checked(scenario, problems)


def searched(question: Question) -> Scenario:
    """Return the scenario whose load is turned up, as ``servecast capacity`` makes it: how much is sent is not in it.

    Raises as the command line does.
    """
    from simulator.lengths import parse as lengths

    if question.load in ("trace", "file") or question.scenario_json:
        found = check(question)
        if found.scenario is None:
            raise InputError(" ".join(found.problems.values()))
        return found.scenario
    drawn = {"prompt_tokens": question.prompt_tokens.strip(), "output_tokens": question.output_tokens.strip()}
    for text in drawn.values():
        lengths(text)
    load: Workload
    if question.axis == "rate":
        load = RateWorkload(rate=1.0, burstiness=question.burstiness, **drawn)
    elif question.axis == "concurrency":
        load = ConcurrencyWorkload(concurrency=1, **drawn)
    else:
        load = ConcurrencyWorkload(concurrency=1, think_time_s=question.think_time.strip(), **drawn)
    return _scenario(question, load)


def server_of(question: Question) -> tuple[ModelSpec, GpuSpec]:
    """Return the model and the GPU that are asked about; raises as the command line does."""
    from simulator import catalogue
    from simulator.command_line import parse

    args = parse(question.server)
    return model_of(question, args.model), catalogue.gpu(gpu_name(question))


def engine_of(question: Question) -> EngineConfig:
    """Return the resolved settings of the server that is asked about."""
    from simulator.command_line import parse
    from simulator.resolve import resolve

    model, gpu = server_of(question)
    return resolve(parse(question.server), model, gpu, question.vllm_version.strip() or None)[0]


def gpu_name(question: Question) -> str:
    """Return the GPU asked for, else the profile's."""
    from simulator.profile import load_profile

    if question.gpu:
        return question.gpu
    if not question.profile:
        raise ConfigError("no GPU: choose one, or a profile, whose GPU is taken")
    return load_profile(checked_profile(question.profile)).provenance.gpu


def checked_profile(name: str) -> str:
    """Return *name* if a shipped profile is called so; a link must not make the server read another file."""
    known = profile_names()
    if name not in known:
        raise InputError(f"profile {name[:60]!r} is not shipped; choose {', '.join(known)}")
    return name


def profile_names() -> list[str]:
    """Return the names of the shipped profiles."""
    from simulator.profile import shipped_profiles

    return shipped_profiles()


def model_of(question: Question, name: str | None) -> ModelSpec:
    """Return the model: of the uploaded config.json, else of the catalogue.  Never of a path on this server."""
    from simulator import catalogue
    from simulator.hf_config import model_spec_from_config

    if question.config_json:
        try:
            config = json.loads(question.config_json)
        except (ValueError, RecursionError) as error:
            raise InputError(f"config.json: is not JSON ({error}); upload the model's own file") from None
        if not isinstance(config, dict):
            raise InputError("config.json: must hold a JSON object; upload the model's own file")
        return model_spec_from_config(config, str(config.get("_name_or_path") or name or "your model"))
    if not name:
        raise ConfigError("no model is named; give it as in `vllm serve meta-llama/Llama-3.1-8B`")
    found = catalogue.model(name)
    if found is None:
        near = ", ".join(catalogue.closest_models(name))
        raise ConfigError(f"model {name[:80]!r} is not in the catalogue (closest: {near}); upload its config.json")
    return found


def workload(question: Question) -> Workload:
    """Return the load; raises `InputError` of one line."""
    lengths = {"prompt_tokens": question.prompt_tokens.strip(), "output_tokens": question.output_tokens.strip()}
    if question.num_prompts > MAX_REQUESTS:
        raise InputError(
            f"{question.num_prompts:,} requests are more than the {MAX_REQUESTS:,} a shared page runs; "
            "ask for fewer, or use `servecast simulate`"
        )
    if question.load == "rate":
        return RateWorkload(
            rate=question.rate, burstiness=question.burstiness, num_prompts=question.num_prompts, **lengths
        )
    if question.load == "concurrency":
        return ConcurrencyWorkload(concurrency=question.concurrency, num_prompts=question.num_prompts, **lengths)
    if question.load == "trace":
        return TraceWorkload(name=question.trace, rate_scale=question.rate_scale, limit=question.num_prompts)
    if not question.requests_csv:
        raise InputError("no file yet: upload a CSV with arrival_s, prompt_tokens, output_tokens")
    return _listed(question)


def _listed(question: Question) -> RequestsWorkload:
    from simulator.request_list import parse_rows

    lines = question.requests_csv.count("\n")
    if lines > MAX_REQUESTS + 1:
        raise InputError(
            f"your CSV has {lines:,} lines; a shared page runs {MAX_REQUESTS:,} requests: "
            "shorten it, or use `servecast simulate --requests FILE`"
        )
    rows = tuple(parse_rows(question.requests_csv, "your CSV"))
    timed = rows[0].arrival_s is not None
    limit = min(question.num_prompts, len(rows))
    return RequestsWorkload(rows=rows[:limit], max_concurrency=None if timed else question.concurrency)


def _scenario(question: Question, load: Workload) -> Scenario:
    model, gpu = server_of(question)
    return Scenario.from_command(
        question.server,
        model=model,
        gpu=gpu.name,
        profile=checked_profile(question.profile) if question.profile else None,
        vllm_version=question.vllm_version.strip() or None,
        workload=load,
        over_length=question.over_length,
        seed=question.seed,
    )


def _saved(text: str) -> Scenario:
    """Return a saved scenario, unless it makes this server read a file of its own."""
    scenario = Scenario.from_json(text, "your scenario")
    if isinstance(scenario.workload, RequestsWorkload) and scenario.workload.path is not None:
        raise InputError("your scenario names a file of requests, which this server does not have; upload the CSV")
    count = getattr(scenario.workload, "num_prompts", None) or getattr(scenario.workload, "limit", None) or 0
    if isinstance(scenario.workload, RequestsWorkload):
        count = len(scenario.workload.rows or ())
    elif isinstance(scenario.workload, TraceWorkload) and scenario.workload.limit is None:
        raise InputError(f"your scenario sends a whole trace; give it a limit of at most {MAX_REQUESTS:,} requests")
    if count > MAX_REQUESTS:
        raise InputError(f"your scenario sends {count:,} requests; a shared page runs {MAX_REQUESTS:,} at most")
    if scenario.profile is not None:
        checked_profile(scenario.profile)
    return scenario


def _length(text: str) -> None:
    from simulator.lengths import parse

    parse(text)


def _where(question: Question) -> str:
    """Return the input that a bad load is told beside."""
    return {"rate": "rate", "concurrency": "concurrency", "trace": "trace", "file": "requests_csv"}[question.load]
