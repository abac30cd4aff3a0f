"""Which engine a version runs: V0 up to 0.7, V1 since 0.8 with a fall-back to V0 up to 0.10, V1 alone since 0.11.

Source: ``EngineArgs._is_v1_supported_oracle`` read in 0.8.5, 0.9.2 and 0.10.2; ``VLLM_USE_V1`` decides where it may.
"""

from __future__ import annotations

from typing import Literal

from simulator.asked import Asked
from simulator.errors import ConfigError

_V1_LACKS_LESS_SINCE = (0, 9, 2)


def engine_generation(asked: Asked) -> Literal["V0", "V1"]:
    """Return the engine that runs; a fall-back is noted, V1 by force with what it lacks raises `ConfigError`."""
    known, wish = asked.known, asked.env.get("VLLM_USE_V1")
    if not known.v1_available:
        return "V0"
    if not known.v0_available:
        if wish == "0":
            asked.note(f"VLLM_USE_V1=0 has no effect: vLLM {asked.version} has V1 only (V0 ended with 0.10)")
        return "V1"
    if wish == "0" or (known.engine == "V0" and wish != "1"):
        return "V0"
    lacking = lacking_in_v1(asked)
    if not lacking:
        return "V1"
    if wish == "1":
        raise ConfigError(
            f"VLLM_USE_V1=1, but V1 of vLLM {asked.version} does not support {lacking[0]}; leave one of them out"
        )
    asked.note(f"vLLM {asked.version} falls back to its V0 engine because of {', '.join(lacking)}")
    return "V0"


def lacking_in_v1(asked: Asked) -> list[str]:
    """Return the settings that V1 of 0.8 to 0.10 does not support."""
    reasons = {
        "--preemption-mode": asked.get("preemption_mode") is not None,
        "--num-scheduler-steps above 1": asked.get("num_scheduler_steps", 1) > 1,
        "--scheduler-delay-factor": asked.get("scheduler_delay_factor", 0.0) > 0,
        "--max-num-partial-prefills above 1": asked.get("max_num_partial_prefills", 1) != 1,
        "--scheduling-policy priority": asked.get("scheduling_policy") == "priority"
        and not asked.known.v1_priority_policy,
        "prompt adapters": bool(asked.get("enable_prompt_adapter")),
    }
    if asked.known.version < _V1_LACKS_LESS_SINCE:
        kv_dtype, parallel = asked.get("kv_cache_dtype", "auto"), asked.get("pipeline_parallel_size", 1)
        reasons |= {
            f"compute capability {asked.gpu.compute_capability} (below 8.0)": asked.gpu.compute_capability < 8.0,
            f"--kv-cache-dtype {kv_dtype}": kv_dtype != "auto" and not 9.0 <= asked.gpu.compute_capability < 10.0,
            "--dtype float32": asked.get("dtype") in ("float", "float32"),
            "gguf weights": asked.get("quantization") == "gguf",
            "speculative decoding": asked.speculative_method is not None,
            "OTLP tracing": bool(asked.get("otlp_traces_endpoint")),
            "a pooling model": asked.is_pooling,
            "pipeline parallelism without ray": parallel > 1 and asked.get("distributed_executor_backend") != "ray",
        }
    return [reason for reason, holds in reasons.items() if holds]
