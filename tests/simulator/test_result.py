import json

import numpy as np
import pytest

from simulator.records import Records
from simulator.request_table import RequestTable
from simulator.result import Provenance, Result
from tests.simulator.records_world import small_world
from tests.simulator.scenario_world import small_scenario


def result_of(records: Records, **more) -> Result:
    n = records.num_requests
    table = RequestTable.build(
        prompt_tokens=np.array(records.prompt_tokens), output_tokens=np.full(n, 3), arrival_s=np.linspace(0, 0.5, n)
    )
    provenance = Provenance(profile="p", calibrated=True, gpu="H200", model="m", vllm_version="0.24.0", seed=0)
    return Result(scenario=small_scenario(), table=table, records=records, provenance=provenance, **more)


def test_the_summary_has_the_promised_keys():
    summary = result_of(small_world(), warnings=("careful", "careful"), dropped=4).summary()
    for name in ("ttft", "tpot", "itl", "e2el"):
        for kind in ("mean", "median", "std", "p50", "p90", "p95", "p99"):
            assert isinstance(summary[f"{kind}_{name}_ms"], float)
    expected = {
        "schema_version": 1, "completed": 2, "failed": 0, "dropped": 4, "duration_s": 5.1, "preemptions": 1,
        "prefix_cache_hit_rate": 0.25, "kv_cache_usage_max": 0.5, "warnings": ["careful"], "intervals": None,
        "output_throughput": 5 / 5.1, "request_throughput": 2 / 5.1,
    }  # fmt: skip
    assert {key: summary[key] for key in expected} == expected
    assert summary["memory"] == {"num_gpu_blocks": 11, "block_size": 16}
    assert summary["provenance"]["profile"] == "p"


def test_what_does_not_exist_is_null_in_json():
    nothing = Records.for_requests(np.array([5]), num_gpu_blocks=2, block_size=16)
    data = json.loads(result_of(nothing).to_json())
    assert data["mean_tpot_ms"] is None
    assert data["request_throughput"] is None
    assert data["failed"] == data["unfinished"] == 1
    assert "NaN" not in result_of(nothing).to_json()


def test_tables_hold_one_row_per_request_step_and_second():
    result = result_of(small_world())
    first = result.requests.iloc[0]
    assert first["status"] == "finished"
    assert first["tpot_s"] == pytest.approx(0.95)
    assert result.requests["queue_s"].tolist() == pytest.approx([0, 0.4])
    assert result.requests["preemptions"].tolist() == [0, 1]
    assert result.steps["plan_s"].tolist() == [0, 1, 2, 4]
    assert result.timeline["vllm:generation_tokens"].tolist() == [1, 3, 4, 4, 5, 5]
    assert len(result.timeline_every(3)) == 2


def test_a_step_in_flight_at_the_end_is_an_incomplete_row():
    records = small_world()
    records.step_plan_s.append(6.0)
    assert result_of(records).steps["emit_s"].isna().tolist() == [False] * 4 + [True]


def test_goodput_takes_limits_in_milliseconds():
    assert result_of(small_world()).goodput(ttft=1300) == 1 / 5.1
