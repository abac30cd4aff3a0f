"""Stands for a vLLM server that records itself: one step a token, as fast as an H200 would be.  Started by tests only.

First argument: how it behaves.  ``dies``, ``hangs``, ``fails`` after some requests; ``no-memory`` at once.
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.calibration.fake_server import Call, FakeServer

MOOD = sys.argv[1]
BREAKS_AFTER = 18
STEP_S = 0.001


class Recorded:
    """Writes steps of one request each."""

    def __init__(self) -> None:
        self.number = 0
        prefix = os.environ["SERVECAST_RECORD"]
        self.file = open(f"{prefix}.steps.jsonl", "a", buffering=1)  # noqa: SIM115
        self.write({"a": "h", "blocks": 1000, "block_size": 16, "max_tok": 512, "max_run": 2, "max_len": 600,
                    "async": True, "vllm": "0.24.0"})  # fmt: skip

    def write(self, record: dict) -> None:
        self.file.write(json.dumps(record) + "\n")

    def step(self, started: float, chunks: list, decodes: int, context: int) -> None:
        self.number += 1
        step = {"a": "s", "n": self.number, "t0": started, "t1": started + 1e-4, "p": chunks, "d": decodes}
        self.write({**step, "dc": decodes * context, "dm": decodes * context, "w": 0, "r": 1, "f": 900})
        now = time.monotonic()
        self.write({"a": "u", "n": self.number, "t0": now, "t1": now + 1e-4})


async def answer(call: Call) -> None:
    if call.number >= BREAKS_AFTER:
        if MOOD == "dies":
            os._exit(7)
        if MOOD == "hangs":
            await asyncio.sleep(600)
        if MOOD == "fails":
            return await call.raw(b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n")
    prompt = len(call.body["prompt"])
    await call.start()
    for token in range(call.body["max_tokens"]):
        async with ENGINE:  # one step at a time
            started = time.monotonic()
            await asyncio.sleep(STEP_S)
            decoding = int(token > 0)
            RECORDED.step(started, [] if decoding else [[prompt, 0]], decoding, prompt + token)
            await call.token()
    return await call.finish()


if __name__ == "__main__":
    if MOOD == "no-memory":
        sys.exit("torch.OutOfMemoryError: CUDA out of memory")
    assert "servecast_recorder.scheduler.RecordingScheduler" in sys.argv
    sys.stdout.write("INFO 12-01 03:00:00 [core.py:1] Initializing a V1 LLM engine (v0.24.0) with config: x\n")
    sys.stdout.write(f"process {os.getpid()}\n")
    sys.stdout.flush()
    RECORDED, ENGINE = Recorded(), asyncio.Lock()
    with FakeServer(answer, port=int(sys.argv[sys.argv.index("--port") + 1]), max_model_len=600):
        time.sleep(600)
