"""What a GPU is, as far as memory and time depend on it: visible memory, bandwidth, peak rates, with their sources."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

GIB = 1 << 30


class GpuSpec(BaseModel):
    """One GPU model.  Rates are dense (no sparsity); memory is what the driver shows, not the marketing number."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    device_name: str  # as the driver reports it: vLLM's defaults look at it ("a100")
    visible_memory_gib: float = Field(gt=0)
    memory_bandwidth_bytes_per_s: float = Field(gt=0)
    bf16_flops_per_s: float = Field(gt=0)
    fp8_flops_per_s: float | None = None
    int8_flops_per_s: float | None = None
    compute_capability: float = 8.0
    pcie_bytes_per_s: float = 25e9
    nvlink_bytes_per_s: float | None = None  # per direction and GPU; None without NVLink
    hourly_cost_usd: float | None = None
    source: str

    @property
    def visible_memory_bytes(self) -> int:
        """Memory the driver reports, in bytes."""
        return int(self.visible_memory_gib * GIB)
