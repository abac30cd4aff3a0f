"""The exposition, read back by Prometheus' own parser."""

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from apps.exports.prometheus import prometheus_text, token_buckets


def samples(text):
    return {
        (sample.name, sample.labels.get("le")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_every_line_is_read_and_every_family_has_its_type(result):
    families = list(text_string_to_metric_families(prometheus_text(result)))
    types = {family.name: family.type for family in families}
    assert types["vllm:num_requests_running"] == "gauge"
    assert types["vllm:prompt_tokens"] == "counter"
    assert types["vllm:time_to_first_token_seconds"] == "histogram"
    assert all(
        sample.labels["model_name"] == "meta-llama/Llama-3.1-8B" and sample.labels["engine"] == "0"
        for family in families
        for sample in family.samples
    )


def test_counters_at_the_end_are_the_totals(result):
    found, summary = samples(prometheus_text(result)), result.summary()
    assert found["vllm:prompt_tokens_total", None] == summary["total_input_tokens"]
    assert found["vllm:generation_tokens_total", None] == summary["total_output_tokens"]
    assert found["vllm:request_success_total", None] == summary["completed"]
    assert found["vllm:num_preemptions_total", None] == summary["preemptions"]
    assert found["vllm:num_requests_running", None] == 0


def test_histograms_hold_what_the_clients_saw(result):
    found = samples(prometheus_text(result))
    ttft = result.requests["ttft_s"]
    name = "vllm:time_to_first_token_seconds"
    assert found[f"{name}_sum", None] == pytest.approx(ttft.sum())
    assert found[f"{name}_count", None] == found[f"{name}_bucket", "+Inf"] == len(ttft)
    assert found[f"{name}_bucket", "0.1"] == (ttft <= 0.1).sum()
    assert found["vllm:inter_token_latency_seconds_count", None] == len(result.latencies.itl_s)


def test_a_scrape_in_the_middle_has_counted_half(result):
    at = float(result.requests["last_token_s"].median())
    found = samples(prometheus_text(result, at))
    assert found["vllm:request_success_total", None] == (result.requests["last_token_s"] <= at).sum()
    assert found["vllm:num_requests_running", None] > 0
    assert 0 < found["vllm:kv_cache_usage_perc", None] <= 1
    assert ("vllm:prefix_cache_hits_total", None) not in found


def test_length_buckets_are_vllms():
    assert token_buckets(100) == (1, 2, 5, 10, 20, 50, 100)
    assert np.diff(token_buckets(16384)).min() > 0
