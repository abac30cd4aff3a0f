"""Chats: turns, a history that grows, and the prefix that each turn shares with the one before it.

The prompt of turn n is the system prompt, all earlier turns (what the user wrote and what the model answered), and the
user's new tokens.  So its first ``prompt + output`` tokens of turn n - 1 are the same tokens, generated ones included,
and vLLM's prefix cache can hold their full blocks.  The system prompt is the same for all chats of a class.

Where prompt and answer of a turn exceed the longest context, the oldest turns are left out, whole, until they fit (the
system prompt stays).  What remains stands at other positions then, so only the system prompt can still be hit: that is
what truncating chats costs.  A turn that does not fit alone is the matter of ``over_length``.

Not modelled: answers that are tokenized differently when they come back in a prompt, edits, branches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from simulator import durations, lengths
from simulator.request_table import Floats, Ints, RequestTable
from simulator.workload_parts import Described, Duration, Length


class Chat(Described):
    """How long a chat is and what it is made of; each number is drawn for itself.

    *turns* requests in a chat; *system_prompt_tokens* before every prompt; *prompt_tokens* the user writes in a turn,
    *first_prompt_tokens* in the first one if that differs (a document, say); *output_tokens* answered in a turn;
    *think_time_s* from the complete answer to the next turn, and for a closed loop to the user's next chat.
    """

    turns: Length = "1"
    system_prompt_tokens: int = Field(default=0, ge=0, le=lengths.MAX_TOKENS)
    prompt_tokens: Length = "512"
    first_prompt_tokens: Length | None = None
    output_tokens: Length = "128"
    think_time_s: Duration = 0.0


@dataclass(frozen=True, eq=False)
class Chats:
    """Chats one after the other, each as consecutive rows.

    *kind*, *first_row*, *turns*: (chats,) which of the kinds it is, its first row, its rows.  *chat*, *turn*,
    *new_tokens*, *output_tokens*, *think_s*: (rows,) chat and turn (from 0) of a row, and what was drawn for it.
    """

    kinds: Sequence[Chat]
    kind: Ints
    first_row: Ints
    turns: Ints
    chat: Ints
    turn: Ints
    new_tokens: Ints
    output_tokens: Ints
    think_s: Floats

    def __len__(self) -> int:
        return len(self.turns)


def draw(kinds: Sequence[Chat], kind: Ints, rows: int, seed: np.random.SeedSequence) -> Chats:
    """Return the first chats of which there are *rows* turns in all (the last chat is cut).

    *kind* says for each chat which of *kinds* it is; it must be long enough (*rows* always is).
    """
    streams = [[np.random.default_rng(part) for part in one.spawn(4)] for one in seed.spawn(len(kinds))]
    turns = np.ones(len(kind), dtype=np.int64)
    for k, chat in enumerate(kinds):
        mine = kind == k
        turns[mine] = lengths.parse(chat.turns).sample(int(mine.sum()), streams[k][0])
    last = np.cumsum(turns)
    count = int(np.searchsorted(last, rows)) + 1
    turns, kind, last = turns[:count], kind[:count], last[:count]
    turns[-1] -= max(0, last[-1] - rows)
    first_row = np.concatenate(([0], last[:-1]))
    of_row = np.repeat(np.arange(count), turns)
    turn = np.arange(len(of_row)) - first_row[of_row]
    new, outputs = np.zeros_like(turn), np.zeros_like(turn)
    think_s = np.zeros(len(turn))
    for k, chat in enumerate(kinds):
        _, prompt_rng, output_rng, think_rng = streams[k]
        mine = np.flatnonzero(kind[of_row] == k)
        new[mine] = lengths.parse(chat.prompt_tokens).sample(len(mine), prompt_rng)
        if chat.first_prompt_tokens is not None:
            opening = mine[turn[mine] == 0]
            new[opening] = lengths.parse(chat.first_prompt_tokens).sample(len(opening), prompt_rng)
        outputs[mine] = lengths.parse(chat.output_tokens).sample(len(mine), output_rng)
        think_s[mine] = durations.parse(str(chat.think_time_s)).sample(len(mine), think_rng)
    return Chats(kinds, kind, first_row, turns, of_row, turn, new, outputs, think_s)


def as_requests(
    chats: Chats,
    *,
    arrival_s: Floats | None,
    max_context: int | None,
    priority: Sequence[int] = (),
    class_names: tuple[str, ...] = (),
) -> RequestTable:
    """Return *chats* as requests; *arrival_s* (chats,) is when each begins, *max_context* tokens is the longest one.

    *priority* and *class_names* go with the kinds.  Segment k < kinds is the system prompt of kind k.
    """
    kind = chats.kind[chats.chat]
    system = np.array([chat.system_prompt_tokens for chat in chats.kinds], dtype=np.int64)[kind]
    added = chats.new_tokens + chats.output_tokens
    before = np.cumsum(added) - added
    history = before - before[chats.first_row][chats.chat]
    content = len(chats.kinds) + chats.chat  # the id of what stands behind the system prompt
    if max_context is not None:
        full = system + history + added > max_context
        fresh = len(chats.kinds) + len(chats)
        for c in np.unique(chats.chat[full]).tolist():
            rows = slice(int(chats.first_row[c]), int(chats.first_row[c] + chats.turns[c]))
            room = max_context - int(system[rows.start])
            history[rows], cuts = _truncated(added[rows].tolist(), room)
            content[rows] = np.where(cuts > 0, fresh + cuts - 1, content[rows])
            fresh += int(cuts[-1])
    prompt = system + history + chats.new_tokens
    return RequestTable.build(
        prompt_tokens=prompt,
        output_tokens=chats.output_tokens,
        arrival_s=None if arrival_s is None else arrival_s[chats.chat],
        segments=_segments(kind, system, chats.turns[chats.chat] > 1, content, prompt + chats.output_tokens),
        priority=np.array(priority, dtype=np.int64)[kind] if priority else None,
        session_id=chats.chat,
        follows=np.where(chats.turn > 0, np.arange(len(kind)) - 1, -1),
        think_s=chats.think_s,
        class_id=kind if class_names else None,
        class_names=class_names,
    )


def _truncated(added: list[int], room: int) -> tuple[Ints, Ints]:
    """Return, for turns that each add so many tokens, the history before each, and how often it was cut until then."""
    history, cuts = np.zeros(len(added), dtype=np.int64), np.zeros(len(added), dtype=np.int64)
    oldest, held, cut = 0, 0, 0
    for turn, tokens in enumerate(added):
        if turn and held + tokens > room and held:
            while held and held + tokens > room:
                held -= added[oldest]
                oldest += 1
            cut += 1
        history[turn], cuts[turn] = held, cut
        held += tokens
    return history, cuts


def _segments(kind: Ints, system: Ints, has_history: np.ndarray, content: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the segments of each row: its system prompt if there is one, its chat if it has several turns."""
    opens, goes_on = system > 0, has_history
    start = np.concatenate(([0], np.cumsum(opens.astype(np.int64) + goes_on))).astype(np.int64)
    ids, ends = np.zeros(start[-1], dtype=np.int64), np.zeros(start[-1], dtype=np.int64)
    first = start[:-1][opens]
    ids[first], ends[first] = kind[opens], system[opens]
    second = (start[:-1] + opens)[goes_on]
    ids[second], ends[second] = content[goes_on], end[goes_on]
    return start, ids, ends
