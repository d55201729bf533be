"""Reading addresses that a recipe or an index names, by curl: http and https, and pages of an index that is a directory.

Redirects lead to http and https only, and from https to https alone; a page has a largest size and a longest time, and a file a
least rate, so one without an end is refused. What a page was stays in ``$XDG_CACHE_HOME/relink/pages``, and is asked for on the
condition that it has changed. Source of the rules: RFC 9110 (ranges, redirects, conditional requests).

What pip is configured for (indexes, certificates, a proxy) is asked of pip itself. Source: pip's documentation, "Configuration".
`pip config list` prints what its files and the environment say; of its sections ``:env:`` wins over ``download``, and that over
``global``.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import json
import os
import re
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, unquote, urlsplit

import msgspec

from relink import __version__
from relink.indexes.install.cache import cache_directory
from relink.indexes.install.installers import InstallerError, find_pip
from relink.system.atomic import atomic_file
from relink.system.bounded_json import parse_json
from relink.system.errors import RelinkError, UsageError, raise_if_machine_fault
from relink.system.programs import NoAnswerError, ask_program
from relink.system.safe_open import read_bytes

_TIMEOUT = 60  # seconds to connect
PAGE_PACE = 120.0
"""Seconds in which all of a page has to come."""
FILE_PACE = (60, 10_000)
"""Seconds, and the bytes in each of them that a file has to come with."""
_REDIRECTS = 10
_JSON = "application/vnd.pypi.simple.v1+json"
_ACCEPT = f"Accept: {_JSON}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"  # PEP 691
_SECTIONS = ("global", "download", ":env:")  # the last one wins
_LINE = re.compile(r"""(?P<section>[^=]*?)\.(?P<key>[a-z-]+)=(?P<value>(['"]).*\4)""")
_DEFAULT = re.compile(r"--index-url\b.*?\(default\s+(\S+?)\)", re.DOTALL)
_INDEX_FILES = {"index.json": _JSON, "index.html": "text/html"}
_CONDITIONS = {"etag": "If-None-Match", "last-modified": "If-Modified-Since"}


class FetchError(RelinkError):
    """An address could not be read, or has something else than what was promised.

    :ivar missing: the server says that there is no such thing.
    """

    def __init__(self, message: str, *, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing


class WrongFileError(FetchError):
    """There is something else than was promised, or more."""


class Page(msgspec.Struct, frozen=True):
    """A page that was read: its address after redirects, its media type, and its bytes."""

    url: str
    kind: str
    body: bytes


class Web:
    """Reads addresses, with pip's certificates and proxy. One for each process.

    :param settings: what pip is configured for; the system's certificates and the environment's proxies without it.
    """

    def __init__(self, settings: PipSettings | None = None) -> None:
        self.settings = settings or PipSettings()
        # Of an index, whose files may be elsewhere on its host.
        self._secrets = {_host(parts): _secret(parts) for parts in map(urlsplit, self.settings.addresses)}

    def page(self, url: str, limit: int) -> Page:
        """Read a page of an index.

        :param limit: bytes.
        :raises FetchError: it cannot be read, is larger, or takes longer than two minutes.
        """
        if urlsplit(url).scheme == "file":
            return _local_page(url, limit)
        place = cache_directory().parent / "pages" / hashlib.sha256(url.encode()).hexdigest()
        known, old = _cached(place, limit)
        body = io.BytesIO()
        conditions = [f"{header}: {known[name]}" for name, header in _CONDITIONS.items() if name in known]
        facts = self._read(url, body, limit, [_ACCEPT, *conditions])
        if facts.pop("status") == "304":
            return Page(known["url"], known["kind"], old)
        if len(facts) > 2:  # more than an address and a type: something to make conditions of
            _keep(place, facts, body.getvalue())
        return Page(facts["url"], facts["kind"], body.getvalue())

    def file(self, url: str, path: Path, limit: int) -> None:
        """Read a file, and append it to what is there of it already; where the server sends no parts it begins anew.

        :param limit: bytes that it has at most.
        :raises FetchError: it cannot be read, or ends too early.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(path, flags, 0o666), "wb") as file:
            self._read(url, file, limit, [], start=file.seek(0, os.SEEK_END))

    def _read(
        self, url: str, sink: IO[bytes], limit: int, headers: list[str], start: int | None = None
    ) -> dict[str, str]:
        """Read an address; returns its status, its address after redirects, its type, and headers for conditions.

        :param start: of a file: the byte to begin at.
        """
        try:
            import pycurl
        except ImportError as error:
            raise UsageError("an index is read by pycurl: pip install 'rocm-relink[index]'") from error
        parts, shown = urlsplit(url), without_secrets(url)
        path = quote(parts.path, safe="/%:@!$&'()*+,;=~") or "/"
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise FetchError(f"{shown}: not an address that is read: http and https are")
        facts: dict[str, str] = {}
        failed: list[Exception] = []

        def on_header(line: bytes) -> None:
            name, _, value = line.decode("latin-1").partition(":")
            # The headers of a redirect or a proxy may come before: only the last ones count.
            if name.startswith("HTTP/"):
                facts.clear()
            elif name.lower() in _CONDITIONS:
                facts[name.lower()] = value.strip()

        def on_data(data: bytes) -> int:
            try:
                if sink.tell() + len(data) > limit:
                    raise WrongFileError(f"{shown}: larger than the {limit} bytes that are expected")
                return sink.write(data)
            except (FetchError, OSError) as error:  # curl would not let it through
                failed.append(error)
                return 0

        web = pycurl.PROTO_HTTPS | (pycurl.PROTO_HTTP if parts.scheme == "http" else 0)
        options: dict[int, Any] = {
            pycurl.URL: urlsplit(shown)._replace(path=path, fragment="").geturl(),
            pycurl.USERAGENT: f"rocm-relink/{__version__}",
            pycurl.HTTPHEADER: headers,
            pycurl.HEADERFUNCTION: on_header,
            pycurl.WRITEFUNCTION: on_data,
            pycurl.FAILONERROR: 1,
            pycurl.FOLLOWLOCATION: 1,
            pycurl.MAXREDIRS: _REDIRECTS,
            pycurl.REDIR_PROTOCOLS: web,
            pycurl.NETRC: pycurl.NETRC_OPTIONAL,
            pycurl.CONNECTTIMEOUT: _TIMEOUT,
            pycurl.NOSIGNAL: 1,
            pycurl.RESUME_FROM_LARGE: start or 0,
        }
        if start is None:
            options |= {pycurl.TIMEOUT_MS: int(PAGE_PACE * 1000), pycurl.ACCEPT_ENCODING: ""}
        else:
            options |= {pycurl.LOW_SPEED_TIME: FILE_PACE[0], pycurl.LOW_SPEED_LIMIT: FILE_PACE[1]}
        options |= self._access(pycurl, parts)
        with contextlib.closing(pycurl.Curl()) as handle:
            code = 0
            try:
                for option, value in options.items():
                    handle.setopt(option, value)
                handle.perform()
            except pycurl.error as error:
                if failed:
                    raise failed[0] from None
                code, text = error.args
                if code != pycurl.E_HTTP_RETURNED_ERROR and not (start and code == pycurl.E_RANGE_ERROR):
                    slow = "too slow" if code == pycurl.E_OPERATION_TIMEDOUT else "cannot be read"
                    raise FetchError(f"{shown}: {slow} ({text})") from error
            status = handle.getinfo(pycurl.RESPONSE_CODE)
            # The server sends no parts, or has no more than what is there already, which libcurl takes for success.
            if start and (code == pycurl.E_RANGE_ERROR or status == 416):
                sink.seek(0)
                sink.truncate()
                return self._read(url, sink, limit, [], 0)
            # 206 is a part of a file that was asked for, 304 a page that has not changed since it was kept.
            if status not in ((200, 304) if start is None and len(headers) > 1 else (200, 206)):
                raise FetchError(f"{shown}: the server answers {status}", missing=status in (404, 410))
            facts["url"], facts["status"] = handle.getinfo(pycurl.EFFECTIVE_URL), str(status)
            facts["kind"] = (handle.getinfo(pycurl.CONTENT_TYPE) or "").partition(";")[0].strip().lower()
        return facts

    def _access(self, pycurl: Any, parts: Any) -> dict[int, Any]:
        """Credentials, certificates, a proxy; a libcurl of a wheel does not know where this system has its certificates."""
        settings, paths = self.settings, ssl.get_default_verify_paths()
        found = {
            pycurl.USERPWD: _secret(parts) or self._secrets.get(_host(parts)),
            pycurl.NETRC_FILE: os.environ.get("NETRC"),
            pycurl.CAINFO: settings.cert or paths.cafile,
            pycurl.CAPATH: paths.capath,
            pycurl.SSLCERT: settings.client_cert,
            pycurl.PROXY: settings.proxy,
        }
        return {option: value for option, value in found.items() if value}


def without_secrets(url: str) -> str:
    """Return an address without a user and a password, for messages."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    return url


def _host(parts: Any) -> tuple[Any, ...]:
    return parts.scheme, parts.hostname, parts.port


def _secret(parts: Any) -> str | None:
    if parts.username is None:
        return None
    return f"{unquote(parts.username)}:{unquote(parts.password or '')}"


def _cached(place: Path, limit: int) -> tuple[dict[str, str], bytes]:
    """What was kept of a page, and its content; nothing where that cannot be read."""
    with contextlib.suppress(OSError, RelinkError, ValueError, LookupError, AttributeError):
        head, _, body = read_bytes(place, limit + (1 << 16)).partition(b"\n")
        known: dict[str, str] = parse_json(head.decode())
        if known["sha256"] == hashlib.sha256(body).hexdigest() and known["url"] and known["kind"]:
            return known, body
    return {}, b""


def _keep(place: Path, facts: Mapping[str, str], body: bytes) -> None:
    """Keep a page; a place that cannot be written costs time later and nothing else."""
    head = json.dumps({**facts, "sha256": hashlib.sha256(body).hexdigest()})
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(place) as file:
            file.write(head.encode() + b"\n" + body)


def _local_page(url: str, limit: int) -> Page:
    """A page in a file, or one of an index that lies in a directory, as pip reads it."""
    path = unquote(urlsplit(url).path)
    try:
        # Not of a project of an index: its address has a slash at the end.
        if os.path.isfile(path):
            return Page(url, "text/html", read_bytes(path, limit))
        name = next((name for name in _INDEX_FILES if os.path.exists(os.path.join(path, name))), "index.html")
        return Page(f"{url.rstrip('/')}/", _INDEX_FILES[name], read_bytes(os.path.join(path, name), limit))
    except OSError as error:
        raise_if_machine_fault(error, url)
        missing = isinstance(error, FileNotFoundError)
        raise FetchError(f"{url}: cannot be read ({error})", missing=missing) from error


class PipSettings(msgspec.Struct, frozen=True):
    """What pip would ask, and how.

    :ivar indexes: addresses of simple indexes, in pip's order, without a slash at the end.
    :ivar cert: a file of certificates to trust; None for the system's.
    :ivar client_cert: a file with a certificate and its key for servers that ask for one.
    :ivar proxy: an address; None for what the environment says.
    :ivar find_links: directories, and addresses of pages, that list wheels of several projects.
    :ivar addresses: of all indexes that are asked, those of a recipe, too: their credentials are for all of their hosts.
    """

    indexes: tuple[str, ...] = ()
    cert: str | None = None
    client_cert: str | None = None
    proxy: str | None = None
    find_links: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()


def pip_settings() -> PipSettings:
    """Ask pip what it is configured for.

    :raises UsageError: there is no pip.
    :raises InstallerError: it fails.
    """
    pip = find_pip()
    values: dict[str, str] = {}
    lines = [*filter(None, map(_LINE.fullmatch, _run_pip([*pip, "config", "list"]).splitlines()))]
    for section in _SECTIONS:
        own = (line for line in lines if line["section"] == section)
        values |= {line["key"]: ast.literal_eval(line["value"]) for line in own}
    indexes: list[str] = []
    if values.get("no-index", "").strip().lower() not in ("1", "true", "yes", "on"):
        indexes.append(values.get("index-url") or _default_index(pip))
        indexes += values.get("extra-index-url", "").split()
    return PipSettings(
        tuple(dict.fromkeys(index.rstrip("/") for index in indexes)),
        values.get("cert"),
        values.get("client-cert"),
        values.get("proxy"),
        tuple(values.get("find-links", "").split()),
    )


def _default_index(pip: Sequence[str]) -> str:
    """The index that pip asks where none is configured: its help says it."""
    match = _DEFAULT.search(_run_pip([*pip, "download", "--help"]))
    if match is None:
        raise UsageError(
            "pip does not say which index it asks; set its index-url, or name the index in the recipe"
        )
    return match[1]


def _run_pip(command: Sequence[str]) -> str:
    try:
        run = ask_program(command, directory="/")
    except NoAnswerError as error:
        raise InstallerError(f"pip cannot be asked for its configuration ({error})") from error
    if run.returncode != 0:
        raise InstallerError("pip cannot be asked for its configuration", run.stderr.splitlines()[-3:])
    return run.stdout
