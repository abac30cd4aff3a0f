"""HTTP/1.1 replies and server-sent events, read from bytes as they arrive, however they are cut.

Pure: bytes in, pieces out, no clock and no socket.  A reply that breaks the protocol raises `BadReplyError`.
"""

from __future__ import annotations

MOST_HEADER_BYTES = 65536


class BadReplyError(Exception):
    """Bytes that are not what HTTP or server-sent events allow."""


class HttpReply:
    """One reply: status and headers first, then `feed` returns the body as it comes."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.is_complete = False
        self._buffer = b""
        self._left: int | None = None  # bytes to come of the body or chunk; None: until the connection closes
        self._chunked = False
        self._state = "head"

    @property
    def keep_alive(self) -> bool:
        """Whether the connection can carry another request."""
        return self.is_complete and self.headers.get("connection", "").lower() != "close" and not self._buffer

    @property
    def is_between_chunks(self) -> bool:
        """Whether all bytes so far are read, and the next one begins a chunk of a good reply."""
        return self.status == 200 and self._state == "size" and not self._buffer

    def feed(self, data: bytes) -> bytes:
        """Return the part of the body that *data* completes."""
        self._buffer += data
        if self._state == "head" and not self._read_head():
            return b""
        return self._read_chunks() if self._chunked else self._read_plain()

    def close(self) -> None:
        """The connection is closed; raise `BadReplyError` if the reply was not complete."""
        if self._state == "body" and not self._chunked and self._left is None:
            self.is_complete = True
        if not self.is_complete:
            where = "before the reply" if self.status is None else "in the middle of the reply"
            raise BadReplyError(f"connection closed {where}")

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MOST_HEADER_BYTES:
                raise BadReplyError("headers without an end")
            return False
        head, self._buffer = self._buffer[:end].decode("latin-1"), self._buffer[end + 4 :]
        first, *lines = head.split("\r\n")
        words = first.split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/") or not words[1].isdigit():
            raise BadReplyError(f"not an HTTP status line: {first[:60]!r}")
        status = int(words[1])
        if 100 <= status < 200:  # an interim reply; the real one follows
            return self._read_head()
        self.status = status
        self.headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)
        }
        self._chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        length = self.headers.get("content-length", "")
        self._left = None if self._chunked or not length.isdigit() else int(length)
        self._state = "size" if self._chunked else "body"
        return True

    def _read_plain(self) -> bytes:
        if self._left is None:
            body, self._buffer = self._buffer, b""
            return body
        body, self._buffer = self._buffer[: self._left], self._buffer[self._left :]
        self._left -= len(body)
        self.is_complete = self._left == 0
        return body

    def _read_chunks(self) -> bytes:
        body = []
        while not self.is_complete:
            if self._state == "data":
                assert self._left is not None
                if len(self._buffer) < self._left + 2:
                    break  # a whole chunk at once: vLLM sends one message a chunk
                body.append(self._buffer[: self._left])
                if self._buffer[self._left : self._left + 2] != b"\r\n":
                    raise BadReplyError("a chunk does not end where its size says")
                self._buffer, self._state = self._buffer[self._left + 2 :], "size"
                continue
            line, found, rest = self._buffer.partition(b"\r\n")
            if not found:
                break
            self._buffer = rest
            self._read_size_or_trailer(line)
        return b"".join(body)

    def _read_size_or_trailer(self, line: bytes) -> None:
        if self._state == "trailer":
            self.is_complete = not line
            return
        try:
            self._left = int(line.split(b";")[0].strip(), 16)
        except ValueError:
            raise BadReplyError(f"not a chunk size: {line[:30]!r}") from None
        self._state = "data" if self._left else "trailer"


class EventReader:
    """Server-sent events: `feed` returns the data of every event that *body* completes."""

    def __init__(self) -> None:
        self._buffer = b""
        self._data: list[bytes] = []

    def feed(self, body: bytes) -> list[bytes]:
        """Return the data of complete events, in order."""
        events: list[bytes] = []
        *lines, self._buffer = (self._buffer + body).split(b"\n")
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        return events

    @property
    def is_between_events(self) -> bool:
        """Whether nothing half-read is left."""
        return not self._buffer and not self._data
