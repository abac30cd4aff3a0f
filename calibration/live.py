"""From a model and serve arguments to a profile: a recording server, bursts, a fit.  `calibrate` does it all.

With a *url* nothing is started: what an outside client can see is kept (timings, /metrics), and there is no profile.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from calibration.burst_time import BurstTime
from calibration.bursts import Burst, Limits
from calibration.campaign import Campaign
from calibration.campaign_files import RunFolder, header_of
from calibration.client import Target
from calibration.fit import engine_of, fit_profile, logged_quantization, logged_version
from calibration.precision import ENOUGH, standard_errors
from calibration.recorder_setup import FLUSHED_S, RecorderSetup, set_up
from calibration.served import api_key, served
from calibration.server import Attached, Progress, ServerError, VllmServer, fetch
from simulator.engine_config import EngineConfig
from simulator.errors import InputError, ServecastError
from simulator.gpu_spec import GpuSpec
from simulator.model_spec import ModelSpec
from simulator.profile import Profile
from simulator.roofline import default_profile
from simulator.step_cost import StepCost

WORKLOAD = "calib"
#: Where neither a recording nor /metrics tells the size of the KV cache: one that most servers have.
_ASSUMED_KV_TOKENS = 50_000


@dataclass(frozen=True)
class Wish:
    """What to calibrate; *vllm* is how a server starts, its model and *serve_args* follow."""

    model: str
    spec: ModelSpec
    gpu: GpuSpec
    name: str
    serve_args: str = ""
    vllm: str = "vllm serve"
    url: str | None = None
    minutes: float = 5.0
    gpu_times: bool = True
    startup_timeout_s: float = 900.0
    silence_s: float = 60.0
    seed: int = 0


@dataclass
class Outcome:
    """What came of it; *stopped* is the error that ended the run early, *fit_error* why there is no profile."""

    reason: str = ""
    profile: Profile | None = None
    fit_error: str | None = None
    stopped: ServerError | None = None
    next_up: list[Burst] = field(default_factory=list)
    unsure: dict[str, float] = field(default_factory=dict)
    bursts: int = 0
    steps: int = 0
    late: int = 0


def calibrate(wish: Wish, folder: RunFolder, *, resume: bool, progress: Progress) -> Outcome:
    """Run, fit and return; only errors of input and of a server that never started are raised."""
    arguments = _words(wish.serve_args, "--serve-args")
    same = {"model": wish.model, "serve_args": wish.serve_args, "gpu": wish.gpu.name, "url": wish.url}
    folder.open(same, resume=resume)
    outcome = Outcome()
    part = folder.new_part()
    setup = set_up(folder.path / "recorder", folder.prefix(part), gpu_times=wish.gpu_times)
    with _server(wish, folder, setup, arguments, progress) as server:
        campaign = _campaign(wish, folder, server, part, progress)
        campaign.is_enough = _question(wish, folder, campaign)
        try:
            outcome.reason = campaign.run(60.0 * wish.minutes)
        except ServerError as error:
            outcome.stopped = error
        outcome.next_up = campaign.next_up
        time.sleep(FLUSHED_S)
    _conclude(wish, folder, campaign.limits, outcome, progress)
    return outcome


def _words(text: str, option: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InputError(f"{option} {text[:60]!r} cannot be split into words ({error}); check its quotes") from None


def _server(
    wish: Wish, folder: RunFolder, setup: RecorderSetup, arguments: list[str], progress: Progress
) -> AbstractContextManager[VllmServer | Attached]:
    if wish.url is not None:
        return Attached(wish.url)
    start = _words(wish.vllm, "--vllm")
    if not start:
        raise InputError("--vllm is empty; say how vLLM is started, e.g. --vllm 'vllm serve'")
    command = [*start, wish.model, *arguments, *setup.arguments]
    progress(f"starting {shlex.join(command)}")
    return VllmServer(
        command, log=folder.log, env=setup.env, startup_timeout_s=wish.startup_timeout_s,
        hint="say how it is started with --vllm", progress=progress,
    )  # fmt: skip


def _campaign(wish: Wish, folder: RunFolder, server: VllmServer | Attached, part: str, progress: Progress) -> Campaign:
    key = api_key(_words(wish.serve_args, "--serve-args") if wish.url is None else ())
    model = served(server.url, key)
    header = _header(folder, part) if wish.url is None else None
    if wish.url is None and header is None:
        progress("note: this vLLM did not load the recorder (see the log); only client timings are kept")
    engine = _engine(wish, folder, header)
    limits = _limits(engine, header, server.url, model.max_model_len, progress)
    cost = StepCost(default_profile(wish.gpu), wish.spec, wish.gpu, engine)
    target = Target(server.url, model.name, wish.spec.vocab_size, key, silence_s=wish.silence_s)
    return Campaign(
        server, target, limits, BurstTime(cost, engine, limits), folder, part, seed=wish.seed, progress=progress
    )


def _header(folder: RunFolder, part: str) -> dict[str, object] | None:
    """Return the recorder's header; it is written a moment after the start."""
    for _ in range(6):
        header = header_of(folder.prefix(part))
        if header is not None:
            return header
        time.sleep(0.5)
    return None


def _engine(wish: Wish, folder: RunFolder, header: dict[str, object] | None) -> EngineConfig:
    """Return the settings: as recorded, else as the arguments say."""
    eager = "--enforce-eager" in wish.serve_args
    if header is not None:
        version = str(header.get("vllm") or logged_version(folder.path))
        quantization = logged_quantization(folder.path)
        return engine_of(header, wish.spec, _plain(version), enforce_eager=eager, quantization=quantization)
    from simulator.command_line import parse
    from simulator.resolve import resolve

    return resolve(parse(f"vllm serve {shlex.quote(wish.model)} {wish.serve_args}"), wish.spec, wish.gpu)[0]


def _plain(version: str) -> str:
    found = re.match(r"\d+\.\d+\.\d+", version)
    return found.group(0) if found else version


def _limits(
    engine: EngineConfig, header: dict[str, object] | None, url: str, longest: int | None, progress: Progress
) -> Limits:
    kv_tokens = _ASSUMED_KV_TOKENS
    if header is not None and header.get("blocks") and header.get("block_size"):
        kv_tokens = (int(str(header["blocks"])) - 1) * int(str(header["block_size"]))
    else:
        try:
            info = re.search(r"vllm:cache_config_info\{[^}]*\}", fetch(f"{url}/metrics"))
        except (OSError, ValueError):
            info = None
        found = dict(re.findall(r'(num_gpu_blocks|block_size)="(\d+)"', info.group(0))) if info else {}
        if len(found) == 2:
            kv_tokens = int(found["num_gpu_blocks"]) * int(found["block_size"])
        else:
            progress(f"note: {url}/metrics does not tell the size of the KV cache; bursts assume {kv_tokens:,} tokens")
    return Limits(engine.max_num_seqs, engine.max_num_batched_tokens, longest or engine.max_model_len, kv_tokens)


def _question(wish: Wish, folder: RunFolder, campaign: Campaign) -> Callable[[], str | None]:
    """Return what asks whether the fit is good enough to stop."""

    def ask() -> str | None:
        trial = Outcome()
        _conclude(wish, folder, campaign.limits, trial, lambda _: None)
        worst = next(iter(trial.unsure.values()), None)
        if worst is None or worst > ENOUGH:
            return None
        return f"enough is known: every kind of step to {100 * worst:.1f} %"

    return ask


def _conclude(wish: Wish, folder: RunFolder, limits: Limits, outcome: Outcome, progress: Progress) -> None:
    """Put the recording together and fit it."""
    outcome.steps = folder.assemble(WORKLOAD)
    good = folder.good()
    outcome.bursts, outcome.late = len(good), sum(burst.late_client is not None for burst in good)
    if not outcome.steps:
        missing = "no steps were recorded" if good else "no burst was finished; give more --minutes"
        outcome.fit_error = missing
        return
    try:
        profile = fit_profile(folder.path, wish.spec, wish.gpu, name=wish.name, workload=WORKLOAD, progress=progress)
        engine = _engine(wish, folder, header_of(folder.prefix(good[0].part)))
        outcome.unsure = standard_errors(profile, wish.spec, wish.gpu, engine, limits)
        outcome.profile = profile
    except ServecastError as error:
        outcome.fit_error = str(error)
    except (ArithmeticError, ValueError, IndexError) as error:  # too little was recorded, most often
        outcome.fit_error = f"the fit failed on what was recorded ({error}); record more with --resume"
