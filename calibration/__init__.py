"""Recorded steps in, profiles out; predicted against measured step times."""
