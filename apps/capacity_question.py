"""What `servecast capacity` is asked: the scenario whose load is searched, the axis it is turned up on, the target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from apps import workload_options as options

if TYPE_CHECKING:
    from apps.planning.load import Axis
    from simulator.scenario import Scenario
    from simulator.workload import Workload


def axis_asked(users: bool, think_time: str | None, closed_loop: bool, mix: Path | None) -> Axis | None:
    """Return the axis the options name; None: that of the workload."""
    from simulator.errors import InputError

    if closed_loop and (users or think_time is not None):
        raise InputError("--closed-loop clients do not think; give either it or --users with --think-time")
    if users and think_time is None and mix is None:
        raise InputError("--users need a --think-time, e.g. 20s; for clients that never think give --closed-loop")
    return "concurrency" if closed_loop else "users" if users or think_time is not None else None


def question(
    command: str | None,
    saved: Path | None,
    server: dict[str, Any],
    shape: dict[str, Any],
    axis: Axis | None,
    think_time: str | None,
    rest: dict[str, Any],
) -> Scenario:
    """Return the scenario whose load is searched for; *shape* are options of `apps.workload_options.workload`."""
    from simulator.errors import InputError
    from simulator.request_list import read_text
    from simulator.scenario import Scenario

    if saved is not None:
        given = [name for name, value in (server | shape).items() if value is not None and name != "num_prompts"]
        if command is not None or given:
            raise InputError("--scenario already holds the server and the workload; leave the other options out")
        return Scenario.from_text(read_text(saved), str(saved))
    if command is None:
        raise InputError('no server: give its start line, e.g. "vllm serve meta-llama/Llama-3.1-8B", or --scenario')
    return Scenario.from_command(command, workload=_workload(shape, axis, think_time), **server, **rest)


def _workload(shape: dict[str, Any], axis: Axis | None, think_time: str | None) -> Workload:
    """Return the workload at a load of 1, which the search replaces."""
    from simulator.errors import InputError

    chats = shape["turns"] is not None or shape["system_prompt_tokens"] is not None
    listed = shape["requests"] is not None or shape["trace"] is not None
    if axis == "users" and listed:
        raise InputError("users who think draw the lengths of their requests; leave --requests and --trace out")
    if axis == "concurrency" and (chats or shape["mix"] is not None):
        raise InputError("--closed-loop clients send single requests; chats and mixes have --users, or a rate")
    if shape["mix"] is not None or (listed and axis != "concurrency"):
        return options.workload(**shape, think_time=think_time)
    if axis == "users":
        one: dict[str, Any] = {"users": 1} if chats else {"concurrency": 1}
        return options.workload(**shape, think_time=think_time, **one)
    start: dict[str, Any] = {"concurrency": 1} if axis == "concurrency" else {"rate": 1.0}
    return options.workload(**shape, **start)


def check_num_prompts(scenario: Scenario, axis: Axis, num_prompts: int | None) -> None:
    """Raise `InputError` for a fixed number of requests in a search over chats or users.

    With fewer requests than users most users never come, and with chats longer than the run a rate is never
    reached: any load would seem to hold.
    """
    from simulator.errors import InputError
    from simulator.mixes import MixWorkload, SessionsWorkload

    chats = isinstance(scenario.workload, (SessionsWorkload, MixWorkload))
    if num_prompts is not None and (chats or axis == "users"):
        raise InputError(
            f"--num-prompts {num_prompts}: of users and chats a run has as many as its load needs; leave it out"
        )


def target(axis: Axis, rate: float | None, users: float | None) -> float | None:
    """Return the target on the axis that is searched."""
    from simulator.errors import InputError

    wrong, right = ("--target-users", "--target-rate") if axis == "rate" else ("--target-rate", "--target-users")
    if (users if axis == "rate" else rate) is not None:
        raise InputError(f"{wrong} does not go with a search over {axis}; give {right}")
    wanted = rate if axis == "rate" else users
    if wanted is not None and not wanted > 0:
        raise InputError(f"{right} must be positive, got {wanted:g}")
    return wanted
