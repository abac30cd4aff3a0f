"""Capacity: how much load does this server carry within an SLO, what stops it, and how many GPUs does that make?"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import streamlit as st

from apps import capacity_tables as tables
from apps.output import Table
from apps.ui import tasks
from apps.ui.figures.capacity import load_curve
from apps.ui.look import answer, badges, chart, problem, table
from apps.ui.question import Question, searched
from apps.ui.state import ask, controlled, labelled, question, take_back
from apps.ui.waiting import until_done
from apps.ui.work import SLOW_LIMIT_S, Job, desk
from simulator.errors import ServecastError

if TYPE_CHECKING:
    from apps.planning.capacity import Capacity, Progress
    from apps.planning.cost import Fleet
    from apps.planning.prices import Price
    from simulator.scenario import Scenario

_AXES = {"rate": "requests/s", "concurrency": "clients", "users": "users who think"}
_ASKED = "capacity_asked"
_SLO_HELP = "e.g. ttft_p99=500ms,tpot_p95=40ms,goodput=95%:ttft=500ms:tpot=40ms"


def page() -> None:
    """Draw the page: what is asked; then the search as it goes on, or its answer."""
    asked = question()
    place = st.container()
    with st.expander("The target", expanded=True, icon=":material/flag:"):
        ready = _inputs(asked)
    if ready is None:
        with place:
            answer("plain", "One more input is needed before the capacity can be searched.")
        return
    scenario, key = ready, (ready.to_json(None), _slo(asked), asked.draws)
    with place:
        if st.session_state.get(_ASKED) != key:
            answer("plain", "How much load can this server carry within the SLO, and what stops it?",
                   "Turning up the load until it breaks takes some thirty simulations: half a minute.")  # fmt: skip
            st.button("Find the capacity", key="capacity_start", type="primary", on_click=_start, args=(key,))
            return
        job = ask("capacity", tasks.capacity, *key, lane="slow")
        if job.done():
            _found(asked, job)
        else:
            _under_way(asked, scenario, job)


def _start(key: tuple[Any, ...]) -> None:
    st.session_state[_ASKED] = key


def _cancel() -> None:
    st.session_state.pop(_ASKED, None)
    take_back("capacity")


def _slo(asked: Question) -> str:
    from apps.planning.slo import Slo

    return str(Slo.parse(asked.slo))


def _inputs(asked: Question) -> Scenario | None:
    """Draw the inputs; return the scenario to be searched, None while one of them cannot be read."""
    one, two, three = st.columns([4, 3, 2])
    with one:
        controlled("slo", st.text_input, "SLO", help=_SLO_HELP)
        slo_problem = _told(lambda: _slo(asked))
    with two:
        labelled("axis", st.radio, "Load is", _AXES, horizontal=True)
    with three:
        if asked.axis == "users":
            controlled("think_time", st.text_input, "Think time", help="20s, exponential:20s, lognormal:MEDIAN:SIGMA …")
        else:
            controlled("target", st.number_input, f"Load to plan for ({_AXES[asked.axis]})", step=1.0, format="%.4g",
                       help="0: the load on the left.")  # fmt: skip
    left, right = st.columns([4, 5])
    with left:
        controlled("draws", st.select_slider, "Searches for the interval", sorted({0, 10, 20, asked.draws}),
                   help="Profiles and seeds drawn anew; 0 for none.")  # fmt: skip
    with right:
        controlled("price", st.number_input, "US $ a GPU hour", step=0.5, format="%.2f", help="0: a list price.")
    found: list[Scenario] = []
    scenario_problem = _told(lambda: found.append(searched(asked)))
    return found[0] if found and not slo_problem and not scenario_problem else None


def _told(read: Any) -> bool:
    """Read an input; show what is wrong with it, and return whether anything is."""
    try:
        read()
    except ServecastError as error:
        problem(" ".join(str(error).split()))
        return True
    return False


def _under_way(asked: Question, scenario: Scenario, job: Job) -> None:
    """Draw how far the search is, once a second, until it is done."""
    from apps.planning.load import UNITS, axis_of
    from apps.planning.slo import Slo

    @st.fragment(run_every=1.0)
    def progress() -> None:
        if job.done():
            st.rerun()
        told: Progress | None = job.progress()
        if told is None:
            others = desk().waiting() - 1
            before = f": {others} other questions are being answered" if others > 0 else ""
            answer("plain", f"Waiting for a worker{before} …")
            st.progress(0.0, "waiting")
        else:
            answer("plain", f"Searching: **{told.stage}**, {told.done} of about {told.expected} simulations.")
            st.progress(min(1.0, told.done / max(1, told.expected)))
        st.button("Cancel", key="capacity_cancel", on_click=_cancel)
        st.caption(f"A search may take {SLOW_LIMIT_S // 60} minutes; others on this page are not held up by it.")
        if told is not None and told.points:
            figure = load_curve(told.points, Slo.parse(asked.slo), UNITS[axis_of(scenario)])
            chart(figure, "capacity_progress")

    progress()


def _found(asked: Question, job: Job) -> None:
    try:
        found: Capacity = job.result()
    except ServecastError as error:
        answer("no", "**There is no capacity to be found.**", " ".join(str(error).split()))
        st.button("Back", key="capacity_back", on_click=_cancel)
        return
    target = _target(asked, found)
    price = _price(asked, found)
    fleet = _fleet(found, target, price)
    _answer(found, fleet)
    badges(f"{found.runs} simulations", f"{found.scenario.model.name} on {found.scenario.gpu.name}", found.unit)
    chart(load_curve(found.points, found.slo, found.unit, capacity=found.load, interval=found.interval, asked=target),
          "capacity")  # fmt: skip
    _numbers(found, fleet, price)
    for note in found.notes[:4]:
        st.caption(note)
    _changes(found)


def _answer(found: Capacity, fleet: Fleet | None) -> None:
    limit = found.limit
    why = f"{limit.title}: {limit.why}." if limit else ""
    if found.load is None:
        lowest = tables.amount(found, found.points[0].load)
        answer("no", f"**No load meets {found.slo}**: {found.target} is missed even at {lowest} {found.unit}.", why)
        return
    load = tables.amount(found, found.load)
    sure = ""
    if found.interval is not None:
        low, high = (tables.amount(found, each) for each in found.interval)
        sure = f" (90 % interval {low} to {high}{'' if found.is_calibrated else ', too narrow: not calibrated'})"
    least = "at least " if found.next_load is None else ""
    plan = ""
    if fleet is not None:
        cost = f", ${fleet.usd_per_month:,.0f} a month" if fleet.usd_per_month is not None else ""
        gpus = f"{fleet.gpus} GPU{'s' if fleet.gpus > 1 else ''}"
        plan = f" {tables.amount(found, fleet.load)} {found.unit} need **{gpus}**{cost}."
    breaks = "the server no longer keeps up" if found.target == "stability" else f"{found.target} breaks"
    beyond = f"Beyond it {breaks}. {why}" if found.next_load is not None else "Nothing broke the SLO so far."
    answer("yes", f"This server carries **{least}{load} {found.unit}**{sure} within {found.slo}.{plan}", beyond)


def _target(asked: Question, found: Capacity) -> float | None:
    if asked.target > 0:
        return asked.target
    if found.axis == "rate" and asked.load == "rate" and 0 < asked.rate < float("inf"):
        return asked.rate
    return float(asked.concurrency) if found.axis == "concurrency" and asked.load == "concurrency" else None


def _price(asked: Question, found: Capacity) -> Price | None:
    from apps.planning.prices import list_price, own_price

    return own_price(asked.price) if asked.price > 0 else list_price(found.scenario.gpu.name)


def _fleet(found: Capacity, target: float | None, price: Price | None) -> Fleet | None:
    from apps.planning.cost import fleet_for

    return fleet_for(found, target, price) if target else None


def _numbers(found: Capacity, fleet: Fleet | None, price: Price | None) -> None:
    from apps.planning.cost import token_prices

    left, right = st.columns(2)
    point = found.point
    with left:
        if point is not None:
            _shown(tables.target_table(found, point))
        if fleet is not None:
            _shown(tables.fleet_table(found, [fleet]))
    with right:
        prices = token_prices(found, price) if price is not None else None
        if price is not None and prices is not None:
            _shown(tables.cost_table(price, prices))


def _changes(found: Capacity) -> None:
    """Draw what the nearest changes of flags would do, each searched for; they come after the answer."""
    st.markdown("##### What would move it")
    if found.load is None or found.next_load is None:
        st.caption("Nothing to look at without a capacity.")
        return
    job = ask("changes", tasks.changes, pickle.dumps(found), lane="slow")
    if not job.done():
        st.caption("Each of these is simulated; the answer above stays as it is.")
        until_done([job], "Trying other flags")
    try:
        _shown(tables.marginal_table(job.result()))
    except ServecastError as error:
        st.caption(" ".join(str(error).split()))


def _shown(numbers: Table) -> None:
    """Show a table of the command line."""
    right = tuple(numbers.right)
    table(numbers.columns, numbers.rows, right=right, wrap=() if 0 in right else (0,))
