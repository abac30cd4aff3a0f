"""Mooncake's traces, and Alibaba's (Qwen Bailian), which have its form: JSON lines with hashes of prompt blocks.

    Mooncake   timestamp (ms), input_length, output_length, hash_ids: one per 512 prompt tokens
    Qwen       timestamp (s), input_length, output_length, hash_ids: one per 16 prompt tokens; chat_id, turn, ...

An id stands for its block and all before it.  A request list knows one shared prefix a request, so the longest one that
another request has too is kept: exact where prefixes are shared as a whole, too little where they fork (said in a note
with the share of tokens lost).  The shipped Mooncake traces keep all forks (``--trace``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from calibration.evidence.evidence import Evidence, Format, Options, Source
from simulator.errors import InputError
from simulator.request_list import Row
from simulator.workload import RequestsWorkload

_FIELDS = {"timestamp", "input_length", "output_length"}
BLOCKS = (512, 16)


def recognise(source: Source) -> bool:
    """Whether its first line is such a request."""
    return isinstance(source.first_line, dict) and source.first_line.keys() >= _FIELDS


def read(source: Source, options: Options) -> list[Evidence]:
    """Return the evidence; `InputError` naming the line that is no request, or ids of an unknown block size."""
    lines = source.json_lines()
    requests = [_request(data, f"{source.name}:{number}") for number, data in lines]
    block = _block(source, [data for data, _at in requests])
    is_qwen = block == 16 or "chat_id" in lines[0][1]
    tool, unit = ("Qwen (Alibaba) trace", 1.0) if is_qwen else ("Mooncake trace", 1e-3)
    users = Counter(each for data, _at in requests for each in set(data["hash_ids"]))
    zero = min(at for _data, at in requests) * unit
    rows, dropped = [], 0
    for data, at in sorted(requests, key=lambda request: request[1]):
        if data["input_length"] < 1 or data["output_length"] < 1:
            dropped += 1
            continue
        rows.append(_row(data, at * unit - zero, block, users))
    if not rows:
        raise InputError(f"{source.name}: holds no request with an output; give a trace with at least one")
    notes = [f"{dropped:,} requests without prompt or output are dropped"] if dropped else []
    if is_qwen:
        notes.append("this form of trace could not be checked against a real file, only against its description")
    lost = _lost(rows, [data for data, _at in sorted(requests, key=lambda request: request[1])], block)
    if lost > 0.005:
        notes.append(
            f"prefixes fork: {100 * lost:.0f} % of the prompt tokens that repeat an earlier prompt are not shared "
            "here, because a request list knows one prefix a request"
        )
    return [Evidence(tool, source.path.name, RequestsWorkload(rows=tuple(rows)), notes=tuple(notes))]


def _request(data: dict[str, Any], where: str) -> tuple[dict[str, Any], float]:
    try:
        ids = data.get("hash_ids") or []
        if not isinstance(ids, list):
            raise TypeError("hash_ids is no list")
        read = {"input_length": int(data["input_length"]), "output_length": int(data["output_length"]), "hash_ids": ids}
        return read, float(data["timestamp"])
    except (KeyError, TypeError, ValueError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise InputError(f"{where}: is not a request of this trace ({reason}); correct or remove the line") from None


def _block(source: Source, requests: Sequence[Mapping[str, Any]]) -> int:
    """Return how many tokens an id stands for: the size that fits every request."""
    hashed = [data for data in requests if data["hash_ids"]]
    if not hashed:
        return BLOCKS[0]
    for block in BLOCKS:
        if all(abs(len(data["hash_ids"]) - data["input_length"] / block) <= 1 for data in hashed):
            return block
    raise InputError(
        f"{source.name}: hash_ids fit neither 512 nor 16 prompt tokens each; give a Mooncake or Qwen trace"
    )


def _row(data: Mapping[str, Any], at_s: float, block: int, users: Mapping[Any, int]) -> Row:
    depth = 0
    for each in data["hash_ids"]:
        if users[each] < 2:
            break
        depth += 1
    shared = min(depth * block, data["input_length"])
    name = f"block-{data['hash_ids'][depth - 1]}" if depth else None
    return Row(
        arrival_s=at_s, prompt_tokens=data["input_length"], output_tokens=data["output_length"], prefix_id=name,
        prefix_tokens=shared,
    )  # fmt: skip


def _lost(rows: Sequence[Row], requests: Sequence[Mapping[str, Any]], block: int) -> float:
    """Return the share of the tokens that repeat an earlier request's blocks and that *rows* do not share."""
    seen: set[Any] = set()
    known: dict[str, int] = {}
    repeated = kept = 0
    usable = (data for data in requests if data["input_length"] >= 1 and data["output_length"] >= 1)
    for row, data in zip(rows, usable, strict=True):
        depth = 0
        for each in data["hash_ids"]:
            if each not in seen:
                break
            depth += 1
        seen.update(data["hash_ids"])
        repeated += min(depth * block, row.prompt_tokens)
        if row.prefix_id is not None:
            kept += min(known.get(row.prefix_id, 0), row.prefix_tokens)
            known[row.prefix_id] = max(known.get(row.prefix_id, 0), row.prefix_tokens)
    return 1 - kept / repeated if repeated else 0.0


FORMAT = Format("mooncake", "Mooncake or Qwen trace", "the shipped Mooncake traces", recognise, read)
