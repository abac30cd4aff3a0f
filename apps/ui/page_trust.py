"""Trust: what the step times rest on, whether this question lies inside it, and how far predictions were off."""

from __future__ import annotations

from typing import Any

import streamlit as st

from apps import accuracy_reports
from apps.ui import tasks
from apps.ui.answers import complete_question, run_of, warnings_of
from apps.ui.figures.trust import hull, predicted_against_measured, residuals
from apps.ui.look import answer, badges, chart, table
from apps.ui.state import ask
from apps.ui.tasks import Run
from apps.ui.waiting import until_done
from simulator.errors import ServecastError
from simulator.footing import not_measured
from simulator.measured import names
from simulator.profile import Profile
from simulator.scenario import Scenario
from simulator.simulate import profile_of


@st.cache_resource(max_entries=8, show_spinner=False)
def _profile(scenario: str) -> Profile:
    return profile_of(Scenario.from_json(scenario))


def page() -> None:
    """Draw the page."""
    found = complete_question("trust")
    if found is None:
        return
    _asked, scenario = found
    profile = _profile(scenario.to_json(None))
    run = run_of(scenario, "trust")
    if run is None:
        return
    left = _outside(run, profile)
    _answer(scenario, profile, left)
    source = profile.provenance
    badges(profile.name, source.gpu, f"vLLM {source.vllm_version}", source.model, f"measured {source.measured}")
    one, two = st.columns(2)
    with one:
        st.markdown("##### Inside what was measured?")
        chart(hull(run.steps, profile.hull.tokens, profile.hull.decode_reqs), "hull")
        _ranges(run, profile)
    with two:
        st.markdown("##### How well the curve fits its own data")
        if profile.residuals:
            chart(residuals(profile.residuals), "residuals")
        else:
            st.caption("A data sheet has no residuals: nothing was measured.")
        _provenance(profile)
    _reports(profile)
    _validation(profile)
    warnings_of(run.summary)


def _outside(run: Run, profile: Profile) -> list[str]:
    seen = _seen(run)
    limits = profile.hull
    pairs = (("tokens in a step", seen["tokens"], limits.tokens), ("requests that decode", seen["decode_reqs"],
             limits.decode_reqs), ("context", seen["context"], limits.context))  # fmt: skip
    return [name for name, value, limit in pairs if value > limit]


def _seen(run: Run) -> dict[str, int]:
    steps = run.steps
    lengths = run.requests["prompt_tokens"] + run.requests["output_tokens"]
    return {
        "tokens": 0 if steps is None or steps.empty else int(steps["tokens"].max()),
        "decode_reqs": 0 if steps is None or steps.empty else int(steps["decode_reqs"].max()),
        "context": int(lengths.max()) if len(lengths) else 0,
    }


def _answer(scenario: Scenario, profile: Profile, left: list[str]) -> None:
    missing = not_measured(scenario, profile)
    if missing:
        answer("careful", "**A first answer, not a calibrated one**: read differences rather than numbers.",
               "; ".join(missing))  # fmt: skip
    elif left:
        answer("careful", f"**Calibrated for this server, but the load leaves the measured range**: {', '.join(left)}.",
               "Step times beyond it are extrapolated.")  # fmt: skip
    else:
        answer("yes", "**Calibrated for this model, GPU, vLLM and way of running**, and the load stays inside what was "
               "measured. How far predictions were off on runs the fit never saw is shown below.")  # fmt: skip


def _ranges(run: Run, profile: Profile) -> None:
    seen, limits = _seen(run), profile.hull
    rows = [
        [title, f"{seen[key]:,}", f"{getattr(limits, key):,}" if getattr(limits, key) else "-"]
        for title, key in (("tokens in a step", "tokens"), ("requests that decode", "decode_reqs"),
                           ("longest context (tokens)", "context"))
    ]  # fmt: skip
    table(("", "this question", "calibrated up to"), rows, right=(1, 2))


def _provenance(profile: Profile) -> None:
    source = profile.provenance
    rows = [["command", source.command], ["note", source.note], ["files", f"{len(source.files)} with SHA-256"]]
    table(("", ""), [row for row in rows if row[1]], wrap=(1,))


def _reports(profile: Profile) -> None:
    """Show the shipped validation reports of this profile, misses like hits."""
    found = accuracy_reports.shipped(profile.name)
    if not found:
        return
    st.markdown("##### Validated on the card")
    shown = accuracy_reports.table(found)
    cells = [[row[0].removeprefix(f"{profile.name}-"), *row[1:]] for row in shown.rows]
    table(shown.columns, cells, right=shown.right)
    st.caption(
        f"{accuracy_reports.summary(found)[0]}. Host: whether its speed was measured before the run, and what the CPU "
        "of the engine loop took during it, relative to that. Causes of the misses: docs/accuracy.md."
    )


def _validation(profile: Profile) -> None:
    """Show predicted against measured for the shipped runs of this profile's GPU and model; row by row as they come."""
    st.markdown("##### Predicted against measured")
    mine = [name for name in names() if name.startswith(profile.name)]
    if not mine:
        st.caption(
            "No run of this GPU and model is shipped. `servecast validate` makes such a table on your own server."
        )
        return
    jobs = {name: ask(f"measured_{name}", tasks.measured, name, profile.name, lane="slow") for name in mine}
    pending = [job for job in jobs.values() if not job.done()]  # of now: what is drawn below lacks them
    done: list[dict[str, Any]] = []
    for job in jobs.values():
        if job not in pending:
            try:
                done.append(job.result())
            except ServecastError as error:
                st.caption(str(error))
    rows = [{"run": one["run"], **row} for one in done for row in one["rows"]]
    if rows:
        chart(predicted_against_measured(rows), "measured")
        metrics = list(dict.fromkeys(row["metric"] for row in rows))
        cells = [
            [
                f"{one['run'].removeprefix(profile.name + '-')}\n{one['workload']}",
                *(_error(one, metric) for metric in metrics),
            ]
            for one in done
        ]
        table(("signed error, %", *metrics), cells, right=range(1, len(metrics) + 1), wrap=(0,))
        st.caption(
            "Each run was measured on a real server and predicted from the same requests (mean of three simulations)."
        )
    if pending:
        until_done(pending[:3], f"Predicting measured runs again: {len(done)} of {len(mine)}")


def _error(one: dict[str, Any], metric: str) -> str:
    return next((f"{row['error_percent']:+.1f}" for row in one["rows"] if row["metric"] == metric), "-")
