"""Stands for `vllm serve`: health, models, and completions that stream one token each 2 ms; and for `vllm bench serve`,
which sends nothing and says it took 10 ms to the first token and 2 ms for each after.  Started by tests only.  It dies
after the number of requests that --die-after tells.
"""

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COUNTED: list[str] = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        return

    def do_GET(self) -> None:
        body = json.dumps({"data": [{"id": "pretend"}]}).encode() if self.path == "/v1/models" else b"ok"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        COUNTED.append(self.path)
        if "--die-after" in sys.argv and len(COUNTED) > int(sys.argv[sys.argv.index("--die-after") + 1]):
            sys.stderr.write("CUDA error: an illegal memory access\n")
            sys.stderr.flush()
            os._exit(7)
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        count = request["max_tokens"]
        for _ in range(count):
            time.sleep(0.002)
            self._event({"choices": [{"text": "x"}]})
        usage = {"prompt_tokens": len(request["prompt"]), "completion_tokens": count}
        self._event({"choices": [], "usage": usage})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _event(self, data: object) -> None:
        self._chunk(f"data: {json.dumps(data)}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()


def bench(options: dict[str, str]) -> None:
    rows = [json.loads(line) for line in Path(options["--dataset-path"]).read_text().splitlines()]
    now, tokens = time.perf_counter(), [row["output_length"] for row in rows]
    result = {
        "completed": len(rows), "duration": rows[-1]["timestamp"] + 1.0, "model_id": options["--model"],
        "input_lens": [row["input_length"] for row in rows], "output_lens": tokens, "errors": [""] * len(rows),
        "start_times": [now + row["timestamp"] for row in rows], "ttfts": [0.010] * len(rows),
        "itls": [[0.002] * (count - 1) for count in tokens],
    }  # fmt: skip
    (Path(options["--result-dir"]) / options["--result-filename"]).write_text(json.dumps(result))


if __name__ == "__main__":
    if sys.argv[1] == "bench":
        sys.exit(bench(dict(zip(sys.argv, sys.argv[1:], strict=False))))
    port = int(sys.argv[sys.argv.index("--port") + 1])
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
