from pathlib import Path

import pytest

from apps.workload_options import workload
from simulator.errors import InputError


def test_a_rate_is_an_open_loop_with_the_options_of_the_bench():
    made = workload(rate=12.0, burstiness=0.5, max_concurrency=9, prompt_tokens="uniform:1:5", num_prompts=7)
    assert made.model_dump() == {
        "kind": "rate", "rate": 12.0, "burstiness": 0.5, "max_concurrency": 9, "num_prompts": 7,
        "prompt_tokens": "uniform:1:5", "output_tokens": "128", "rate_shape": None,
    }  # fmt: skip


def test_concurrency_alone_is_a_closed_loop():
    made = workload(concurrency=32, output_tokens="9")
    assert (made.kind, made.concurrency, made.output_tokens, made.num_prompts) == ("concurrency", 32, "9", 1000)


def test_concurrency_with_a_list_is_a_closed_loop_over_it():
    made = workload(concurrency=32, requests=Path("x.csv"), num_prompts=3)
    assert (made.kind, made.path, made.max_concurrency, made.limit) == ("requests", "x.csv", 32, 3)
    assert workload(requests=Path("x.csv")).max_concurrency is None


def test_a_trace_may_be_cut_and_sped_up():
    made = workload(trace="azure-conv-2023", num_prompts=10, rate_scale=2.0)
    assert (made.kind, made.name, made.limit, made.rate_scale) == ("trace", "azure-conv-2023", 10, 2.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "no workload: give one of --rate R"),
        ({"rate": 1.0, "trace": "azure-conv-2023"}, "--rate and --trace both describe the workload"),
        ({"rate": 1.0, "concurrency": 4}, r"--rate and --concurrency .*--max-concurrency limits an open loop"),
        ({"requests": Path("x"), "trace": "t"}, "--requests and --trace"),
        ({"concurrency": 4, "burstiness": 1.0}, "--burstiness does not go with --concurrency; it belongs to --rate"),
        ({"trace": "azure-conv-2023", "prompt_tokens": "5"}, "--prompt-tokens does not go with --trace"),
        ({"rate": float("nan")}, "rate: .*got nan"),
        ({"rate": 1.0, "prompt_tokens": "-5"}, "length '-5'"),
        ({"rate": 1.0, "num_prompts": -5}, "num_prompts: .*got -5"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line(options, message):
    with pytest.raises(InputError, match=message):
        workload(**options)
