"""Make a failing scenario small: fewer requests, shorter ones, fewer settings, as long as it still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Scenario = dict[str, Any]


def _with_request(scenario: Scenario, index: int, **changes: Any) -> Scenario:
    requests = list(scenario["requests"])
    requests[index] = {name: value for name, value in (requests[index] | changes).items() if value is not None}
    return {**scenario, "requests": requests}


def _fewer_requests(scenario: Scenario) -> Iterator[Scenario]:
    requests = scenario["requests"]
    size = len(requests) // 2
    while size:
        for start in range(0, len(requests), size):
            kept = requests[:start] + requests[start + size :]
            if kept:
                yield {**scenario, "requests": kept}
        size //= 2


def _plainer_config(scenario: Scenario) -> Iterator[Scenario]:
    config = scenario["config"]
    for name in config:
        if name not in ("seqs", "mbt", "blocks", "B", "mml"):
            yield {**scenario, "config": {other: value for other, value in config.items() if other != name}}
    # vLLM wants a step to hold one token of every sequence, and a whole sequence if prompts may not be cut.
    least = {"seqs": 1, "mbt": config["seqs"] if config.get("chunked", True) else config["mml"], "blocks": 2}
    for name, lowest in least.items():
        for value in (config[name] // 2, config[name] - 1):
            if value >= lowest:
                yield {**scenario, "config": {**config, name: value}}


def _smaller_requests(scenario: Scenario) -> Iterator[Scenario]:
    block_size = scenario["config"]["B"]
    for index, request in enumerate(scenario["requests"]):
        prompt, most, after = request["prompt"], request["max_tokens"], request["after_step"]
        for length in {len(prompt) // 2, len(prompt) - block_size, len(prompt) - 1}:
            if length > 0:
                yield _with_request(scenario, index, prompt=prompt[:length])
        for tokens in {most // 2, most - 1} - {0}:
            yield _with_request(scenario, index, max_tokens=tokens)
        for step in {0, after // 2, after - 1} - {after, -1}:
            yield _with_request(scenario, index, after_step=step)
        for name in ("eos_at", "priority"):
            if request.get(name):
                yield _with_request(scenario, index, **{name: None})


def candidates(scenario: Scenario) -> Iterator[Scenario]:
    """Yield scenarios that are a little smaller, the boldest changes first."""
    yield from _fewer_requests(scenario)
    yield from _plainer_config(scenario)
    yield from _smaller_requests(scenario)


def shrink(scenario: Scenario, fails: Callable[[Scenario], bool], most_tries: int = 4_000) -> Scenario:
    """Return a scenario that fails and of which no smaller `candidates` fails (or the best after *most_tries*)."""
    tries, better = 0, True
    while better:
        better = False
        for candidate in candidates(scenario):
            tries += 1
            if tries > most_tries:
                return scenario
            if fails(candidate):
                scenario, better = candidate, True
                break
    return scenario
