"""Reading addresses that a recipe or an index names: http and https, and files of an index that is a directory.

Redirects lead to http and https only, and never from https back to http; a page has a largest size and a longest time, and a file
a least rate, so one without an end is refused. Source of the rules: RFC 9110 (ranges, redirects).
"""

from __future__ import annotations

import base64
import contextlib
import netrc
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import IO, Any, NoReturn
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from relink import __version__
from relink.indexes.build.pace import Pace, paced
from relink.indexes.build.pip_settings import PipSettings
from relink.system.errors import RelinkError
from relink.system.safe_open import read_bytes
from relink.system.system_errors import raise_if_machine_fault

__all__ = ["FILE_PACE", "PAGE_PACE", "FetchError", "Page", "RemoteFile", "Web", "without_secrets"]

_TIMEOUT = 60  # seconds until there is a connection
# Seconds and bytes that have to come in them: all of a page, and 10 kB a second of a file.
PAGE_PACE = (120.0, float("inf"))
FILE_PACE = (60.0, 600_000)
_READ = 1 << 18  # bytes
_JSON = "application/vnd.pypi.simple.v1+json"
_ACCEPT = f"{_JSON}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"  # PEP 691
_INDEX_FILES = (("index.json", _JSON), ("index.html", "text/html"))


class FetchError(RelinkError):
    """An address could not be read, or has something else than what was promised.

    :ivar missing: the server says that there is no such thing.
    """

    def __init__(self, message: str, *, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing


@dataclass(frozen=True, slots=True)
class Page:
    """A page that was read: its address after redirects, its media type, and its bytes."""

    url: str
    kind: str
    body: bytes


@dataclass(slots=True)
class RemoteFile:
    """A file that is being read.

    :ivar start: the byte that `stream` begins at: what was asked for, or 0 where the server sends all of it.
    """

    stream: IO[bytes]
    start: int


class _Redirects(urllib.request.HTTPRedirectHandler):
    """urllib follows to http, https and ftp; here it is the first two, and https stays https."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        old, new = urlsplit(req.full_url).scheme, urlsplit(newurl).scheme
        if new not in ("http", "https") or (old, new) == ("https", "http"):
            raise FetchError(
                f"{without_secrets(req.full_url)}: redirects to {without_secrets(newurl)}, which is not followed"
            )
        fp.close()  # urllib would read it to an end that it need not have
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Http(urllib.request.HTTPHandler):
    """Opens addresses of http and https with a pace."""

    def __init__(self, pace: Pace) -> None:
        super().__init__()
        self._pace = pace

    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(paced(HTTPConnection, self._pace), req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, pace: Pace, context: ssl.SSLContext) -> None:
        super().__init__()
        self._pace, self._own = pace, context

    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(paced(HTTPSConnection, self._pace), req, context=self._own)


class Web:
    """Reads addresses, with pip's certificates and proxy. One for each process: it holds no connection.

    :param settings: what pip is configured for; the system's certificates and the environment's proxies without it.
    """

    def __init__(self, settings: PipSettings | None = None) -> None:
        settings = settings or PipSettings()
        self._context = ssl.create_default_context(cafile=settings.cert)
        if settings.client_cert:
            self._context.load_cert_chain(settings.client_cert)
        self._proxies = {"http": settings.proxy, "https": settings.proxy} if settings.proxy else None

    def _opener(self, pace: Pace) -> urllib.request.OpenerDirector:
        opener = urllib.request.OpenerDirector()
        for handler in (
            urllib.request.ProxyHandler(self._proxies),
            _Http(pace),
            _Https(pace, self._context),
            urllib.request.HTTPDefaultErrorHandler(),
            urllib.request.HTTPErrorProcessor(),
            urllib.request.UnknownHandler(),
            _Redirects(),
        ):
            opener.add_handler(handler)
        return opener

    def page(self, url: str, limit: int) -> Page:
        """Read a page of an index.

        :param limit: bytes.
        :raises FetchError: it cannot be read, is larger, or takes longer than two minutes.
        """
        shown = without_secrets(url)
        if urlsplit(url).scheme == "file":
            return _local_page(url, limit)
        with _told(shown), self._open(url, {"Accept": _ACCEPT}, Pace(*PAGE_PACE)) as answer:
            parts: list[bytes] = []
            size = 0
            while data := answer.read(_READ):
                size += len(data)
                parts.append(data)
                if size > limit:
                    raise FetchError(f"{shown}: the page is larger than {limit >> 20} MiB")
            return Page(answer.geturl(), _media_type(answer.headers), b"".join(parts))

    @contextlib.contextmanager
    def opened(self, url: str, start: int = 0) -> Iterator[RemoteFile]:
        """Open a file from byte `start` on, or from its beginning where the server does not send parts.

        :raises FetchError: it cannot be read.
        """
        shown = without_secrets(url)
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
        with _told(shown):
            try:
                answer = self._open(url, headers, Pace(*FILE_PACE))
            except urllib.error.HTTPError as error:
                if error.code != 416 or not start:  # the part that is there is as long as the file
                    raise
                answer = self._open(url, {"Accept-Encoding": "identity"}, Pace(*FILE_PACE))
            with answer:
                partial = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(
                    f"bytes {start}-"
                )
                yield RemoteFile(answer, start if partial else 0)

    def _open(self, url: str, headers: dict[str, str], pace: Pace) -> Any:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise FetchError(f"{without_secrets(url)}: not an address that is read: http and https are")
        host = parts.netloc.rpartition("@")[2]
        path = quote(parts.path, safe="/%:@!$&'()*+,;=~")
        request = urllib.request.Request(  # noqa: S310 (the scheme is known)
            urlunsplit((parts.scheme, host, path, parts.query, "")),
            headers={"User-Agent": f"rocm-relink/{__version__}", **headers},
        )
        if secret := _credentials(parts.username, parts.password, parts.hostname):
            request.add_unredirected_header("Authorization", f"Basic {secret}")  # another host never gets it
        opener = self._opener(pace)
        return opener.open(request, timeout=_TIMEOUT)


def without_secrets(url: str) -> str:
    """Return an address without a user and a password, for messages."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _credentials(user: str | None, password: str | None, host: str) -> str | None:
    """Basic credentials of an address or, as pip has it, of the user's netrc file."""
    if user is None:
        try:
            found = netrc.netrc(os.environ.get("NETRC")).authenticators(host)
        except (OSError, netrc.NetrcParseError):
            found = None
        if found is None:
            return None
        user, _, password = found
    text = f"{unquote(user)}:{unquote(password or '')}"
    return base64.b64encode(text.encode()).decode()


@contextlib.contextmanager
def _told(shown: str) -> Iterator[None]:
    try:
        yield
    except urllib.error.HTTPError as error:
        error.close()
        missing = error.code in (404, 410)
        raise FetchError(
            f"{shown}: the server answers {error.code} ({error.reason})", missing=missing
        ) from error
    except (HTTPException, ValueError) as error:
        raise FetchError(f"{shown}: the server's answer cannot be read ({error})") from error
    except OSError as error:
        _unreadable(shown, error)


def _unreadable(shown: str, error: OSError) -> NoReturn:
    reason = getattr(error, "reason", error)
    if isinstance(reason, OSError) and not isinstance(reason, TimeoutError):
        raise_if_machine_fault(reason, shown)
    raise FetchError(
        f"{shown}: cannot be read ({reason})", missing=isinstance(reason, FileNotFoundError)
    ) from error


def _media_type(headers: Message) -> str:
    return headers.get_content_type()


def _local_page(url: str, limit: int) -> Page:
    """A page of an index that lies in a directory, as pip reads it."""
    directory = Path(unquote(urlsplit(url).path))
    last: OSError = FileNotFoundError(2, "No such file or directory")
    for name, kind in _INDEX_FILES:
        try:
            return Page(f"{url.rstrip('/')}/", kind, read_bytes(directory / name, limit))
        except FileNotFoundError as error:
            last = error
        except OSError as error:
            last = error
            break
    _unreadable(url, last)
