"""How fast this host is against the one a profile comes from: five scales, from a few seconds of recorded steps.

    gpu_scale      measured over predicted duration of stretches of decodes, median; drawn towards 1 by `BELIEF`
    compute_scale  the same of stretches with prompts of `COMPUTES` tokens or more, beyond gpu_scale
    cpu_scale      measured over predicted schedule() + update_from_output() of FULL-graph decode steps, median: pure
                   Python on the engine's core, in every step, so that a second of decodes tells
    launch_scale   measured over predicted mean of undisturbed launches, beyond cpu_scale; mixed with 1 as if that were
                   `PRIOR` more launches
    front_end_scale  measured over predicted times of requests on their way in and tokens on their way out, medians over
                   bursts, beyond cpu_scale

Evidence for one CPU factor: on an H200 with vLLM 0.24.0, six runs on hosts whose engine loop took 0.96 to 1.63 times
the profile's time had launches 0.92 to 1.10 times what that factor says.  Hosts of one kind differ so much when others
use them too.  Launch-bound servers (`--enforce-eager`) have no FULL graphs: there the launches stand for the CPU.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from calibration.fit import Folder, logged_date, logged_version
from calibration.fit_cpu import MODES, Launches
from calibration.fit_front_end import arrivals, outputs
from calibration.fit_gpu import DISTURBED, Recording, kinds, ranges, relative_errors, step_ends
from calibration.recorded_run import take
from calibration.recording import Floats, Sent, Steps
from calibration.stretches import Stretches
from simulator.errors import InputError
from simulator.gpu_spec import GpuSpec
from simulator.model_spec import ModelSpec
from simulator.profile import FrontEnd, Host, Profile
from simulator.step_cost import FULL

#: Stretches, decode steps, launches and bursts that a scale needs.
LEAST_STRETCHES, LEAST_STEPS, LEAST_LAUNCHES, LEAST_BURSTS = 5, 50, 5, 4
#: A launch scale of 1 counts as so many launches.
PRIOR = 20
#: How much of a deviation seen is the GPU's own, of decodes and of prompts.  Hosts differ by 1.5 % and by some 3 %
#: (`calibration.draws`); for the few kinds of steps of a probe the form of the step time is off by 1.2 % and by some
#: 3 % (H200: five probes against the runs after them).
BELIEF, COMPUTE_BELIEF = 0.015**2 / (0.015**2 + 0.012**2), 0.5
#: Tokens from which a step is bound by computing.
COMPUTES = 900


def refresh_host(
    profile: Profile, steps_dir: Path, model: ModelSpec, gpu: GpuSpec, *, workload: str = "calib"
) -> Profile:
    """Return *profile* with the host section measured from *workload* in *steps_dir*; everything else stays."""
    folder = Folder.read(steps_dir, workload, model, gpu, logged_version(steps_dir, profile.provenance.vllm_version))
    recording = folder.recording if folder.sent is None else during(folder.recording, folder.sent)
    host = measure_host(profile, recording, folder.sent)
    if host is None:
        raise InputError(f"{steps_dir}: {workload}: too few steps to tell this host's speed; record 5 s of load")
    measured = logged_date(steps_dir) or datetime.now(UTC).strftime("%Y-%m-%d")
    return profile.model_copy(update={"host": host.model_copy(update={"measured": measured})})


def during(recording: Recording, sent: Sent) -> Recording:
    """Return the part of *recording* from the first send to the last token: what came later must not tell."""
    begins = recording.steps.plan_start_s
    inside = np.flatnonzero((begins >= sent.sent_s.min()) & (begins <= sent.last_token_s.max()))
    return replace(recording, steps=take(recording.steps, inside)) if len(inside) else recording


def measure_host(profile: Profile, recording: Recording, sent: Sent | None) -> Host | None:
    """Return the scales of the host *recording* was made on, 1 where it does not tell; None if it tells nothing."""
    plain = profile.model_copy(update={"host": Host()})
    stretches, steps = recording.stretches(), recording.steps
    gpu_scale, compute_scale = _gpu_scales(plain, recording, stretches)
    scaled = plain.model_copy(update={"host": Host(gpu_scale=gpu_scale or 1.0, compute_scale=compute_scale)})
    launches = Launches.of(steps, stretches, sent, step_ends(recording, stretches, scaled))
    ratios = launch_ratios(launches, profile, recording)
    loop = loop_scale(steps, profile)
    front_end = None if sent is None else _front_end_scale(plain.front_end, steps, stretches, sent)
    cpu_scale, launch_scale = loop or 1.0, 1.0
    if loop is None and len(ratios) >= LEAST_LAUNCHES:
        cpu_scale = float(ratios.mean())
    elif loop is None and gpu_scale is None:
        return None
    else:
        launch_scale = (float(ratios.sum()) / cpu_scale + PRIOR) / (len(ratios) + PRIOR)
    return Host(
        gpu_scale=round(gpu_scale or 1.0, 4),
        compute_scale=round(compute_scale, 4),
        cpu_scale=round(cpu_scale, 4),
        launch_scale=round(launch_scale, 4),
        front_end_scale=1.0 if front_end is None else round(front_end / cpu_scale, 4),
    )


def _front_end_scale(front_end: FrontEnd, steps: Steps, stretches: Stretches, sent: Sent) -> float | None:
    """Return how much longer the API server takes than *front_end* says; None with too few bursts."""
    came = [one.planned_s / one.predicted_s(front_end) for one in arrivals(steps, stretches, sent)]
    went = [float(np.median(one.delay_s / one.predicted_s(front_end))) for one in outputs(steps, sent)]
    if min(len(came), len(went)) < LEAST_BURSTS:
        return None
    return float(np.sqrt(np.median(came) * np.median(went)))


def _gpu_scales(plain: Profile, recording: Recording, stretches: Stretches) -> tuple[float | None, float]:
    """Return the GPU and compute scales; None and 1 if the GPU was never known to be busy (`--enforce-eager`)."""
    steps, errors = recording.steps, relative_errors(recording, stretches, plain)
    slowness = np.where(np.abs(errors) <= DISTURBED, 1.0 / (1.0 + errors), np.nan)
    most = np.maximum.reduceat(np.append(steps.prefill_tokens, 0), ranges(stretches))[::2]
    decodes = slowness[(kinds(stretches, steps) == "decode") & ~np.isnan(slowness)]
    prompts = slowness[(most >= COMPUTES) & ~np.isnan(slowness)]
    if len(decodes) < LEAST_STRETCHES or recording.engine.enforce_eager:
        return None, 1.0
    gpu_scale = 1.0 + BELIEF * (float(np.median(decodes)) - 1.0)
    if len(prompts) < LEAST_STRETCHES:
        return gpu_scale, 1.0
    return gpu_scale, 1.0 + COMPUTE_BELIEF * (float(np.median(prompts)) / gpu_scale - 1.0)


def scales(host: Host) -> str:
    """Return the scales in words."""
    gpu = f"GPU {host.gpu_scale:.3f} (prompts x {host.compute_scale:.3f})"
    cpu = f"CPU {host.cpu_scale:.2f} (launches x {host.launch_scale:.2f}, API server x {host.front_end_scale:.2f})"
    return f"{gpu}, {cpu}"


def loop_scale(steps: Steps, profile: Profile) -> float | None:
    """Return how much longer the engine loop's own work takes than in *profile*; None with too few decode steps."""
    alone = (steps.prefill_tokens == 0) & (steps.mode == FULL)
    if alone.sum() < LEAST_STEPS:
        return None
    cpu, reqs = profile.cpu, steps.num_reqs[alone]
    seconds = (steps.plan_end_s - steps.plan_start_s + steps.update_end_s - steps.update_start_s)[alone]
    expected = cpu.schedule_s + cpu.update_s + (cpu.schedule_per_request_s + cpu.update_per_request_s) * reqs
    return float(np.median(seconds / expected))


def launch_ratios(launches: Launches, profile: Profile, recording: Recording) -> Floats:
    """Return each undisturbed launch relative to the mean launch *profile* predicts for it on its own host."""
    kernels = recording.model.num_hidden_layers * (
        profile.launch.eager_factor if recording.engine.enforce_eager else 1.0
    )
    found = []
    for mode, name in enumerate(MODES):
        section, quantiles = getattr(profile.launch, name), getattr(profile.noise, name).launch_quantiles
        mean = float(np.mean(_midpoints(quantiles))) if quantiles else 1.0
        for idle in (False, True):
            expected = (section.constant_s + section.per_layer_s * kernels) * (section.idle_factor if idle else 1.0)
            found.append(launches.undisturbed(mode, idle=idle) / (expected * mean))
    return np.concatenate(found)


def _midpoints(quantiles: tuple[float, ...]) -> Floats:
    levels = np.asarray(quantiles)
    return np.asarray((levels[1:] + levels[:-1]) / 2)
