"""Simulations of any length in bounded memory: facts are counted as they come, not kept."""
