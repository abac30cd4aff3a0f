"""SLOs: what is read, what is refused, what counts as met."""

import math

import numpy as np
import pytest

from apps.planning.slo import Slo
from simulator.errors import InputError
from simulator.metrics import Latencies, Sample
from simulator.mixes import MixWorkload, TrafficClass
from simulator.scenario import Scenario
from simulator.workload import RateWorkload


def seen(ttft, tpot=0.01, tokens=11) -> Latencies:
    ttft = np.asarray(ttft, dtype=float)
    tokens = np.full(len(ttft), tokens)
    return Latencies(
        ttft_s=ttft,
        e2el_s=ttft + tpot * (tokens - 1),
        itl_s=Sample(np.array([tpot]), np.array([int((tokens - 1).sum())])),
        prompt_tokens=tokens,
        output_tokens=tokens,
        duration_s=10.0,
    )


def test_several_targets_are_read_in_either_order_with_their_units():
    slo = Slo.parse("ttft_p99=500ms, p95_tpot=40000us,e2el_mean=10s,goodput=95%:ttft=0.5s:e2e=3s,itl_median_ms=20")
    assert str(slo) == ("ttft_p99=500ms,tpot_p95=40ms,e2el_mean=10s,goodput=95%:ttft=500ms:e2el=3s,itl_p50=20ms")
    assert Slo.parse(str(slo)) == slo
    assert Slo.model_validate_json(slo.model_dump_json()) == slo


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("ttft_p99=500", "positive time with its unit"),
        ("ttft_p99=-1ms", "positive time with its unit"),
        ("ttft_p99=0s", "positive time with its unit"),
        ("ttft=500ms", "is no target"),
        ("ttft_p100=5ms", "is no target"),
        ("latency_p99=5ms", "is no target"),
        ("ttft_p99", "has no limit"),
        ("ttft_p99=1s,p99_ttft=2s", "given twice"),
        ("goodput=95%", "needs a share and limits"),
        ("goodput=0%:ttft=1s", "must lie in"),
        ("goodput=101%:ttft=1s", "must lie in"),
        ("goodput=95%:itl=1s", "not 'itl'"),
        ("goodput=95%:ttft=1s:ttft=2s", "limits one latency twice"),
    ],
)
def test_what_cannot_be_read_is_one_line_that_names_it(text, message):
    with pytest.raises(InputError, match=message) as caught:
        Slo.parse(text)
    assert "\n" not in str(caught.value)


def test_values_are_those_of_the_bench_and_met_means_at_most_the_limit():
    slo = Slo.parse("ttft_p50=2s,ttft_mean=2s,tpot_p99=10ms,goodput=50%:ttft=2s")
    values = slo.values(seen([1, 2, 3]))
    assert values == pytest.approx((2.0, 2.0, 0.01, 2 / 3))
    assert all(score <= 1e-12 for score in slo.scores(values, 3))
    assert slo.scores(values, 3)[0] == 0.0


def test_a_failed_request_is_late_in_percentiles_breaks_a_mean_and_is_not_good():
    slo = Slo.parse("ttft_p50=1s,ttft_p99=1s,itl_p50=1s,itl_p99=1s,e2el_mean=10s,goodput=100%:ttft=1s")
    values = slo.values(seen([0.5] * 9), failed=1)
    assert values[0] == 0.5
    assert math.isinf(values[1])
    assert values[2] == 0.01
    assert math.isinf(values[3])
    assert math.isinf(values[4])
    assert values[5] == 0.9
    scores = slo.scores(values, 10)
    assert [score <= 0 for score in scores] == [True, False, True, False, False, False]


def test_nothing_answered_meets_nothing_but_one_token_has_no_tpot_to_miss():
    slo = Slo.parse("ttft_p50=1s,tpot_p50=1ms,goodput=90%:ttft=1s:tpot=1ms")
    assert max(slo.scores(slo.values(seen([]), failed=5), 5)) > 0
    single = slo.values(seen([0.1], tokens=1))
    assert max(slo.scores(single, 1)) <= 0


def test_goodput_of_100_percent_allows_no_bad_request_and_a_share_below_is_a_miss():
    slo = Slo.parse("goodput=100%:ttft=1s")
    assert slo.scores(slo.values(seen([1.0] * 1000)), 1000)[0] <= 0
    assert slo.scores(slo.values(seen([1.0] * 999 + [1.1])), 1000)[0] > 0
    assert Slo.parse("goodput=95%:ttft=1s").scores((0.95,), 100)[0] == 0.0


def test_classes_of_a_mix_have_targets_of_their_own():
    classes = (TrafficClass(name="chat", slo="ttft_p50=1s"), TrafficClass(name="rag", slo="goodput=50%:ttft=3s"))
    mix = Scenario.from_command(
        "vllm serve meta-llama/Llama-3.1-8B", gpu="H200", workload=MixWorkload(rate=1, classes=classes)
    )
    slo = Slo.of_mix(mix, Slo.parse("e2el_p99=9s,rag/ttft_p50=2s"))
    assert str(slo) == "e2el_p99=9s,rag/ttft_p50=2s,chat/ttft_p50=1s,rag/goodput=50%:ttft=3s"
    assert Slo.parse(str(slo)) == slo
    values = slo.values(seen([1, 5]), 0, {"chat": (seen([1]), 0), "rag": (seen([5]), 1)})
    assert values[1:] == pytest.approx((math.inf, 1.0, 0.0))
    with pytest.raises(InputError, match="classes are chat, rag"):
        Slo.of_mix(mix, Slo.parse("video/ttft_p50=2s"))
    with pytest.raises(InputError, match="there is no SLO"):
        Slo.of_mix(mix.model_copy(update={"workload": RateWorkload(rate=1)}))
