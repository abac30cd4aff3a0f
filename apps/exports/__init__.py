"""Answers in the formats of other tools, and the commands that measure what was predicted."""
