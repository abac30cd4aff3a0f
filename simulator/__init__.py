"""A discrete-event simulator of a vLLM server: exact scheduling, paged KV blocks, calibrated step times.

Seconds and tokens inside; a name that leaves the package carries its unit (``ttft_ms``).
"""
