"""`relink index serve`: a web server for trying a site, of the standard library. Any web server of static files does the same."""

from __future__ import annotations

import os
import posixpath
import re
import sys
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from relink.indexes.build.pages import FILES
from relink.system.errors import UsageError
from relink.system.safe_open import open_regular
from relink.system.system_errors import raise_if_machine_fault
from relink.system.text import escaped

__all__ = ["site_server"]

_JSON = "application/vnd.pypi.simple.v1+json"
_HTML = "application/vnd.pypi.simple.v1+html"
_IMMUTABLE = "public, max-age=31536000, immutable"  # RFC 8246: a name of a file never gets another content
_IN_MEMORY = 16 << 20  # bytes
_RANGE = re.compile(r"bytes=(\d{1,15})-(\d{0,15})")


def site_server(site: Path, address: str, port: int) -> ThreadingHTTPServer:
    """Return a server of a site that listens already; ``serve_forever`` serves.

    :param port: 0 takes a free one.
    :raises UsageError: there is no site, or the port is taken.
    """
    if not (site / "index.html").is_file():
        raise UsageError(f"{site}: is no site; make one by `relink index build RECIPE -o {site}`")
    try:
        return _Server((address, port), partial(_Handler, directory=str(site)))
    except OSError as error:
        raise_if_machine_fault(error, f"{address}:{port}")
        raise UsageError(
            f"{address}:{port}: cannot be listened on ({error.strerror}); pass another --port"
        ) from error


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say in a line that a client has left, or that a file cannot be read."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            sys.stderr.write(escaped(f"{client_address[0]}: {error}") + "\n")
        else:
            super().handle_error(request, client_address)


class _Handler(SimpleHTTPRequestHandler):
    """Adds what indexes need: JSON for who asks for it (PEP 691), parts of files, and how long a name may be cached."""

    protocol_version = "HTTP/1.1"
    timeout = 60  # seconds in which a client neither sends nor takes anything
    extensions_map = SimpleHTTPRequestHandler.extensions_map | {
        ".whl": "application/zip",
        ".metadata": "text/plain; charset=utf-8",
        ".atom": "application/atom+xml",
        ".json": "application/json",
    }

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (its name in the base class)
        super().log_message("%s", escaped(format % args))

    def send_response(self, code: int, message: str | None = None) -> None:
        self._has_content = code in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT, HTTPStatus.NOT_MODIFIED)
        super().send_response(code, message)

    def send_head(self) -> BytesIO | BinaryIO | None:
        try:
            return self._content()
        except (OSError, ValueError):  # or an address that no file can have: a NUL, half of a surrogate pair
            self.send_error(HTTPStatus.NOT_FOUND)
            return None

    def _content(self) -> BytesIO | BinaryIO | None:
        path = unquote(urlsplit(self.path).path)
        self._kind = None
        if "/simple/" in path and path.endswith("/"):
            self._kind = _HTML if _HTML in self.headers.get("Accept", "") else None
            if _JSON in self.headers.get("Accept", ""):
                self._kind = _JSON
                self.path = f"{urlsplit(self.path).path}index.json"
        return self._part() or super().send_head()

    def guess_type(self, path: str | os.PathLike[str]) -> str:
        return self._kind or super().guess_type(path)

    def end_headers(self) -> None:
        # Of a request that cannot be read there is no path.
        inside = self._has_content and posixpath.normpath(unquote(urlsplit(self.path).path)).startswith(
            f"/{FILES}/"
        )
        self.send_header("Cache-Control", _IMMUTABLE if inside else "no-cache")
        self.send_header("Accept-Ranges", "bytes")
        super().end_headers()

    def _part(self) -> BytesIO | BinaryIO | None:
        """Answer a request for one part of a file, as uv reads metadata out of a wheel and downloads are resumed (RFC 9110).

        A large part in the middle is answered with the whole file, which a server may do.
        """
        match = _RANGE.fullmatch(self.headers.get("Range", ""))
        path = self.translate_path(self.path)
        if match is None or not os.path.isfile(path):
            return None
        size = os.path.getsize(path)
        start, end = int(match[1]), min(int(match[2] or size - 1), size - 1)
        if start > end:
            self.send_response(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
            self.send_header("Content-Range", f"bytes */{size}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return BytesIO()
        if end < size - 1 and end - start >= _IN_MEMORY:
            return None
        file = os.fdopen(open_regular(path), "rb")
        self.send_response(HTTPStatus.PARTIAL_CONTENT)
        self.send_header("Content-Type", self.guess_type(path))
        self.send_header("Content-Range", f"bytes {start}-{end}/{size}")
        self.send_header("Content-Length", str(end - start + 1))
        self.end_headers()
        file.seek(start)
        if end == size - 1:
            return file  # sent to its end, and closed by the caller
        with file:
            return BytesIO(file.read(end - start + 1))
