"""How long a step takes: GPU time, blocking launch, and the other CPU work of the engine loop.

GPU time of a step with T tokens padded to T', R requests of which S sample, D decodes with contexts c_i:

    g = gpu_scale * (   ((x^p + y^p)^(1/p)                          linear layers, x compute, y weight bytes
                      + the same for lm_head over S rows
                      + activation_factor * activation bytes * T' / bandwidth
                      + layers * per_layer_s + per_request_s * R
                      + 4 * heads * head_dim * layers * A / (peak * attention_efficiency)     A = sum n * (ctx + n/2)
                      + KV bytes of the decodes / (bandwidth * kv efficiency)                 lower beside prefills
                      + imbalance_factor * 8 * head_dim * 4 B * layers * (max c - mean c) / bandwidth )
    x = 2 * weights * T' / (peak * compute efficiency)      a second efficiency applies to tokens above a threshold
    y = weight bytes / (bandwidth * bandwidth efficiency)

Contexts are KV tokens that exist before the step.  The imbalance term does not scale with KV heads.  Tensor
parallelism: weights, heads and vocabulary are divided by the ranks, plus two all-reduces a layer; quantised weights:
their bytes, computed at 16 bit.  Both are first answers, never measured.  Sources: docs/calibration.md.

Two paths, equal to rounding: scalars (called each simulated step) and arrays (stretches of pure decode, calibration).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.engine_config import EngineConfig
from simulator.gpu_spec import GpuSpec
from simulator.model_spec import BYTES_PER_WEIGHT, ModelSpec
from simulator.profile import FrontEnd, ModeLaunch, ModeNoise, Profile

Floats = NDArray[np.float64]

NONE, PIECEWISE, FULL = 0, 1, 2

#: KV heads the attention kernel splits work over, whatever the model has (model form, imbalance term).
_IMBALANCE_BYTES = 8 * 4.0


def weight_bytes(model: ModelSpec, engine: EngineConfig) -> float:
    """Bytes per weight of the linear layers: the quantisation's, else the dtype's."""
    quantization = engine.quantization or model.quantization
    kind = quantization or (engine.dtype if engine.dtype != "auto" else model.dtype)
    return BYTES_PER_WEIGHT.get(_DTYPES.get(kind, kind), 2.0)


_DTYPES = {"bfloat16": "bf16", "half": "fp16", "float16": "fp16", "float": "fp32", "float32": "fp32"}


def kv_bytes_per_value(engine: EngineConfig) -> float:
    """Bytes of one value in the KV cache."""
    return 1.0 if engine.kv_cache_dtype.startswith("fp8") else 2.0


class StepCost:
    """Times of steps of one engine: a profile applied to a model, a GPU and settings."""

    def __init__(self, profile: Profile, model: ModelSpec, gpu: GpuSpec, engine: EngineConfig) -> None:
        self.profile = profile
        self.front_end: FrontEnd = profile.front_end
        self.gpu_start_s = profile.launch.start_s
        self._physics(profile, model, gpu, engine)
        self._cpu(profile, model)
        self._linear: dict[int, float] = {}
        self._head: dict[int, float] = {}

    def _physics(self, profile: Profile, model: ModelSpec, gpu: GpuSpec, engine: EngineConfig) -> None:
        """Everything that does not depend on the step, in seconds per unit, gpu_scale included."""
        c, scale, ranks = profile.gpu_time, profile.host.gpu_scale, engine.tensor_parallel_size
        peak, bandwidth, layers = gpu.bf16_flops_per_s, gpu.memory_bandwidth_bytes_per_s, model.num_hidden_layers
        per_weight = weight_bytes(model, engine)
        weights = model.linear_weights / ranks
        self._p = c.roofline_exponent
        self._per_token = scale * 2 * weights / (peak * c.compute_efficiency)
        self._per_large_token = scale * 2 * weights / (peak * c.large_step_compute_efficiency)
        self._large = c.large_step_tokens
        self._weights_read = scale * weights * per_weight / (bandwidth * c.bandwidth_efficiency)
        head = model.embedding_weights / ranks
        self._head_per_row = scale * 2 * head / (peak * c.compute_efficiency)
        self._head_read = scale * head * 2.0 / (bandwidth * c.bandwidth_efficiency)
        query, key = model.num_attention_heads * model.head_dim, model.num_key_value_heads * model.head_dim
        values = 4 * model.hidden_size + (2 * query + 2 * key + 3 * model.intermediate_size) / ranks
        self._activation = scale * c.activation_factor * layers * 2.0 * values / bandwidth
        self._constant = scale * layers * c.per_layer_s
        if ranks > 1:
            transfer = profile.transfer
            self._constant += 2 * layers * transfer.allreduce_latency_s
            self._activation += 2 * layers * 2.0 * model.hidden_size / transfer.allreduce_bytes_per_s
        self._per_request = scale * c.per_request_s
        self._attention = scale * 4 * query / ranks * layers / (peak * c.attention_efficiency)
        kv = scale * layers * 2 * max(key / ranks, model.head_dim) * kv_bytes_per_value(engine) / bandwidth
        self._kv = (
            kv / c.kv_bandwidth_efficiency_mixed,
            kv / c.kv_bandwidth_efficiency_mixed,
            kv / c.kv_bandwidth_efficiency,
        )
        self._imbalance = scale * c.imbalance_factor * _IMBALANCE_BYTES * model.head_dim * layers / bandwidth

    def _cpu(self, profile: Profile, model: ModelSpec) -> None:
        """Launch, tail, noise by mode; schedule and update."""
        launch, scale, layers = profile.launch, profile.host.launch_scale, model.num_hidden_layers
        modes: tuple[ModeLaunch, ...] = (launch.none, launch.piecewise, launch.full)
        self._launch_constant = tuple(scale * (m.constant_s + m.per_layer_s * layers) for m in modes)
        self._launch_per_request = tuple(scale * m.per_request_s for m in modes)
        self._launch_idle = tuple(m.idle_factor for m in modes)
        self._tail = tuple(m.tail_s for m in modes)
        self._noise: tuple[ModeNoise, ...] = (profile.noise.none, profile.noise.piecewise, profile.noise.full)
        cpu = profile.cpu
        self._schedule = (cpu.schedule_s, cpu.schedule_per_request_s)
        self._update = (cpu.update_s, cpu.update_per_request_s)

    # GPU time ---------------------------------------------------------------------------------------------------------

    def _linear_s(self, padded_tokens: float) -> float:
        """Linear layers and everything else that depends on the padded tokens alone."""
        found = self._linear.get(int(padded_tokens))
        if found is None:
            large = max(0.0, padded_tokens - self._large)
            x = self._per_token * (padded_tokens - large) + self._per_large_token * large
            found = (x**self._p + self._weights_read**self._p) ** (1 / self._p)
            found += self._activation * padded_tokens + self._constant
            self._linear[int(padded_tokens)] = found
        return found

    def _head_s(self, sampled: int) -> float:
        """lm_head over the sampled rows; nothing if there are none."""
        found = self._head.get(sampled)
        if found is None:
            x = self._head_per_row * sampled
            found = (x**self._p + self._head_read**self._p) ** (1 / self._p) if sampled else 0.0
            self._head[sampled] = found
        return found

    def gpu_s(
        self,
        mode: int,
        padded_tokens: int,
        num_tokens: int,
        num_reqs: int,
        sampled: int,
        decode_reqs: int,
        decode_context_sum: float,
        decode_context_max: float,
        prefill_attention: float,
        prefill_tokens: int,
    ) -> float:
        """GPU time of one step in seconds."""
        total = self._linear_s(padded_tokens) + self._head_s(sampled) + self._per_request * num_reqs
        if decode_reqs:
            total += self._kv[mode] * decode_context_sum
            total += self._imbalance * (decode_context_max - decode_context_sum / decode_reqs)
        if prefill_tokens:
            total += self._attention * prefill_attention
        return total

    def gpu_s_array(
        self,
        mode: ArrayLike,
        padded_tokens: ArrayLike,
        num_tokens: ArrayLike,
        num_reqs: ArrayLike,
        sampled: ArrayLike,
        decode_reqs: ArrayLike,
        decode_context_sum: ArrayLike,
        decode_context_max: ArrayLike,
        prefill_attention: ArrayLike,
        prefill_tokens: ArrayLike,
    ) -> Floats:
        """GPU times of many steps in seconds; equal to `gpu_s` to rounding."""
        padded, rows = np.asarray(padded_tokens, float), np.asarray(sampled, float)
        large = np.maximum(0.0, padded - self._large)
        x = self._per_token * (padded - large) + self._per_large_token * large
        p = self._p
        total = (x**p + self._weights_read**p) ** (1 / p) + self._activation * padded + self._constant
        head = ((self._head_per_row * rows) ** p + self._head_read**p) ** (1 / p)
        total = total + np.where(rows > 0, head, 0.0) + self._per_request * np.asarray(num_reqs, float)
        decodes, contexts = np.asarray(decode_reqs, float), np.asarray(decode_context_sum, float)
        spread = np.asarray(decode_context_max, float) - contexts / np.maximum(decodes, 1.0)
        total = total + np.asarray(self._kv)[np.asarray(mode)] * contexts
        total = total + np.where(decodes > 0, self._imbalance * spread, 0.0)
        return np.asarray(
            total
            + np.where(np.asarray(prefill_tokens) > 0, self._attention * np.asarray(prefill_attention, float), 0.0)
        )

    # CPU --------------------------------------------------------------------------------------------------------------

    def launch_s(self, mode: int, num_tokens: int, num_reqs: int, idle: bool) -> float:
        """CPU time for which launching a step blocks the engine loop."""
        base = self._launch_constant[mode] + self._launch_per_request[mode] * num_reqs
        return base * self._launch_idle[mode] if idle else base

    def tail_s(self, mode: int) -> float:
        """From the end of the launch to the earliest end of the step on the GPU."""
        return self._tail[mode]

    def schedule_s(self, num_reqs: int) -> float:
        """CPU time of schedule()."""
        return self._schedule[0] + self._schedule[1] * num_reqs

    def update_s(self, num_reqs: int) -> float:
        """CPU time of update_from_output()."""
        return self._update[0] + self._update[1] * num_reqs

    # noise and range --------------------------------------------------------------------------------------------------

    def gpu_noise(self, mode: int, normal: float) -> float:
        """Factor on the GPU time of one step, mean 1; *normal* is a standard normal draw."""
        sigma = self._noise[mode].gpu_sigma
        return math.exp(sigma * (normal - 0.5 * sigma))

    def launch_noise(self, mode: int, uniform: float) -> float:
        """Factor on the launch of one step; *uniform* is a draw from [0, 1)."""
        noise = self._noise[mode]
        return noise.launch_outlier_factor if uniform < noise.launch_outlier_probability else 1.0

    def gpu_noise_array(self, mode: int, normals: Floats) -> Floats:
        """The same as `gpu_noise` for many steps."""
        sigma = self._noise[mode].gpu_sigma
        return np.exp(sigma * (normals - 0.5 * sigma))

    def launch_noise_array(self, mode: int, uniforms: Floats) -> Floats:
        """The same as `launch_noise` for many steps."""
        noise = self._noise[mode]
        return np.where(uniforms < noise.launch_outlier_probability, noise.launch_outlier_factor, 1.0)

    def leaving_hull(self, tokens: int, decode_reqs: int, context: int) -> tuple[str, ...]:
        """Names of the dimensions whose maxima lie beyond what was seen while calibrating."""
        hull, found = self.profile.hull, []
        if tokens > hull.tokens:
            found.append("tokens")
        if decode_reqs > hull.decode_reqs:
            found.append("decode_reqs")
        if context > hull.context:
            found.append("context")
        return tuple(found)
