import pytest

from simulator import catalogue
from simulator.engine_config import EngineConfig
from simulator.roofline import default_profile, multiprocessors
from simulator.step_cost import FULL, StepCost

ENGINE = EngineConfig(model="m", max_model_len=4096, max_num_batched_tokens=2048, max_num_seqs=256)
MODEL = catalogue.model("meta-llama/Llama-3.1-8B")


@pytest.mark.parametrize("name", catalogue.gpu_names())
def test_every_gpu_has_a_marked_answer(name):
    gpu = catalogue.gpu(name)
    profile = default_profile(gpu)
    assert not profile.provenance.calibrated
    assert not profile.residuals
    step_s = StepCost(profile, MODEL, gpu, ENGINE).gpu_s(FULL, 1, 1, 1, 1, 1, 500, 500, 0.0, 0)
    read_s = 2 * MODEL.linear_weights / gpu.memory_bandwidth_bytes_per_s
    assert read_s < step_s < 2 * read_s + 5e-3


def test_the_longest_name_that_fits_tells_the_multiprocessors():
    assert multiprocessors("H200") == 132
    assert multiprocessors("A100-80-PCIe") == 108
    assert multiprocessors("unknown", 99) == 99
