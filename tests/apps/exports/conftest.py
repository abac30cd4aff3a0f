import pytest

from simulator.result import Result
from simulator.scenario import Scenario
from simulator.simulate import simulate
from simulator.workload import RateWorkload

SERVER = "vllm serve meta-llama/Llama-3.1-8B --max-model-len 4096"


@pytest.fixture(scope="session")
def result() -> Result:
    """A run with queueing, prefill chunks and preemptions."""
    scenario = Scenario.from_command(
        f"{SERVER} --num-gpu-blocks-override 500 --max-num-batched-tokens 2048",
        profile="h200-llama-3.1-8b",
        workload=RateWorkload(rate=20, num_prompts=60, prompt_tokens="lognormal:400:1:8:3000", output_tokens="90"),
        seed=3,
    )
    found = simulate(scenario)
    assert found.summary()["preemptions"] > 0
    return found
