"""Block keys of token lists, for scenarios that are given as tokens."""

from __future__ import annotations


class TokenKeys:
    """Chained block keys of token lists: equal keys for equal prefixes, as vLLM's block hashes."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, tuple[int, ...]], int] = {}

    def __call__(self, tokens: list[int], block_size: int) -> list[int]:
        keys: list[int] = []
        parent = 0
        for start in range(0, len(tokens) - block_size + 1, block_size):
            content = (parent, tuple(tokens[start : start + block_size]))
            parent = self._known.setdefault(content, len(self._known) + 1)
            keys.append(parent)
        return keys
