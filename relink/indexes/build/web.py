"""Reading addresses that a recipe or an index names, by curl: http and https, and files of an index that is a directory.

Redirects lead to http and https only, and never from https back to http; a page has a largest size and a longest time, and a file
a least rate, so one without an end is refused. What a page was stays in ``$XDG_CACHE_HOME/relink/pages``, and is asked for on the
condition that it has changed. Source of the rules: RFC 9110 (ranges, redirects, conditional requests).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

from relink import __version__
from relink.indexes.build.pip_settings import PipSettings
from relink.indexes.install.cache import cache_directory
from relink.system.atomic import atomic_file
from relink.system.bounded_json import parse_json
from relink.system.errors import RelinkError, UsageError
from relink.system.safe_open import read_bytes
from relink.system.system_errors import raise_if_machine_fault

__all__ = ["FILE_PACE", "PAGE_PACE", "FetchError", "Page", "Web", "without_secrets"]

_TIMEOUT = 60  # seconds until there is a connection
PAGE_PACE = 120.0
"""Seconds in which all of a page has to come."""
FILE_PACE = (60, 10_000)
"""Seconds, and the bytes in each of them that a file has to come with."""
_REDIRECTS = 10
_HEADERS = 200
_STATUS = re.compile(r"HTTP/\S+ (\d{3})\b", re.ASCII)
_JSON = "application/vnd.pypi.simple.v1+json"
_ACCEPT = f"Accept: {_JSON}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"  # PEP 691
_INDEX_FILES = (("index.json", _JSON), ("index.html", "text/html"))
_CONDITIONS = (("etag", "If-None-Match"), ("last-modified", "If-Modified-Since"))


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
class _Answer:
    """:ivar headers: of the last answer, in small letters; `error` is what taking the content has raised."""

    url: str
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    error: BaseException | None = None


class Web:
    """Reads addresses, with pip's certificates and proxy. One for each process.

    :param settings: what pip is configured for; the system's certificates and the environment's proxies without it.
    :raises UsageError: there is no pycurl.
    """

    def __init__(self, settings: PipSettings | None = None) -> None:
        self._settings = settings or PipSettings()
        addresses = map(urlsplit, self._settings.addresses)
        # Of an index, whose files may be elsewhere on its host.
        self._credentials = {
            (
                parts.scheme,
                parts.hostname,
                parts.port,
            ): f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            for parts in addresses
            if parts.username is not None
        }

    def page(self, url: str, limit: int) -> Page:
        """Read a page of an index.

        :param limit: bytes.
        :raises FetchError: it cannot be read, is larger, or takes longer than two minutes.
        """
        if urlsplit(url).scheme == "file":
            return _local_page(url, limit)
        place = cache_directory().parent / "pages" / hashlib.sha256(url.encode()).hexdigest()
        known, old = _cached(place, limit)
        body = bytearray()

        def take(_: int, data: bytes) -> None:
            body.extend(data)
            if len(body) > limit:
                raise FetchError(f"{without_secrets(url)}: the page is larger than {limit >> 20} MiB")

        conditions = [f"{header}: {known[name]}" for name, header in _CONDITIONS if name in known]
        answer = self._read(url, take, [_ACCEPT, *conditions], seconds=PAGE_PACE)
        if answer.status == 304:
            return Page(known["url"], known["kind"], old)
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if any(name in answer.headers for name, _ in _CONDITIONS):
            facts = {name: answer.headers[name] for name, _ in _CONDITIONS if name in answer.headers}
            _keep(place, facts | {"url": answer.url, "kind": kind}, body)
        return Page(answer.url, kind, bytes(body))

    def file(self, url: str, start: int, take: Callable[[int, bytes], None]) -> None:
        """Read a file from byte `start` on, or from its beginning where the server does not send parts.

        :param take: gets each piece, after the byte that the first of them begins at: `start` or 0.
        :raises FetchError: it cannot be read, or ends too early.
        """
        part = [f"Range: bytes={start}-"] if start else []
        answer = self._read(url, take, part, start=start)
        if answer.status == 416 and start:  # the part that is there is as long as the file
            self._read(url, take, [])

    def _read(
        self,
        url: str,
        take: Callable[[int, bytes], None],
        headers: list[str],
        *,
        seconds: float | None = None,
        start: int = 0,
    ) -> _Answer:
        """Follow redirects; a host gets the credentials of its own address, or those of an index there."""
        answer = _Answer(url)
        for _ in range(_REDIRECTS):
            following = self._one(answer, take, headers, seconds, start)
            if following is None:
                return answer
            old, new = urlsplit(answer.url).scheme, urlsplit(following).scheme
            if new not in ("http", "https") or (old, new) == ("https", "http"):
                raise FetchError(
                    f"{without_secrets(answer.url)}: redirects to {without_secrets(following)}, which is not followed"
                )
            answer = _Answer(following)
        raise FetchError(f"{without_secrets(url)}: redirects more than {_REDIRECTS} times")

    def _one(
        self,
        answer: _Answer,
        take: Callable[[int, bytes], None],
        headers: list[str],
        seconds: float | None,
        start: int,
    ) -> str | None:
        """Ask one address; returns the one that it redirects to."""
        try:
            import pycurl
        except ImportError as error:
            raise UsageError("an index is read by pycurl: pip install 'rocm-relink[index]'") from error
        parts, shown = urlsplit(answer.url), without_secrets(answer.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise FetchError(f"{shown}: not an address that is read: http and https are")
        handle = pycurl.Curl()

        def on_header(line: bytes) -> None:
            text = line.decode("latin-1")
            name, _, value = text.partition(":")
            if text.startswith("HTTP/"):  # that of a proxy may come before
                answer.headers.clear()
                answer.status = int(match[1]) if (match := _STATUS.match(text)) else 0
            elif len(answer.headers) < _HEADERS:
                answer.headers[name.strip().lower()] = value.strip()

        def on_data(data: bytes) -> int:
            if answer.status not in (200, 206):
                return 0  # which ends the transfer
            whole = not answer.headers.get("content-range", "").startswith(f"bytes {start}-")
            try:
                take(0 if whole else start, data)
            except BaseException as error:  # noqa: BLE001 (raised again outside of curl)
                answer.error = error
                return 0
            return len(data)

        path = quote(parts.path, safe="/%:@!$&'()*+,;=~")
        host = parts.netloc.rpartition("@")[2]
        options: dict[int, Any] = {
            pycurl.URL: urlunsplit((parts.scheme, host, path or "/", parts.query, "")),
            pycurl.USERAGENT: f"rocm-relink/{__version__}",
            pycurl.HTTPHEADER: headers,
            pycurl.HEADERFUNCTION: on_header,
            pycurl.WRITEFUNCTION: on_data,
            pycurl.NETRC: pycurl.NETRC_OPTIONAL,
            pycurl.CONNECTTIMEOUT: _TIMEOUT,
            pycurl.NOSIGNAL: 1,
        }
        if netrc := os.environ.get("NETRC"):
            options[pycurl.NETRC_FILE] = netrc
        if (secret := self._secret(parts)) is not None:
            options[pycurl.USERPWD] = secret
        if seconds is not None:
            options |= {pycurl.TIMEOUT_MS: int(seconds * 1000), pycurl.ACCEPT_ENCODING: ""}
        else:
            options |= {pycurl.LOW_SPEED_TIME: FILE_PACE[0], pycurl.LOW_SPEED_LIMIT: FILE_PACE[1]}
        options |= self._tls(pycurl)
        try:
            for option, value in options.items():
                handle.setopt(option, value)
            handle.perform()
        except pycurl.error as error:
            if answer.error is not None:
                raise answer.error from None
            code, text = error.args
            if code == pycurl.E_OPERATION_TIMEDOUT:
                raise FetchError(f"{shown}: too slow ({text})") from error
            if code != pycurl.E_WRITE_ERROR:  # else the content of an error or a redirect was not wanted
                raise FetchError(f"{shown}: cannot be read ({text})") from error
        finally:
            answer.status = handle.getinfo(pycurl.RESPONSE_CODE)
            handle.close()
        if answer.status in (301, 302, 303, 307, 308) and "location" in answer.headers:
            return _joined(answer.url, answer.headers["location"])
        if answer.status not in (200, 206, 304) and not (answer.status == 416 and start):
            missing = answer.status in (404, 410)
            raise FetchError(f"{shown}: the server answers {answer.status}", missing=missing)
        return None

    def _secret(self, parts: Any) -> str | None:
        if parts.username is not None:
            return f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return self._credentials.get((parts.scheme, parts.hostname, parts.port))

    def _tls(self, pycurl: Any) -> dict[int, Any]:
        """Certificates and a proxy; a libcurl that came in a wheel does not know where this system has its certificates."""
        settings, paths = self._settings, ssl.get_default_verify_paths()
        options: dict[int, Any] = {}
        if authorities := settings.cert or paths.cafile:
            options[pycurl.CAINFO] = authorities
        elif paths.capath:
            options[pycurl.CAPATH] = paths.capath
        if settings.client_cert:
            options[pycurl.SSLCERT] = settings.client_cert
        if settings.proxy:
            options[pycurl.PROXY] = settings.proxy
        return options


def without_secrets(url: str) -> str:
    """Return an address without a user and a password, for messages."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _joined(base: str, url: str) -> str:
    try:
        return urljoin(base, url)
    except ValueError as error:
        raise FetchError(f"{without_secrets(base)}: the server's answer cannot be read ({error})") from error


def _cached(place: Path, limit: int) -> tuple[dict[str, str], bytes]:
    """What was kept of a page, and its content; nothing where that cannot be read."""
    with contextlib.suppress(OSError, RelinkError, ValueError, LookupError, AttributeError):
        head, _, body = read_bytes(place, limit + (1 << 16)).partition(b"\n")
        known: dict[str, str] = parse_json(head.decode())
        if known["sha256"] == hashlib.sha256(body).hexdigest() and known["url"] and known["kind"]:
            return known, body
    return {}, b""


def _keep(place: Path, facts: dict[str, str], body: bytes | bytearray) -> None:
    """Keep a page; a place that cannot be written costs time later and nothing else."""
    head = json.dumps(facts | {"sha256": hashlib.sha256(body).hexdigest()})
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(place) as file:
            file.write(head.encode() + b"\n" + body)


def _unreadable(shown: str, error: OSError) -> NoReturn:
    raise_if_machine_fault(error, shown)
    raise FetchError(
        f"{shown}: cannot be read ({error})", missing=isinstance(error, FileNotFoundError)
    ) from error


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
