"""A web server on the loopback interface that a test tells what to answer: ranges, cuts, redirects, pages without end."""

from __future__ import annotations

import http.server
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Answer", "WebServer", "serving"]


@dataclass
class Answer:
    """What one path is answered with.

    :ivar cut: the connection ends after so many bytes of the body, once for each item.
    :ivar endless: the body is repeated for ever, with `trickle` seconds between.
    :ivar raw: is sent likewise, in the place of a status line, headers and body.
    """

    body: bytes = b""
    kind: str = "text/html"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: list[int] = field(default_factory=list)
    endless: bool = False
    trickle: float = 0
    raw: bytes | None = None
    ranges: bool = True


@dataclass
class WebServer:
    """:ivar asked: (path, headers) of each request."""

    url: str
    answers: dict[str, Answer]
    asked: list[tuple[str, dict[str, str]]]


@contextmanager
def serving() -> Iterator[WebServer]:
    """Serve until the block ends."""
    answers: dict[str, Answer] = {}
    asked: list[tuple[str, dict[str, str]]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, dict(self.headers)))
            answer = answers.get(self.path, Answer(status=404))
            body, status = answer.body, answer.status
            headers = {"Content-Type": answer.kind, **answer.headers}
            if answer.ranges and "Range" in self.headers:
                start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
                status = 206 if start < len(body) else 416
                headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
                body = body[start:]
            if answer.raw is None:
                self.answer(answer, status, headers, body)
                return
            with suppress(OSError):
                while True:
                    self.wfile.write(answer.raw)
                    time.sleep(answer.trickle)

        def answer(self, answer: Answer, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            if not answer.endless:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            try:
                while answer.endless:
                    self.wfile.write(body)
                    time.sleep(answer.trickle)
                self.wfile.write(body[: answer.cut.pop()] if answer.cut else body)
            except OSError:
                return

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    class Server(socketserver.ThreadingTCPServer):  # http.server's own asks for the name of the address
        daemon_threads = True
        block_on_close = False

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield WebServer(f"http://127.0.0.1:{server.server_address[1]}", answers, asked)
    finally:
        server.shutdown()
        server.server_close()
