import json
import math

import pytest

from simulator.errors import InputError
from simulator.request_list import Row
from simulator.scenario import Scenario
from simulator.workload import ConcurrencyWorkload, RateWorkload, RequestsWorkload, TraceWorkload
from tests.simulator.scenario_world import small_scenario


@pytest.mark.parametrize(
    "workload",
    [
        RateWorkload(rate=math.inf),
        ConcurrencyWorkload(concurrency=4),
        RequestsWorkload(rows=(Row(arrival_s=0.1, prompt_tokens=5, output_tokens=6),)),
        TraceWorkload(name="azure-code-2023"),
    ],
    ids=lambda workload: workload.kind,
)
def test_json_and_back_is_the_same_scenario(workload):
    scenario = small_scenario(workload=workload, seed=3, over_length="drop", notes=("so",))
    assert Scenario.from_json(scenario.to_json()) == scenario


def test_a_newer_schema_is_refused_in_one_line():
    data = json.loads(small_scenario().to_json()) | {"schema_version": 2, "new_field": 1}
    with pytest.raises(InputError, match=r"^scenario: schema_version 2 is newer than 1; update servecast$"):
        Scenario.from_json(json.dumps(data))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": -1}, "seed"),
        ({"colour": "red"}, "colour: Extra inputs"),
        ({"workload": {"kind": "rate", "rate": "nan"}}, "rate"),
        ({"workload": {"kind": "tide"}}, "workload: .*'tide'"),
        ({"engine": {}}, "engine.model: Field required"),
        ({"over_length": "cut"}, "over_length"),
    ],
)
def test_a_wrong_field_is_named_in_one_line(change, message):
    data = json.loads(small_scenario().to_json()) | change
    with pytest.raises(InputError, match=message) as caught:
        Scenario.from_json(json.dumps(data), "s.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_what_is_not_a_json_object_is_refused(text):
    with pytest.raises(InputError, match=r"^s\.json: "):
        Scenario.from_json(text, "s.json")


SERVE = "vllm serve meta-llama/Llama-3.1-8B --max-model-len 16384"


def test_a_command_line_becomes_a_scenario_on_the_profiles_gpu():
    scenario = Scenario.from_command(SERVE, profile="h200-llama-3.1-8b", workload=RateWorkload(rate=1), seed=4)
    assert scenario.gpu.name == "H200"
    assert scenario.model.num_hidden_layers == 32
    assert (scenario.engine.max_model_len, scenario.engine.max_num_batched_tokens) == (16384, 8192)
    assert (scenario.profile, scenario.seed) == ("h200-llama-3.1-8b", 4)
    assert Scenario.from_json(scenario.to_json()) == scenario


def test_settings_change_the_command():
    scenario = Scenario.from_command(
        SERVE, profile="h200-llama-3.1-8b", workload=RateWorkload(rate=1), settings={"max_num_seqs": 8}
    )
    assert (scenario.engine.max_num_seqs, scenario.engine.max_model_len) == (8, 16384)


def test_the_gpu_and_the_version_can_be_named():
    scenario = Scenario.from_command(SERVE, gpu="A100-80", vllm_version="0.20.0", workload=RateWorkload(rate=1))
    assert scenario.profile is None
    assert scenario.engine.vllm_version == "0.20.0"
    assert scenario.engine.max_num_seqs == 256


def test_a_command_line_alone_does_not_say_on_which_gpu():
    with pytest.raises(InputError, match="no GPU: give --profile NAME"):
        Scenario.from_command(SERVE, workload=RateWorkload(rate=1))


@pytest.mark.parametrize("name", ["s.toml", "s.yaml", "s.yml", "s.json"])
@pytest.mark.parametrize(
    "workload",
    [
        RateWorkload(rate=float("inf"), burstiness=0.5),
        RateWorkload(rate=2.5, max_concurrency=8, prompt_tokens="lognormal:300:1.0:8:4000"),
    ],
)
def test_a_scenario_file_round_trips(name, workload):
    scenario = Scenario.from_command(SERVE, profile="h200-llama-3.1-8b", workload=workload, seed=3)
    text = scenario.to_text(name)
    again = Scenario.from_text(text, name)
    assert again == scenario
    assert again.to_text(name) == text


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("s.toml", "x", r"^s\.toml: is not TOML"),
        ("s.yaml", "a: [", r"^s\.yaml: is not YAML"),
        ("s.yaml", "- 1", r"^s\.yaml: must be a JSON object \(or a table\), got list"),
        ("s.toml", "schema_version = 99", r"^s\.toml: schema_version 99 is newer"),
    ],
)
def test_a_scenario_file_that_cannot_be_read_is_one_line(name, text, message):
    with pytest.raises(InputError, match=message):
        Scenario.from_text(text, name)
