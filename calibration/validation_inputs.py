"""The three ways to get both sides of a comparison: a recorded folder, measured-run files, or a server run now.

Each returns the validation.  Only the last one measures; it predicts first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from calibration import host_probe
from calibration.fit import logged_version
from calibration.host import refresh_host, scales
from calibration.recorded_run import RecordedRun, clients_only, logged_arguments, read_run
from calibration.validate import Prediction, RunsRequests, Validation, judge, predict
from simulator import catalogue
from simulator.errors import InputError
from simulator.gpu_spec import GpuSpec
from simulator.hf_config import load_model
from simulator.model_spec import ModelSpec
from simulator.profile import Profile, load_profile
from simulator.scenario import Scenario
from simulator.workload import Traffic, traffic

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Judging:
    """How to predict and judge: replications of the intervals (0: none), processes, bars (None: the defaults)."""

    seed: int = 0
    replications: int = 0
    workers: int = 1
    bars: Mapping[str, float] | None = None

    def predicted(self, scenario: Scenario, timed_by: Profile | None = None) -> Prediction:
        """Predict *scenario*, with its profile or with *timed_by*."""
        return predict(scenario, replications=self.replications, workers=self.workers, timed_by=timed_by)

    def judged(self, scenario: Scenario, runs: Sequence[RecordedRun], timed_by: Profile | None = None) -> Validation:
        """Predict *scenario* and judge it by *runs*."""
        return judge(self.predicted(scenario, timed_by), runs, self.bars)


def of_recorded(
    folder: Path,
    names: Sequence[str],
    profile: str,
    how: Judging,
    *,
    command: str | None = None,
    model: str | None = None,
    gpu: str | None = None,
    host_from: str | None = None,
) -> Validation:
    """Judge recorded runs *names* of *folder*, all of the same requests.

    The server's start line is *command*, else what its log says; model and GPU are the profile's unless given.
    *host_from* names another run of that server, made before: the host's speed is taken from it.
    """
    if not names:
        raise InputError("--recorded needs --workload NAME, of the file NAME.requests.json(.gz) in that folder")
    source = load_profile(profile).provenance
    spec, card = load_model(model or source.model), catalogue.gpu(gpu or source.gpu)
    runs = [read_run(folder, name, spec, card) for name in names]
    start = command or logged_arguments(folder)
    if start is None:
        raise InputError(f"{folder}: no server.log that says how the server was started; give its `vllm serve` line")
    scenario = Scenario.from_command(
        start, profile=profile, gpu=card.name, vllm_version=logged_version(folder),
        model_config=model or source.model, workload=runs[0].measured.replay(), seed=how.seed,
    )  # fmt: skip
    return how.judged(scenario, runs, _on_this_host(profile, folder, host_from, spec, card))


def _on_this_host(profile: str, folder: Path, name: str | None, model: ModelSpec, gpu: GpuSpec) -> Profile | None:
    """Return *profile* at the speed the run *name* shows; None without a name."""
    return None if name is None else refresh_host(load_profile(profile), folder, model, gpu, workload=name)


def of_measured(names: Sequence[str], profile: str, how: Judging, *, command: str | None = None) -> Validation:
    """Judge measured runs by name or file; what happened in the engine is not known."""
    runs = [clients_only(name) for name in names]
    start = command or runs[0].measured.provenance.get("command")
    if start is None:
        raise InputError(f"{runs[0].name}: does not say how its server was started; give its `vllm serve` line")
    workload = runs[0].measured.replay()
    return how.judged(Scenario.from_command(start, profile=profile, workload=workload, seed=how.seed), runs)


def of_server(
    scenario: Scenario,
    command: str,
    server: RunsRequests,
    folder: Path,
    how: Judging,
    *,
    repeats: int = 1,
    progress: Progress = lambda _: None,
) -> Validation:
    """Predict *scenario*, then let *server* run the same requests *repeats* times, and judge.

    If the server was probed before, the prediction is the one at the speed the probe shows.
    """
    progress("predicting")
    prediction = how.predicted(scenario)
    mean, p99 = prediction.value("mean_ttft_ms"), prediction.value("p99_ttft_ms")
    if mean is not None and p99 is not None:
        progress(f"predicted TTFT {mean:.1f} ms (p99 {p99:.1f}); now measuring")
    sent: Traffic = traffic(prediction.scenario.workload, scenario.seed)
    names = [f"run{number}" for number in range(1, repeats + 1)]
    folder.mkdir(parents=True, exist_ok=True)
    server(command, sent, folder, names)
    runs = [read_run(folder, name, scenario.model, scenario.gpu) for name in names]
    if (folder / f"{host_probe.NAME}.requests.json.gz").is_file():
        here = _probed(prediction.profile, folder, scenario, progress)
        prediction = prediction if here is None else how.predicted(scenario, here)
    return judge(prediction, runs, how.bars)


def _probed(profile: Profile, folder: Path, scenario: Scenario, progress: Progress) -> Profile | None:
    """Return *profile* at the speed that the probe in *folder* shows; None, and a note, if it does not tell."""
    try:
        here = refresh_host(profile, folder, scenario.model, scenario.gpu, workload=host_probe.NAME)
    except InputError as error:
        progress(f"note: {error}; predicted as calibrated")
        return None
    progress(f"this host: {scales(here.host)}; predicting at that speed")
    return here
