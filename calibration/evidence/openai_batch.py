"""An OpenAI batch file (JSON lines): requests to be answered as fast as possible, all there from the start.

It holds texts, not tokens: a prompt has ``characters / chars_per_token`` tokens, an output ``max_tokens`` (an upper
bound); both are marked as estimates.  Token arrays are counted.  A system message that opens several requests is their
shared prefix, if it is the same text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from calibration.evidence.evidence import Evidence, Format, Options, Source
from simulator.errors import InputError
from simulator.request_list import Row
from simulator.workload import RequestsWorkload

TOOL = "OpenAI batch file"
_MAX_TOKENS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


def recognise(source: Source) -> bool:
    """Whether its first line is a batch request."""
    first = source.first_line
    return isinstance(first, dict) and isinstance(first.get("body"), dict) and "url" in first


def read(source: Source, options: Options) -> list[Evidence]:
    """Return the evidence; `InputError` naming the line that is no batch request, or that lacks max_tokens."""
    lines = source.json_lines()
    prompts = [_prompt(data, f"{source.name}:{number}", options) for number, data in lines]
    outputs = [_outputs(data, f"{source.name}:{number}", options) for number, data in lines]
    shared = Counter(system for _tokens, system, _is_exact in prompts if system)
    names = {system: f"system-{number}" for number, system in enumerate(shared, 1) if shared[system] > 1}
    rows = []
    for (tokens, system, _is_exact), output in zip(prompts, outputs, strict=True):
        length = min(_tokens_of(system, options), tokens) if system in names else 0
        shared_as = names[system] if length else None
        row = Row(arrival_s=0.0, prompt_tokens=tokens, output_tokens=output, prefix_id=shared_as, prefix_tokens=length)
        rows.append(row)
    notes = []
    if not all(is_exact for _tokens, _system, is_exact in prompts):
        notes.append(f"prompt lengths are ESTIMATED: characters / {options.chars_per_token:g}; set --chars-per-token")
    if options.output_tokens is None:
        notes.append("output lengths are max_tokens, an upper bound; give --output-tokens for the usual length")
    if names:
        notes.append(f"{sum(shared[name] for name in names)} requests share {len(names)} system prompts")
    model = str(lines[0][1]["body"].get("model") or "")
    return [Evidence(TOOL, source.path.name, RequestsWorkload(rows=tuple(rows)), {}, model, tuple(notes))]


def _prompt(data: Mapping[str, Any], where: str, options: Options) -> tuple[int, str, bool]:
    """Return (tokens, opening system text, whether tokens were counted)."""
    body = data.get("body")
    if not isinstance(body, dict):
        raise InputError(f"{where}: has no body; give a batch file as the OpenAI API takes it")
    given = body.get("messages", body.get("prompt", body.get("input")))
    if isinstance(given, list) and given and all(isinstance(token, int) for token in given):
        return len(given), "", True
    if isinstance(given, str):
        return _tokens_of(given, options), "", False
    if isinstance(given, list) and given and all(isinstance(message, dict) for message in given):
        texts = [_text(message.get("content")) for message in given]
        system = texts[0] if given[0].get("role") in ("system", "developer") else ""
        return _tokens_of("".join(texts), options), system, False
    raise InputError(
        f"{where}: body has no messages, prompt or input that can be read; requests of one prompt each are"
    )


def _text(content: Any) -> str:
    """Return the text of a message; images and the like have none."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _tokens_of(text: str, options: Options) -> int:
    return max(1, round(len(text) / options.chars_per_token))


def _outputs(data: Mapping[str, Any], where: str, options: Options) -> int:
    if options.output_tokens is not None:
        return options.output_tokens
    found = next((data["body"][name] for name in _MAX_TOKENS if data["body"].get(name) is not None), None)
    if found is None:
        raise InputError(f"{where}: has no max_tokens, so the length of its output is open; give --output-tokens N")
    if not isinstance(found, int) or found < 1:
        raise InputError(
            f"{where}: max_tokens must be a whole number from 1 on, got {str(found)[:40]}; correct the line"
        )
    return found


FORMAT = Format("openai-batch", TOOL, "vLLM 0.32 (run-batch)", recognise, read)
