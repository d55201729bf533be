"""Reading addresses that a recipe or an index names, by curl: http and https, and pages of an index that is a directory.

Redirects lead to http and https only, and from https to https alone; a page has a largest size and a longest time, and a file a
least rate, so one without an end is refused. What a page was stays in ``$XDG_CACHE_HOME/relink/pages``, and is asked for on the
condition that it has changed. Source of the rules: RFC 9110 (ranges, redirects, conditional requests).

What pip is configured for (indexes, certificates, a proxy) is asked of pip itself. Source: pip's documentation, "Configuration".
`pip config list` prints what its files and the environment say; of its sections ``:env:`` wins over ``download``, and that over
``global``.

Pages of a simple index, in HTML and JSON: the wheels that one lists, or a uv.lock, and the pages that a site has.

Sources: "Simple repository API" of the PyPA specifications (PEP 503 (HTML), PEP 592 (yanks), PEP 629, PEP 658 and PEP 714
(metadata files), PEP 691 (JSON), PEP 700 (sizes and versions));
uv's documentation, "Lockfile" (`version = 1`; uv2nix reads the same: lib/lock1.nix).
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import html
import io
import json
import os
import posixpath
import re
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from html.parser import HTMLParser
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, unquote, urljoin, urlsplit

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name

from relink import __version__
from relink.indexes.install.installers import InstallerError, cache_directory, find_pip
from relink.providers.profiles import parse_document, read_named_text
from relink.system.atomic import atomic_file
from relink.system.bounded_json import parse_json
from relink.system.errors import RelinkError, UsageError, WheelError
from relink.system.programs import NoAnswerError, ask_program
from relink.system.safe_open import read_bytes
from relink.system.text import escape_untrusted
from relink.wheel.naming import WheelName, parse_wheel_name

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
            head = json.dumps({**facts, "sha256": hashlib.sha256(body.getvalue()).hexdigest()})
            # A place that cannot be written costs time later and nothing else.
            with contextlib.suppress(OSError):
                place.parent.mkdir(parents=True, exist_ok=True)
                with atomic_file(place) as file:
                    file.write(head.encode() + b"\n" + body.getvalue())
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
        # A libcurl of a wheel does not know where this system has its certificates.
        settings, paths = self.settings, ssl.get_default_verify_paths()
        access = {
            pycurl.USERPWD: _secret(parts) or self._secrets.get(_host(parts)),
            pycurl.NETRC_FILE: os.environ.get("NETRC"),
            pycurl.CAINFO: settings.cert or paths.cafile,
            pycurl.CAPATH: paths.capath,
            pycurl.SSLCERT: settings.client_cert,
            pycurl.PROXY: settings.proxy,
        }
        options |= {option: value for option, value in access.items() if value}
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
        index = values.get("index-url")
        if not index:
            # That which pip asks where none is configured: its help says it.
            match = _DEFAULT.search(_run_pip([*pip, "download", "--help"]))
            if match is None:
                raise UsageError(
                    "pip does not say which index it asks; set its index-url, or name the index in the recipe"
                )
            index = match[1]
        indexes.append(index)
        indexes += values.get("extra-index-url", "").split()
    return PipSettings(
        tuple(dict.fromkeys(index.rstrip("/") for index in indexes)),
        values.get("cert"),
        values.get("client-cert"),
        values.get("proxy"),
        tuple(values.get("find-links", "").split()),
    )


def _run_pip(command: Sequence[str]) -> str:
    try:
        run = ask_program(command, directory="/")
    except NoAnswerError as error:
        raise InstallerError(f"pip cannot be asked for its configuration ({error})") from error
    if run.returncode != 0:
        raise InstallerError("pip cannot be asked for its configuration", run.stderr.splitlines()[-3:])
    return run.stdout


FILES = "files"
METADATA, SBOM_FILE = ".metadata", ".cdx.json"
"""What the names of files end in that lie beside a wheel."""
# The way from the page of a project to the top of the site.
_UP = "../../../"
PAGE_LIMIT = 32 << 20
"""Bytes of one project's page. The largest known has some 10 MB."""
_FILES = 200_000
# Bytes; the lock of a large workspace has a few millions.
_LOCK_LIMIT = 32 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}", re.IGNORECASE)
_ANCHOR = re.compile(r"(?=<a\s)", re.IGNORECASE)
_PIECE = 8192  # characters per anchor
_FRAGMENT = re.compile(r"sha256=([0-9a-fA-F]{64})(?:&|$)")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z", re.ASCII)  # PEP 700
# Characters of what a page says about a file.
_TEXT = 2000
# The same name is asked for once for each target.
name_of = lru_cache(10_000)(parse_wheel_name)


class ListedWheel(msgspec.Struct, frozen=True):
    """A wheel that a source has.

    :ivar url: where it is; of a directory a path's ``file`` address.
    :ivar sha256: in hex; None where the source does not say it.
    :ivar size: bytes; None where the source does not say it.
    :ivar requires_python: a specifier; None where there is none, or one that cannot be read.
    :ivar yanked: the reason, perhaps empty; None where it is not yanked (PEP 592).
    :ivar uploaded: when, as the source writes it (PEP 700); None where it does not say it.
    """

    name: WheelName
    url: str
    sha256: str | None = None
    size: int | None = None
    requires_python: str | None = None
    yanked: str | None = None
    uploaded: str | None = None

    @property
    def filename(self) -> str:
        """The wheel's file name."""
        return self.name.filename


def read_page(page: Page, project: NormalizedName | None) -> tuple[tuple[ListedWheel, ...], tuple[str, ...]]:
    """Return the wheels of a page, and a sentence for each file that is passed over for what its entry says.

    Source distributions and other files that are no wheels are left out without a word.

    :param project: whose page it is; None for a page of several.
    :raises FetchError: it is no page of a simple index.
    """
    files = _json_files(page) if page.kind.endswith("json") else _html_files(page)
    wheels: dict[str, ListedWheel] = {}
    refused: list[str] = []
    for number, file in enumerate(files):
        if number >= _FILES:
            raise FetchError(f"{page.url}: the page lists more than {_FILES} files")
        name = file.get("filename")
        if not isinstance(name, str) or not name.endswith(".whl"):
            continue
        try:
            wheel = _checked(file, name, page.url, project)
        except WheelError as error:
            refused.append(f"{page.url}: {name[:_TEXT]!r} is passed over: {error.message}")
            continue
        if wheels.setdefault(wheel.filename, wheel).sha256 != wheel.sha256:
            refused.append(f"{page.url}: {wheel.filename!r} is listed with two hashes; the first is taken")
    return tuple(wheels.values()), tuple(refused)


def _checked(
    file: Mapping[str, Any], filename: str, base: str, project: NormalizedName | None
) -> ListedWheel:
    """Take what an entry says, by the keys of PEP 691, where it is what it should be.

    :raises WheelError: its name, address or hash is not.
    """
    name, address, hashes = parse_wheel_name(filename), file.get("url"), file.get("hashes")
    if project is not None and name.canonical != project:
        raise WheelError(f"it is no wheel of {project}")
    if not isinstance(address, str):
        raise WheelError("it has no address")
    try:
        url = urljoin(base, address)
        parts = urlsplit(url)
    except ValueError as error:
        raise WheelError(f"its address cannot be read ({error})") from error
    local = parts.scheme == "file" and urlsplit(base).scheme == "file" and not parts.netloc
    if not local and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise WheelError(f"its address is none of http or https: {url[:_TEXT]!r}")
    # PEP 503: the text is the last part of the path.
    if unquote(parts.path).rpartition("/")[2] != filename:
        raise WheelError("its address has another file name")
    sha256 = hashes.get("sha256") if isinstance(hashes, Mapping) else None
    if sha256 is not None and not (isinstance(sha256, str) and _DIGEST.fullmatch(sha256)):
        raise WheelError("its sha256 is none")
    size, yanked, uploaded = file.get("size"), file.get("yanked"), file.get("upload-time")
    return ListedWheel(
        name,
        url.partition("#")[0],
        sha256.lower() if sha256 else None,
        size if type(size) is int and 0 <= size < 1 << 50 else None,
        _specifier(file.get("requires-python")),
        # pip prints the reason as the site has it.
        escape_untrusted(yanked[:_TEXT]) if isinstance(yanked, str) else "" if yanked is True else None,
        uploaded if isinstance(uploaded, str) and _TIME.fullmatch(uploaded) else None,
    )


def read_lock(path: Path) -> tuple[ListedWheel, ...]:
    """Return the wheels with an address and a SHA-256, in the order of the file.

    :raises UsageError: it cannot be read, is not TOML, or is no uv.lock.
    """
    text = read_named_text(path, _LOCK_LIMIT, "lock file")
    packages = parse_document(text, path, "lock file").get("package")
    if not isinstance(packages, list):
        raise UsageError(f"{path}: no uv.lock: it has no [[package]]; name the one that `uv lock` writes")
    base = path.absolute().as_uri()
    found: list[ListedWheel] = []
    for package in packages:
        name, wheels = (package.get("name"), package.get("wheels")) if isinstance(package, dict) else (0, 0)
        for wheel in wheels if isinstance(name, str) and isinstance(wheels, list) else ():
            # A file that is no wheel, or one without an address, is left out.
            with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError, WheelError):
                filename = posixpath.basename(unquote(urlsplit(wheel["url"]).path))
                file = {**wheel, "hashes": {"sha256": wheel["hash"].removeprefix("sha256:")}}
                found.append(_checked(file, filename, base, canonicalize_name(str(name))))
    return tuple(found)


def _specifier(value: Any) -> str | None:
    if isinstance(value, str) and value.strip() and len(value) <= _TEXT:
        with contextlib.suppress(InvalidSpecifier):
            return str(SpecifierSet(value))
    return None


def _json_files(page: Page) -> Iterator[Mapping[str, Any]]:
    try:
        data = parse_json(page.body.decode("utf-8", "replace"))
    except ValueError as error:
        raise FetchError(f"{page.url}: the page is not JSON ({error})") from error
    meta, files = (data.get("meta"), data.get("files")) if isinstance(data, dict) else (None, None)
    if not isinstance(meta, dict) or not isinstance(files, list):
        raise FetchError(f"{page.url}: not a page of a simple index (PEP 691)")
    version = str(meta.get("api-version", "1.0"))
    if version.partition(".")[0] != "1":
        raise FetchError(
            f"{page.url}: a page of version {version[:20]!r} of the simple index; version 1 is known"
        )
    return (file for file in files if isinstance(file, dict))


def _html_files(page: Page) -> Iterator[Mapping[str, Any]]:
    anchors = _Anchors()
    # Piece by piece: html.parser takes a time that grows with the square of what it cannot make sense of.
    for number, piece in enumerate(_ANCHOR.split(page.body.decode("utf-8", "replace"))):
        if number > _FILES:
            raise FetchError(f"{page.url}: the page lists more than {_FILES} files")
        anchors.reset()
        # html.parser raises AssertionError for some markup that is none.
        with contextlib.suppress(AssertionError):
            anchors.feed(piece[:_PIECE])
            anchors.close()
    base = _joined(page.url, anchors.base or "")
    for attributes, text in anchors.found:
        url = attributes.get("href") or ""
        match = _FRAGMENT.search(url.partition("#")[2])
        yield {
            "filename": "".join(text).strip(),
            "url": _joined(base, url),
            "hashes": {"sha256": match[1]} if match else None,
            "requires-python": attributes.get("data-requires-python"),
            "yanked": attributes.get("data-yanked", False) or "data-yanked" in attributes,
        }


def _joined(base: str, url: str) -> str:
    """An address as a browser reads it; one that cannot be read as it is."""
    with contextlib.suppress(ValueError):
        return urljoin(base, url)
    return url


class _Anchors(HTMLParser):
    """Collects the anchors of a page with their text, and the address that relative ones begin at."""

    def __init__(self) -> None:
        self.found: list[tuple[dict[str, str | None], list[str]]] = []
        self.base: str | None = None
        super().__init__(convert_charrefs=True)

    def reset(self) -> None:
        super().reset()
        self._open: tuple[dict[str, str | None], list[str]] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "base" and self.base is None:
            self.base = dict(attrs).get("href")
        elif tag == "a":
            self._open = dict(attrs), []

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self._open[1].append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "a" and self._open is not None:
            self.found.append(self._open)
            self._open = None


def listed_file(row: Any, record: Mapping[str, Any], originals: str) -> dict[str, Any] | None:
    """Return what an index has of a result, by the keys of PEP 691; None where that is nothing.

    :param row: as :meth:`relink.indexes.build.store.Store.listed` gives it, with its record.
    :param originals: as a recipe has it.
    """
    file, wheel, uploaded = record.get("file"), record.get("wheel"), row["uploaded"]
    original = row["status"] == "original"
    if wheel is None or (original and originals == "omit"):
        return None
    if not (original and uploaded) and (seconds := row["allocated"]) is not None:
        uploaded = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if original and originals == "link" and not wheel["url"].startswith("file:"):
        name, sha256, address = row["filename"], row["input"], wheel["url"]
        file = {"size": wheel["size"], "requires_python": None, "metadata": None}
    elif file is None:
        return None
    else:
        name, sha256 = file["filename"], file["sha256"]
        address = f"{_UP}{FILES}/{sha256[:2]}/{sha256}/{quote(name)}"
    metadata = file["metadata"] and {"sha256": file["metadata"]}
    found = {
        "filename": name,
        "url": address,
        "hashes": {"sha256": sha256},
        "yanked": row["yanked"] or row["yanked"] is not None,
        "size": file["size"],
        "upload-time": uploaded,
        "requires-python": file["requires_python"] or wheel["requires_python"],
        "core-metadata": metadata,
        "dist-info-metadata": metadata,
    }
    return {key: value for key, value in found.items() if value is not None}


def project_pages(project: str, files: Iterable[Mapping[str, Any]]) -> dict[str, bytes]:
    """Return the page of a project as HTML and as JSON, by name of file; of two files of a name the first is taken."""

    def order(file: Mapping[str, Any]) -> tuple[Any, ...]:
        return name_of(file["filename"]).version, file["filename"], file["hashes"]["sha256"]

    named: dict[str, Mapping[str, Any]] = {}
    for file in sorted(files, key=order):
        named.setdefault(file["filename"], file)
    data = {
        # PEP 700 requires a size of every file from 1.1 on.
        "meta": {"api-version": "1.1" if all("size" in file for file in named.values()) else "1.0"},
        "name": project,
        "versions": list(dict.fromkeys(str(name_of(name).version) for name in named)),
        "files": list(named.values()),
    }
    return _pages(f"Links for {project}", map(_anchor, named.values()), data)


def list_pages(index: str, projects: Sequence[str]) -> dict[str, bytes]:
    """Return the page that lists the projects of an index, likewise."""
    links = (f'<a href="{project}/">{project}</a>' for project in projects)
    listed = [{"name": project} for project in projects]
    return _pages(f"Index {index}", links, {"meta": {"api-version": "1.1"}, "projects": listed})


def json_bytes(data: Any) -> bytes:
    """Return JSON as a site has it."""
    return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def _anchor(file: Mapping[str, Any]) -> str:
    attributes = {"href": f"{file['url']}#sha256={file['hashes']['sha256']}"}
    if "requires-python" in file:
        attributes["data-requires-python"] = file["requires-python"]
    if yanked := file["yanked"]:
        attributes["data-yanked"] = "" if yanked is True else yanked
    for key in ("core-metadata", "dist-info-metadata"):
        if key in file:
            attributes[f"data-{key}"] = f"sha256={file[key]['sha256']}"
    shown = " ".join(f'{key}="{html.escape(value)}"' for key, value in attributes.items())
    return f"<a {shown}>{html.escape(file['filename'])}</a>"


def _pages(title: str, links: Iterable[str], data: Mapping[str, Any]) -> dict[str, bytes]:
    lines = "".join(f"{link}<br>\n" for link in links)
    page = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="pypi:repository-version" content="1.0">\n'
        f"<title>{html.escape(title)}</title>\n</head>\n<body>\n<h1>{html.escape(title)}</h1>\n{lines}</body>\n</html>\n"
    )
    return {"index.html": page.encode(), "index.json": json_bytes(data)}
