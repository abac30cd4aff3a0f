"""Decisions made of many simulations: capacity, search, cost, sweeps.  Pure logic: no typer, no drawing."""
