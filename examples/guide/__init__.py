"""What tuning guides promise about vLLM, one function a promise; `guide_claims.py` runs them all."""
