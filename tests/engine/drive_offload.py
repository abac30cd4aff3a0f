"""Drive the real V1 scheduler with the real OffloadingConnector, without a model and without copies.

``python tests/engine/drive_offload.py < scenarios.json`` prints a list of events for each scenario.  Needs what
`drive_v1` needs.  Copies are a stand-in: ordered with a step (stores: with the next one), done *latency* steps later.
``tests.engine.offload_scenarios`` makes scenarios, and drives our own scheduler through the same loop.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import drive_v1
import torch
import vllm.config
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata
from vllm.v1.core.kv_cache_utils import get_request_block_hasher
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, KVCacheTensor
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.structured_output import StructuredOutputManager

from tests.engine.offload_scenarios import Loop, prompt_tokens

BLOCK_BYTES = 32  # 4 tokens, a key and a value of one float32


class Engines(drive_v1.Engines):
    """Schedulers with a CPU tier."""

    def scheduler(self, config: dict[str, Any]) -> Scheduler:
        plain = super().scheduler(config)
        whole = plain.vllm_config
        whole.kv_transfer_config = vllm.config.KVTransferConfig(
            kv_connector="OffloadingConnector",
            kv_role="kv_both",
            kv_connector_extra_config={
                "cpu_bytes_to_use": config["cpu"] * BLOCK_BYTES * config["factor"] or 1,
                "block_size": 4 * config["factor"],
            },
        )
        spec = FullAttentionSpec(block_size=4, num_kv_heads=1, head_size=1, dtype=torch.float32)
        tensors = [KVCacheTensor(size=BLOCK_BYTES * config["blocks"], shared_by=["layer"])]
        scheduler = (AsyncScheduler if config["is_async"] else Scheduler)(
            vllm_config=whole,
            kv_cache_config=KVCacheConfig(
                num_blocks=config["blocks"], kv_cache_tensors=tensors,
                kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
            ),
            log_stats=True, structured_output_manager=StructuredOutputManager(whole), block_size=4, hash_block_size=4,
        )  # fmt: skip
        drive_v1.note_samplers(scheduler)
        return scheduler


class RealSide:
    """What `Loop` talks to."""

    def __init__(self, engines: Engines, scenario: dict[str, Any]) -> None:
        self.scheduler = engines.scheduler(scenario["config"])
        self.tokens = iter(range(drive_v1.FIRST_OUTPUT_TOKEN, 1 << 60))
        self.hasher = get_request_block_hasher(4, drive_v1.sha256)
        self.owner: dict[int, str] = {}

    def add(self, row: int, entry: dict[str, Any]) -> None:
        full = {"id": str(row), "prompt": prompt_tokens(row, entry), **entry}
        self.scheduler.add_request(drive_v1.Drive._request(SimpleNamespace(hasher=self.hasher), full))

    def has_requests(self) -> bool:
        return bool(self.scheduler.has_unfinished_requests() or self.scheduler.connector.has_pending_push_work())

    def schedule(self) -> Any:
        before = list(self.scheduler.running)
        plan = self.scheduler.schedule()
        plan.gone = [r for r in before if r not in self.scheduler.running]
        meta = plan.kv_connector_metadata
        for job, entry in (*meta.load_jobs.items(), *meta.store_jobs.items()):
            self.owner[job] = entry.req_id
            self._put_in_order(job, entry.req_id)
        return plan

    def _put_in_order(self, job: int, name: str) -> None:
        """The real one keeps a copy's blocks in a set, so which of them is the oldest is chance; here: the first."""
        connector = self.scheduler.connector.connector_scheduler
        status, chain = connector._jobs[job], connector._req_status[name].group_states[0].offload_keys
        status.keys = [key for key in chain if key in status.keys]

    def num_tokens(self, plan: Any) -> int:
        return int(plan.total_num_scheduled_tokens)

    def jobs(self, plan: Any) -> tuple[list[int], list[int], list[int]]:
        meta = plan.kv_connector_metadata
        return list(meta.load_jobs), list(meta.store_jobs), list(meta.jobs_to_flush)

    def describe(self, plan: Any) -> dict[str, Any]:
        scheduler, (loads, stores, flush) = self.scheduler, self.jobs(plan)
        return {
            "tokens": {str(name): int(n) for name, n in plan.num_scheduled_tokens.items()},
            "preempted": sorted(r.request_id for r in plan.gone),
            "running": [r.request_id for r in scheduler.running],
            "waiting": len(scheduler.waiting) + len(scheduler.skipped_waiting),
            "free": scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
            "loads": sorted(self.owner[job] for job in loads),
            "stores": sorted(self.owner[job] for job in stores),
            "flush": sorted(self.owner[job] for job in flush),
        }

    def update(self, plan: Any, done: list[int]) -> None:
        names = list(plan.num_scheduled_tokens)
        sampled = [[next(self.tokens)] if name in plan.samplers else [] for name in names]
        meta = OffloadingWorkerMetadata()
        for job in done:
            meta.mark_completed(job)
        arrived = {
            self.owner[job] for job in done if not self.scheduler.connector.connector_scheduler._jobs[job].is_store
        }
        output = ModelRunnerOutput(
            req_ids=names, req_id_to_index={name: i for i, name in enumerate(names)}, sampled_token_ids=sampled,
            logprobs=None, prompt_logprobs_dict={}, pooler_output=[],
            kv_connector_output=KVConnectorOutput(
                finished_sending=set(), finished_recving=arrived, kv_connector_worker_meta=meta
            ),
        )  # fmt: skip
        self.scheduler.update_from_output(plan, output)


def main() -> None:
    """Answer standard input."""
    scenarios = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as folder:
        engines = Engines(Path(folder))
        answers = [Loop(RealSide(engines, scenario), scenario).run() for scenario in scenarios]
    sys.__stdout__.write("\nANSWER " + json.dumps(answers) + "\n")


if __name__ == "__main__":
    main()
