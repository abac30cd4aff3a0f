"""How long a step takes: GPU time, blocking launch, and the other CPU work of the engine loop.

GPU time of a step with T tokens padded to T', R requests of which S sample, D decodes with contexts c_i:

    g = gpu_scale * (  roof(W, T')                                     linear layers, W weights
                     + roof(lm_head, S)
                     + activation_factor * activation bytes * T' / bandwidth
                     + step_s + layers * per_layer_s + per_request_s * R
                     + 4 * heads * head_dim * layers * A / (peak * attention_efficiency)     A = sum n * (ctx + n/2)
                     + KV bytes of the decodes / (bandwidth * kv efficiency)                 lower beside prefills
                     + layers * (how the kernel deals out the decodes' KV: `simulator.decode_attention`) )

    roof(w, t) = (x^p + y^p)^(1/p),  x = 2 w t / (peak * compute_efficiency(t)),  y = w bytes / (bandwidth * efficiency)

compute_efficiency(t) is interpolated in log t between the profile's knots and constant outside.  Activation bytes: one
read and one write of every linear layer's input and output.  Contexts are KV tokens that exist before the step.

Tensor parallelism divides weights, heads and vocabulary by the ranks and adds two all-reduces a layer: a first answer,
never measured.  Quantised weights count with their bytes; fp8 computes at the GPU's fp8 rate where it has one, other
formats at 16 bit.  Evidence and sources: docs/calibration.md.

Two paths, equal to rounding: scalars (called each simulated step) and arrays (calibration, stretches of steps).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator import step_formula
from simulator.decode_attention import decodes_alone_s_array
from simulator.engine_config import EngineConfig
from simulator.gpu_spec import GpuSpec
from simulator.model_spec import BYTES_PER_WEIGHT, ModelSpec
from simulator.profile import FrontEnd, Launch, ModeLaunch, Profile
from simulator.step_formula import ByMode, Costs

Floats = NDArray[np.float64]

NONE, PIECEWISE, FULL = 0, 1, 2

#: Bytes of the block that kv_block_s was measured with: 128 tokens, keys and values of 128 elements, 2 bytes each.
_BLOCK_BYTES = step_formula.KV_BLOCK * 2 * 128 * 2.0

_DTYPES = {"bfloat16": "bf16", "half": "fp16", "float16": "fp16", "float": "fp32", "float32": "fp32"}


def weight_format(model: ModelSpec, engine: EngineConfig) -> str:
    """Return the format of the linear layers' weights: the quantisation's, else the dtype's.

    Under ``auto`` vLLM runs a fp32 checkpoint in 16 bit.
    """
    under_auto = "bf16" if model.dtype == "fp32" else model.dtype
    dtype = engine.dtype if engine.dtype != "auto" else under_auto
    kind = engine.quantization or model.quantization or dtype
    return _DTYPES.get(kind, kind)


def bytes_per_weight(model: ModelSpec, engine: EngineConfig) -> float:
    """Bytes per weight of the linear layers."""
    return BYTES_PER_WEIGHT.get(weight_format(model, engine), 2.0)


def linear_peak(weights: str, gpu: GpuSpec) -> float:
    """Return the peak rate of linear layers in operations/s: fp8 weights multiply fp8 activations where the GPU can."""
    return gpu.fp8_flops_per_s if weights == "fp8" and gpu.fp8_flops_per_s else gpu.bf16_flops_per_s


def _by_mode(launch: Launch, value: Callable[[ModeLaunch], float]) -> ByMode:
    return float(value(launch.none)), float(value(launch.piecewise)), float(value(launch.full))


class StepCost:
    """Times of steps of one engine: a profile applied to a model, a GPU and settings."""

    def __init__(self, profile: Profile, model: ModelSpec, gpu: GpuSpec, engine: EngineConfig) -> None:
        self.profile = profile
        self.front_end: FrontEnd = profile.front_end.slower(profile.host.cpu_scale * profile.host.front_end_scale)
        self.gpu_start_s = profile.host.cpu_scale * profile.launch.start_s
        self._idle_start = profile.host.cpu_scale * (profile.launch.start_s + profile.launch.idle_start_s)
        self._linear_terms(profile, model, gpu, engine)
        self._attention_terms(profile, model, gpu, engine)
        self._cpu_terms(profile, model, engine)
        self._linear: dict[int, float] = {}
        self._head: dict[int, float] = {}
        #: The constants of the scalar formulas, for `simulator.step_formula`.
        self.costs = self._scalars()

    def _scalars(self) -> Costs:
        return Costs(
            per_request_s=self._per_request,
            per_decode_s=self._per_decode,
            kv_alone_s=self._kv_alone,
            kv_mixed_s=self._kv_mixed,
            kv_heads=float(self._kv_heads),
            slots=float(self._slots),
            kv_block_s=self._kv_block,
            kv_split_s=self._kv_split,
            attention_s=self._attention,
            launch_s=self._launch_constant,
            launch_per_request_s=self._launch_per_request,
            launch_idle=self._launch_idle,
            tail_s=self._tail,
            start_s=self.gpu_start_s,
            idle_start_s=self._idle_start,
            schedule_s=self._schedule[0],
            schedule_per_request_s=self._schedule[1],
            update_s=self._update[0],
            update_per_request_s=self._update[1],
        )

    def _linear_terms(self, profile: Profile, model: ModelSpec, gpu: GpuSpec, engine: EngineConfig) -> None:
        """What depends on tokens and requests alone, in seconds per unit, gpu_scale included."""
        c, scale, ranks = profile.gpu_time, profile.host.gpu_scale, engine.tensor_parallel_size
        peak, bandwidth, layers = gpu.bf16_flops_per_s, gpu.memory_bandwidth_bytes_per_s, model.num_hidden_layers
        weights, head = model.linear_weights / ranks, model.embedding_weights / ranks
        self._p = c.roofline_exponent
        self._knots = np.log(np.asarray(c.compute_tokens))
        self._slowness = -np.log(np.asarray(c.compute_efficiency))
        self._per_token = (
            scale * profile.host.compute_scale * 2 * weights / linear_peak(weight_format(model, engine), gpu)
        )
        self._weights_read = scale * weights * bytes_per_weight(model, engine) / (bandwidth * c.bandwidth_efficiency)
        self._head_per_row = scale * 2 * head / peak
        self._head_read = scale * head * 2.0 / (bandwidth * c.bandwidth_efficiency)
        query, key = model.num_attention_heads * model.head_dim, model.num_key_value_heads * model.head_dim
        values = 4 * model.hidden_size + (2 * query + 2 * key + 3 * model.intermediate_size) / ranks
        self._activation = scale * c.activation_factor * layers * 2.0 * values / bandwidth
        self._constant = scale * (c.step_s + layers * c.per_layer_s)
        self._per_request = scale * c.per_request_s
        if ranks > 1:
            transfer = profile.transfer
            self._constant += 2 * layers * transfer.allreduce_latency_s
            self._activation += 2 * layers * 2.0 * model.hidden_size / transfer.allreduce_bytes_per_s

    def _attention_terms(self, profile: Profile, model: ModelSpec, gpu: GpuSpec, engine: EngineConfig) -> None:
        """What depends on contexts, in seconds per unit, gpu_scale included."""
        c, scale, ranks = profile.gpu_time, profile.host.gpu_scale, engine.tensor_parallel_size
        bandwidth, layers, head_dim = gpu.memory_bandwidth_bytes_per_s, model.num_hidden_layers, model.head_dim
        query = model.num_attention_heads * head_dim / ranks
        flops_per_s = gpu.bf16_flops_per_s * c.attention_efficiency / profile.host.compute_scale
        self._attention = scale * 4 * query * layers / flops_per_s
        self._kv_heads = max(model.num_key_value_heads / ranks, 1.0)
        value_bytes = 1.0 if engine.kv_cache_dtype.startswith("fp8") else 2.0
        kv = scale * layers * 2 * self._kv_heads * head_dim * value_bytes / bandwidth
        self._kv_alone = kv / c.kv_bandwidth_efficiency
        self._kv_mixed = kv / c.kv_bandwidth_efficiency_mixed
        self._per_decode = scale * c.per_kv_tile_s * layers * self._kv_heads
        block = step_formula.KV_BLOCK * 2 * head_dim * value_bytes
        self._kv_block = scale * c.kv_block_s * layers * block / _BLOCK_BYTES
        self._kv_split = scale * c.kv_split_s * layers
        self._slots = c.attention_slots

    def _cpu_terms(self, profile: Profile, model: ModelSpec, engine: EngineConfig) -> None:
        """Launch, tail, noise by mode; schedule and update."""
        launch, cpu, layers = profile.launch, profile.cpu.slower(profile.host.cpu_scale), model.num_hidden_layers
        scale = profile.host.launch_scale * profile.host.cpu_scale
        kernels = launch.eager_factor * layers if engine.enforce_eager else layers
        self._launch_constant = _by_mode(launch, lambda mode: scale * (mode.constant_s + mode.per_layer_s * kernels))
        self._launch_per_request = _by_mode(launch, lambda mode: scale * mode.per_request_s)
        self._launch_idle = _by_mode(launch, lambda mode: mode.idle_factor)
        self._tail = _by_mode(launch, lambda mode: mode.tail_s)
        noise = (profile.noise.none, profile.noise.piecewise, profile.noise.full)
        self._gpu_sigma = tuple(mode.gpu_sigma for mode in noise)
        self._quantiles = tuple((*mode.launch_quantiles, mode.launch_quantiles[-1]) if mode.launch_quantiles else ()
                                for mode in noise)  # fmt: skip
        self._schedule = (cpu.schedule_s, cpu.schedule_per_request_s)
        self._update = (cpu.update_s, cpu.update_per_request_s)

    # GPU time ---------------------------------------------------------------------------------------------------------

    def _roof(self, per_token_s: float, read_s: float, tokens: Floats) -> Floats:
        """Compute and weight reading of linear layers: a smooth maximum."""
        slowness = np.exp(np.interp(np.log(np.maximum(tokens, 1.0)), self._knots, self._slowness))
        p = self._p
        return np.asarray(((per_token_s * tokens * slowness) ** p + read_s**p) ** (1 / p))

    def _linear_s(self, padded: Floats) -> Floats:
        """Everything that depends on the padded tokens alone."""
        return self._roof(self._per_token, self._weights_read, padded) + self._activation * padded + self._constant

    def _head_s(self, rows: Floats) -> Floats:
        """lm_head over the sampled rows; nothing if there are none."""
        return np.where(rows > 0, self._roof(self._head_per_row, self._head_read, rows), 0.0)

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
        linear, head = self._tables(padded_tokens, sampled)
        decodes = 0.0
        if decode_reqs > 0:
            if prefill_tokens > 0:
                decodes = step_formula.decodes_mixed_s(self.costs, decode_reqs, decode_context_sum)
            else:
                decodes = step_formula.decodes_alone_s(self.costs, decode_reqs, decode_context_sum, decode_context_max)
        return step_formula.gpu_s(self.costs, linear, head, num_reqs, decodes, prefill_attention)

    def decode_stretch_s(
        self, padded_tokens: int, size: int, context_sum: int, context_max: int, count: int
    ) -> list[float]:
        """GPU times of *count* steps that give *size* requests a token each, as `gpu_s` gives them one by one."""
        linear, head = self._tables(padded_tokens, size)
        return step_formula.decode_stretch_s(self.costs, linear, head, size, context_sum, context_max, count)

    def _tables(self, padded_tokens: int, sampled: int) -> tuple[float, float]:
        linear, head = self._linear.get(padded_tokens), self._head.get(sampled)
        if linear is None:
            linear = self._linear[padded_tokens] = float(self._linear_s(np.array([float(padded_tokens)]))[0])
        if head is None:
            head = self._head[sampled] = float(self._head_s(np.array([float(sampled)]))[0])
        return linear, head

    def linear_table(self, tokens: int) -> Floats:
        """What depends on padded tokens alone, in seconds, for 0 to *tokens* of them."""
        return self._linear_s(np.arange(tokens + 1.0))

    def head_table(self, rows: int) -> Floats:
        """What depends on sampled rows alone, in seconds, for 0 to *rows* of them."""
        return self._head_s(np.arange(rows + 1.0))

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
        total = self._linear_s(np.asarray(padded_tokens, float)) + self._head_s(np.asarray(sampled, float))
        total = total + self._per_request * np.asarray(num_reqs, float)
        decodes, contexts = np.asarray(decode_reqs, float), np.asarray(decode_context_sum, float)
        mixed = np.asarray(prefill_tokens) > 0
        beside = step_formula.decodes_mixed_s(self.costs, decodes, contexts)  # type: ignore[arg-type]
        alone = decodes_alone_s_array(self.costs, np.maximum(decodes, 1.0), contexts, np.asarray(decode_context_max))
        decoding = np.where(decodes > 0, np.where(mixed, beside, alone), 0.0)
        return np.asarray(total + decoding + self._attention * np.asarray(prefill_attention, float))

    # CPU --------------------------------------------------------------------------------------------------------------

    def launch_s(self, mode: int, num_tokens: int, num_reqs: int, idle: bool) -> float:
        """CPU time for which launching a step blocks the engine loop; *idle*: the loop had been asleep."""
        return step_formula.launch_s(self.costs, mode, num_reqs, idle)

    def start_s(self, idle: bool) -> float:
        """From the start of a launch to its first kernel; longer when the engine loop had been asleep."""
        return self._idle_start if idle else self.gpu_start_s

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

    def gpu_noise_array(self, mode: int, normals: Floats) -> Floats:
        """Return factors on the GPU times of steps, mean 1; *normals* are standard normal draws."""
        sigma = self._gpu_sigma[mode]
        return np.exp(sigma * (normals - 0.5 * sigma))

    def launch_noise_array(self, mode: int, uniforms: Floats) -> Floats:
        """Return factors on the launches of steps: the quantiles at *uniforms*, draws from [0, 1)."""
        quantiles = np.asarray(self._quantiles[mode])
        if not len(quantiles):
            return np.ones_like(uniforms)
        place = uniforms * (len(quantiles) - 2)
        index = place.astype(np.int64)
        return np.asarray(quantiles[index] + (quantiles[index + 1] - quantiles[index]) * (place - index))

    def leaving_hull(self, tokens: int, decode_reqs: int, context: int) -> tuple[str, ...]:
        """Names of the dimensions whose maxima lie beyond what was seen while calibrating."""
        hull = self.profile.hull
        seen = (("tokens", tokens), ("decode_reqs", decode_reqs), ("context", context))
        return tuple(name for name, value in seen if value > getattr(hull, name))
