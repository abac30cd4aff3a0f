"""A server of a few lines that speaks vLLM's HTTP, and misbehaves when a test says so."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

Reply = Callable[["Call"], Awaitable[None]]


@dataclass
class Call:
    """One request for completions, and the means to answer it."""

    number: int
    body: dict[str, Any]
    writer: asyncio.StreamWriter

    async def start(self, status: str = "200 OK", kind: str = "text/event-stream") -> None:
        head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n"
        await self.raw(head.encode())

    async def raw(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def chunk(self, data: bytes) -> None:
        await self.raw(b"%x\r\n%s\r\n" % (len(data), data))

    async def token(self, text: str = " w") -> None:
        await self.chunk(event({"choices": [{"index": 0, "text": text, "finish_reason": None}], "usage": None}))

    async def finish(self, tokens: int | None = None) -> None:
        count = self.body["max_tokens"] if tokens is None else tokens
        await self.chunk(event({"choices": [], "usage": {"completion_tokens": count}}) + b"data: [DONE]\n\n")
        await self.raw(b"0\r\n\r\n")

    def drop(self) -> None:
        self.writer.transport.abort()


def event(message: object) -> bytes:
    return b"data: " + json.dumps(message, ensure_ascii=False).encode() + b"\n\n"


async def well(call: Call) -> None:
    """Answer as vLLM does, a token each millisecond."""
    await call.start()
    for _ in range(call.body["max_tokens"]):
        await asyncio.sleep(0.001)
        await call.token()
    await call.finish()


@dataclass
class FakeServer:
    """Inside a ``with`` block it listens at ``url``; *reply* answers completions."""

    reply: Reply = well
    calls: list[Call] = field(default_factory=list)
    connections: int = 0
    in_flight: int = 0
    most_in_flight: int = 0
    is_healthy: bool = True
    port: int = 0
    max_model_len: int = 2048
    api_key: str | None = None

    def __enter__(self) -> FakeServer:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        listening = asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(5)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)

    async def _close(self) -> None:
        self._server.close()
        own = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not own]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await self._answer(head, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if head.startswith(b"POST"):
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            body = await reader.readexactly(length)
            if not self._may_ask(head):
                return await self._refuse(writer)
            call = Call(len(self.calls), json.loads(body), writer)
            self.calls.append(call)
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            try:
                await self.reply(call)
            finally:
                self.in_flight -= 1
            return None
        path = head.split(b" ")[1].decode()
        if path.startswith("/v1/") and not self._may_ask(head):
            return await self._refuse(writer)
        body = {
            "/health": "",
            "/v1/models": json.dumps({"data": [{"id": "tiny", "max_model_len": self.max_model_len}]}),
            "/metrics": 'vllm:cache_config_info{num_gpu_blocks="100",block_size="16"} 1.0\n'
            f'vllm:prompt_tokens_total{{model_name="tiny"}} {len(self.calls)}\n',
        }.get(path)
        status = "404 Not Found" if body is None else "200 OK" if self.is_healthy else "503 Unavailable"
        text = (body or "").encode()
        writer.write(f"HTTP/1.1 {status}\r\ncontent-length: {len(text)}\r\n\r\n".encode() + text)
        await writer.drain()
        return None

    def _may_ask(self, head: bytes) -> bool:
        return self.api_key is None or f"Authorization: Bearer {self.api_key}\r\n".encode() in head

    async def _refuse(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
