"""How uncertain the fit is: refits on resampled bursts, with resampled priors.

One refit: as many bursts as were recorded are drawn with replacement (a burst stays whole: its steps share one state
of the host), every prior's centre is drawn anew from the prior, and GPU time, launches and front end are fitted again.
The covariance of the logarithms over the refits replaces that of the least-squares fit in the profile.

Drawing the priors too makes the refits samples of what data *and* priors leave open ("randomize then optimize",
Bardsley et al. 2014): with the data alone, a coefficient that no burst tells of would always come out as its prior, and
look certain.  Refits know nothing of other hosts; that is `calibration.draws.RunToRun`.

No coefficient is less certain than its prior, which is what was known before anything was measured: where refits jump
between two explanations, a log-normal as wide as their distance would draw values that no refit has.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from calibration.draws import value_at, with_values
from calibration.fit import Folder, logged_version
from calibration.fit_cpu import Launches, fit_launch
from calibration.fit_front_end import IN, OUT, SPREAD, Arrival, FrontEndFit, Outputs, arrivals, outputs
from calibration.fit_gpu import GpuTimeFit, Recording, step_ends
from calibration.priors import PRIORS, starting_profile
from calibration.recorded_run import take
from calibration.recording import Floats, Ints, Sent
from simulator import catalogue
from simulator.errors import InputError
from simulator.model_spec import ModelSpec
from simulator.profile import Covariance, Profile

Progress = Callable[[str], None]
T = TypeVar("T")

REFITS = 40
#: Fewer bursts cannot be resampled.
LEAST_BURSTS = 8
_MODES = ("launch.none", "launch.piecewise")
_LAUNCH = tuple(f"{mode}.{name}" for mode in _MODES for name in ("per_layer_s", "idle_factor"))
#: What was known before anything was measured, by path.
_PRIOR_SPREADS = {prior.path: prior.spread for prior in PRIORS} | {f"front_end.{name}": SPREAD for name in (*IN, *OUT)}
#: Spread of the logarithm of a launch around the prior's: hosts of one kind differ by up to 1.3 times.
_LAUNCH_SPREAD = 0.1


@dataclass(frozen=True, eq=False)
class Bursts:
    """A recording cut into bursts: by step, the number of its burst."""

    recording: Recording
    sent: Sent | None
    of_step: Ints

    @classmethod
    def of(cls, recording: Recording, sent: Sent | None) -> Bursts:
        """Cut at the client's bursts, or at plans made by an idle engine if the client's side is not known.

        Raises `InputError` for too few of them.
        """
        if sent is not None:
            begins = np.array([sent.sent_s[sent.burst == burst].min() for burst in np.unique(sent.burst)])
            of_step = np.maximum(np.searchsorted(np.sort(begins), recording.steps.plan_start_s, side="right") - 1, 0)
        else:
            of_step = np.cumsum(recording.stretches().idle) - 1
        found = cls(recording, sent, np.asarray(of_step, dtype=np.int64))
        if len(found.numbers) < LEAST_BURSTS:
            raise InputError(f"{recording.name}: {len(found.numbers)} bursts; resampling needs at least {LEAST_BURSTS}")
        return found

    @property
    def numbers(self) -> Ints:
        """The bursts that have steps."""
        return np.unique(self.of_step)

    def steps_of(self, drawn: Ints) -> NDArray[np.int64]:
        """Return the steps of the *drawn* bursts, one burst after the other."""
        by_burst = {int(burst): np.flatnonzero(self.of_step == burst) for burst in np.unique(drawn)}
        return np.concatenate([by_burst[int(burst)] for burst in drawn])


def bootstrap(
    profile: Profile,
    recording: Recording,
    sent: Sent | None,
    *,
    refits: int = REFITS,
    seed: int = 0,
    workers: int = 1,
    progress: Progress = lambda _: None,
) -> Profile:
    """Return *profile*, fitted to *recording*, with the covariance of *refits* refits.  Some seconds a refit."""
    if refits < 2:
        raise InputError(f"a covariance needs at least 2 refits, got {refits}")
    bursts = Bursts.of(recording, sent)
    progress(f"{len(bursts.numbers)} bursts, {refits} refits")
    task = partial(refit, profile, bursts, seed)
    if workers <= 1:
        found = [task(number) for number in range(refits)]
    else:
        with ProcessPoolExecutor(max_workers=workers) as pool:
            found = list(pool.map(task, range(refits)))
    return profile.model_copy(update={"covariance": covariance_of(found)})


def bootstrap_folder(
    profile: Profile,
    steps_dir: Path,
    model: ModelSpec,
    *,
    workload: str = "calib",
    refits: int = REFITS,
    seed: int = 0,
    workers: int = 1,
    progress: Progress = lambda _: None,
) -> Profile:
    """Return *profile*, fitted to *workload* of *steps_dir*, with the covariance of *refits* refits."""
    version = logged_version(steps_dir, profile.provenance.vllm_version)
    folder = Folder.read(steps_dir, workload, model, catalogue.gpu(profile.provenance.gpu), version)
    found = folder.recording, folder.sent
    return bootstrap(profile, *found, refits=refits, seed=seed, workers=workers, progress=progress)


def refit(profile: Profile, bursts: Bursts, seed: int, number: int) -> dict[str, float]:
    """Return the coefficients of refit *number*, by path."""
    rng = np.random.default_rng([seed, number, 17])
    drawn = rng.choice(bursts.numbers, size=len(bursts.numbers))
    recording = replace(bursts.recording, steps=take(bursts.recording.steps, bursts.steps_of(drawn)))
    priors = [replace(prior, centre=prior.centre * _factor(rng, prior.spread)) for prior in PRIORS]
    start = _starting_anew(starting_profile(profile.name, profile.provenance), rng)
    fitted = GpuTimeFit(start, priors).fit([recording]).profile_
    stretches = recording.stretches()
    launches = Launches.of(recording.steps, stretches, bursts.sent, step_ends(recording, stretches, fitted))
    launch, _noise = fit_launch(launches, recording.model.num_hidden_layers, fitted.launch)
    fitted = fitted.model_copy(update={"launch": launch})
    paths = [prior.path for prior in PRIORS] + list(_LAUNCH)
    if bursts.sent is not None:
        came, went = _client_side(bursts, rng)
        fitted = fitted.model_copy(update={"front_end": FrontEndFit(fitted.front_end).learn(came, went).front_end_})
        paths += [f"front_end.{name}" for name in (*IN, *OUT)]
    return {path: value_at(fitted, path) for path in paths}


def _factor(rng: np.random.Generator, spread: float) -> float:
    return float(np.exp(spread * rng.standard_normal()))


def _starting_anew(start: Profile, rng: np.random.Generator) -> Profile:
    """Return the starting point with the priors of launches and front end drawn anew."""
    spreads = {f"{mode}.per_layer_s": _LAUNCH_SPREAD for mode in _MODES}
    spreads |= {f"front_end.{name}": SPREAD for name in (*IN, *OUT)}
    return with_values(start, {path: value_at(start, path) * _factor(rng, spread) for path, spread in spreads.items()})


def _client_side(bursts: Bursts, rng: np.random.Generator) -> tuple[list[Arrival], list[Outputs]]:
    """Return resampled bursts that came in and that went out."""
    assert bursts.sent is not None
    steps, sent = bursts.recording.steps, bursts.sent
    came = resampled(arrivals(steps, bursts.recording.stretches(), sent), rng)
    return came, resampled(outputs(steps, sent), rng)


def resampled(items: list[T], rng: np.random.Generator) -> list[T]:
    """Return as many of *items* as there are, drawn with replacement."""
    return [items[k] for k in rng.integers(0, len(items), size=len(items))] if items else []


def covariance_of(refits: list[dict[str, float]]) -> Covariance:
    """Return the covariance of the logarithms; coefficients that are 0 in a refit, or never move, are left out.

    Correlations are those of the refits, standard deviations at most those of the priors.
    """
    columns = {path: np.array([one[path] for one in refits]) for path in refits[0]}
    kept = {path: np.log(values) for path, values in columns.items() if (values > 0).all() and np.ptp(values) > 0}
    matrix: Floats = np.atleast_2d(np.cov(np.array(list(kept.values()))))
    most = np.array([_PRIOR_SPREADS.get(path, np.inf) for path in kept])
    shrunk = np.minimum(1.0, most / np.sqrt(np.diag(matrix)))
    matrix = matrix * np.outer(shrunk, shrunk)
    rounded = tuple(tuple(float(f"{value:.4g}") for value in row) for row in matrix)
    return Covariance(names=tuple(kept), matrix=rounded)
