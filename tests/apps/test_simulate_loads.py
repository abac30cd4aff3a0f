"""The loads and fleets of `servecast simulate` are those of Python; what does not go together is one line."""

import json

import pytest

from apps.cli import main
from simulator.autoscaler import Autoscaler
from simulator.mixes import MixWorkload, SessionsWorkload
from simulator.routing import Routing
from simulator.scenario import Scenario
from simulator.simulate import simulate
from simulator.workload import ConcurrencyWorkload, RateWorkload

LINE = "vllm serve meta-llama/Llama-3.1-8B --max-model-len 16384"
PROFILE = "h200-llama-3.1-8b"
MIX = """
rate = 6

[[classes]]
name = "chat"
turns = "2"
think_time_s = "1s"

[[classes]]
name = "batch"
priority = 1
prompt_tokens = "900"
"""


def asked(capsys, *words):
    assert main(["simulate", LINE, "--profile", PROFILE, "--num-prompts", "40", "--format", "json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def known(workload, **fleet):
    made = Scenario.from_command(LINE, profile=PROFILE, workload=workload)
    return json.loads(json.dumps(simulate(Scenario(**{**dict(made), **fleet})).summary()))


def equal(printed, expected):
    return {key: value for key, value in printed.items() if key != "scenario"} == expected


@pytest.mark.parametrize(
    ("words", "workload"),
    [
        (
            "--concurrency 4 --think-time 500ms",
            ConcurrencyWorkload(concurrency=4, think_time_s="500ms", num_prompts=40),
        ),
        (
            "--users 5 --turns 3 --think-time exponential:1 --system-prompt-tokens 64",
            SessionsWorkload(users=5, turns="3", think_time_s="exponential:1", system_prompt_tokens=64, num_prompts=40),
        ),
        ("--rate 4 --turns 2", SessionsWorkload(rate=4.0, turns="2", num_prompts=40)),
        (
            "--rate 10 --rate-shape steps:0=1,2=3",
            RateWorkload(rate=10.0, rate_shape="steps:0=1,2=3", num_prompts=40),
        ),
    ],
)
def test_options_describe_the_load_that_python_describes(capsys, words, workload):
    assert equal(asked(capsys, *words.split()), known(workload))


def test_a_mix_shows_its_classes(capsys, tmp_path):
    path = tmp_path / "mix.toml"
    path.write_text(MIX)
    found = asked(capsys, "--mix", str(path))
    classes = ({"name": "chat", "turns": "2", "think_time_s": "1s"},
               {"name": "batch", "priority": 1, "prompt_tokens": "900"})  # fmt: skip
    assert equal(found, known(MixWorkload(rate=6.0, num_prompts=40, classes=classes)))
    assert sum(one["requests"] for one in found["classes"].values()) == 40
    assert main(["simulate", LINE, "--profile", PROFILE, "--mix", str(path), "--num-prompts", "40"]) == 0
    assert "batch" in capsys.readouterr().out


def test_replicas_share_the_load_and_are_shown_one_by_one(capsys):
    words = ["--rate", "20", "--replicas", "2", "--router", "least-outstanding"]
    routing = Routing(policy="least-outstanding")
    expected = known(RateWorkload(rate=20.0, num_prompts=40), replicas=2, router=routing)
    assert equal(asked(capsys, *words), expected)
    assert main(["simulate", LINE, "--profile", PROFILE, "--num-prompts", "40", *words]) == 0
    assert "least-outstanding; 2.0 replicas paid for on average" in capsys.readouterr().out


def test_an_autoscaler_starts_with_its_fewest(capsys):
    text = "min=1,max=3,target=5,interval=1s,startup=1s"
    found = asked(capsys, "--rate", "20", "--autoscale", text)
    scaler = Autoscaler.parse(text)
    assert equal(found, known(RateWorkload(rate=20.0, num_prompts=40), replicas=1, autoscaler=scaler))


def test_a_saved_scenario_of_a_fleet_of_chats_gives_the_same_again(capsys, tmp_path):
    for name in ("s.toml", "s.yaml", "s.json"):
        path = tmp_path / name
        words = ["--users", "4", "--turns", "2", "--replicas", "2", "--router", "prefix-hash:load_bound=none"]
        first = asked(capsys, *words, "--save-scenario", str(path))
        assert main(["simulate", "--scenario", str(path), "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out) == first


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--rate 5 --router random", "--router random: there is one server; give --replicas N or --autoscale"),
        ("--rate 5 --think-time 2s", "--think-time: a request at --rate follows no other"),
        ("--rate 5 --users 3", "--rate and --users both describe the workload"),
        ("--concurrency 3 --turns 2", "--turns does not go with --concurrency; it belongs to --rate or --users"),
        ("--rate 5 --rate-shape sawtooth", "sawtooth"),
        ("--mix missing.toml", "missing.toml"),
        ("--rate 5 --autoscale max=2", "target"),
        ("--rate 5 --replicas 0", "replicas"),
    ],
)
def test_what_does_not_go_together_is_one_line(capsys, words, told):
    assert main(["simulate", LINE, "--profile", PROFILE, *words.split()]) == 1
    err = capsys.readouterr().err.strip()
    assert told in err
    assert len(err.splitlines()) == 1
