"""An environment that wheels are installed into: its Python, its directories, whether others keep it, and what is installed.

Source of the rules: "Externally Managed Environments" (PEP 668) and "Recording installed projects" (PEP 376, PEP 627, PEP 610 for
direct_url.json) of the PyPA specifications.

What the import of a package really does, in a process of the environment's own Python; its code runs. `relink check --import`
and benchmarks/imports.py compare it with what is predicted.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
from packaging.utils import canonicalize_name, canonicalize_version

from relink.loader.python import active_python, ask_python
from relink.planning.model import PLAN_MEMBER, Plan, from_json
from relink.system.bounded_json import JSON_LIMIT, parse_json
from relink.system.errors import UsageError, raise_if_machine_fault
from relink.system.programs import Steps, run_side_by_side
from relink.system.safe_open import file_sha256, list_names, read_bytes, read_text
from relink.system.text import join_truncated
from relink.wheel.metadata import read_metadata

# The endings of what describes a distribution; the last two are of editable ones.
_KINDS = ("dist-info", "egg-link", "egg-info")
_DESCRIBING = ("METADATA", "RECORD", "PKG-INFO")
# Bytes of METADATA, as for that of a wheel.
_LIMIT = 64 << 20
_TOOLS = {"pipx_metadata.json": "pipx", "uv-receipt.toml": "uv"}
"""What pipx and `uv tool` leave in the environments that they make; relink itself may run in one."""


# What platform.python_implementation() calls those whose sys.implementation.name is another word.
_PLATFORM_NAMES = {"cpython": "CPython", "pypy": "PyPy", "graalpy": "GraalVM"}


class TargetEnvironment(msgspec.Struct, frozen=True):
    """An environment of Python.

    :ivar python: its Python as it is called there; symbolic links are not resolved, since the environment hangs on the name.
    :ivar prefix: its directory.
    :ivar site: where distributions lie, each directory once.
    :ivar markers: what the Python says of itself in environment markers ("Dependency specifiers" of the PyPA specifications).
    """

    python: str
    prefix: Path
    site: tuple[Path, ...]
    markers: Mapping[str, str] = msgspec.field(default_factory=dict)


def find_environment(
    python: str | None, environment: Mapping[str, str], *, changed: bool = True
) -> TargetEnvironment:
    """Return the environment of `python`, or the active one ($VIRTUAL_ENV), or else that of ``./.venv``.

    :param changed: it will be changed: then nobody else may keep it.
    :raises UsageError: none is named, or another program keeps it (PEP 668).
    :raises TargetError: its Python cannot be asked.
    """
    named = python or active_python(environment)
    here = os.path.abspath(".venv")
    if named is None and os.path.realpath(here) != os.path.realpath(sys.prefix) and os.path.exists(here):
        named = f"{here}/bin/python"
    if named is None:
        raise UsageError(
            "no environment was named: activate a virtual environment, or pass --python PATH; relink's own is never changed"
        )
    program = os.path.abspath(named) if "/" in named else named
    said = ask_python(program)
    prefix = Path(said.prefix)
    if changed and said.managed:
        raise UsageError(
            f"{named} is managed by the system's package manager (PEP 668), and relink installs nothing there; make a virtual "
            f"environment: {named} -m venv DIR, then pass --python DIR/bin/python"
        )
    for mark, tool in _TOOLS.items() if changed else ():
        if (prefix / mark).exists():
            raise UsageError(
                f"{named} is of an environment that {tool} has made for a tool of its own, and relink installs nothing "
                "there; pass the Python of an environment of yours by --python"
            )
    markers = {
        "python_version": "{}.{}".format(*said.version),
        "python_full_version": said.full_version,
        "implementation_name": said.implementation,
        "platform_python_implementation": _PLATFORM_NAMES.get(said.implementation, said.implementation),
    }
    return TargetEnvironment(program, prefix, tuple(map(Path, said.distributions)), markers)


class Installed(msgspec.Struct, frozen=True):
    """One installed distribution.

    :ivar name: as METADATA spells it.
    :ivar dist_info: its directory.
    :ivar installer: what INSTALLER says: ``pip``, ``uv``, ``conda``; empty without that file.
    :ivar plan: the plan of the relinked wheel that it was installed from; None for a vendor's.
    :ivar sha256: of the wheel that it was installed from, where direct_url.json says it.
    :ivar requires: the requirements that METADATA has, as written.
    :ivar record: the SHA-256 of its RECORD; None without that file.
    :ivar wheel: the file that it was installed from, where direct_url.json names one of this machine.
    """

    name: str
    version: str
    dist_info: Path
    installer: str
    editable: bool
    plan: Plan | None
    sha256: str | None
    requires: tuple[str, ...] = ()
    record: str | None = None
    wheel: Path | None = None


def list_dist_infos(environment: TargetEnvironment, name: str) -> list[Path]:
    """Return what describes the distributions that are installed under a name: one, unless something went wrong.

    A directory without METADATA or RECORD describes nothing: an installer leaves it where it has a file that RECORD has not.
    """
    wanted = canonicalize_name(name)
    found = []
    for site in environment.site:
        for entry in list_names(site):
            stem, _, kind = entry.rpartition(".")
            if kind in _KINDS and canonicalize_name(stem.partition("-")[0]) == wanted:
                path = site / entry
                if not path.is_dir() or any((path / name).exists() for name in _DESCRIBING):
                    found.append(path)
    return found


def find_installed(environment: TargetEnvironment, name: str) -> Installed | None:
    """Return what is installed under a name, or None.

    :raises UsageError: what describes it cannot be read, or there are several.
    """
    found = list_dist_infos(environment, name)
    infos = [path for path in found if path.suffix == ".dist-info"]
    if len(infos) > 1:
        several = join_truncated([path.name for path in infos])
        raise UsageError(
            f"{environment.prefix} has {several}: what is installed of {name} is not known; uninstall it until none is left, "
            "and install it again"
        )
    for path in found[:1]:
        if infos:
            return _read(infos[0])
        return Installed(path.stem, "", path, "", editable=True, plan=None, sha256=None)
    return None


def refuse_foreign(environment: TargetEnvironment, installed: Installed) -> None:
    """Refuse what another program keeps.

    :raises UsageError: it is conda's, or an editable installation.
    """
    # conda-meta has a file NAME-VERSION-BUILD.json for each package; INSTALLER is not always there.
    stems = (entry.rsplit("-", 2)[0] for entry in list_names(environment.prefix / "conda-meta"))
    own = canonicalize_name(installed.name)
    if installed.installer == "conda" or any(canonicalize_name(stem) == own for stem in stems):
        raise UsageError(
            f"{installed.name} is a package of conda's in {environment.prefix}, which has its own libraries; relink changes only "
            "what pip or uv has installed. Install the vendor's wheel into a virtual environment"
        )
    if installed.editable:
        raise UsageError(
            f"{installed.name} is an editable installation in {environment.prefix}, so there is no wheel of it to relink; build "
            "one, and pass it to relink"
        )


def _read(dist_info: Path) -> Installed:
    try:
        metadata = read_metadata(read_bytes(dist_info / "METADATA", _LIMIT))
        plan = _text(dist_info / PLAN_MEMBER, JSON_LIMIT)
        url = _text(dist_info / "direct_url.json", JSON_LIMIT)
        record = dist_info / "RECORD"
        digest = file_sha256(record, JSON_LIMIT) if record.exists() else None
        direct = parse_json(url) if url else {}
        hashed = _inside(direct, "archive_info", "hashes", "sha256") or _inside(
            direct, "archive_info", "hash"
        )
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{dist_info}: cannot be read ({error}), so what was installed is not known; install the package again"
        ) from error
    name, _, version = dist_info.stem.rpartition("-")
    source = _inside(direct, "url")
    wheel = None
    if isinstance(source, str) and source.startswith("file:///"):
        path = Path(unquote(source.removeprefix("file://")))
        wheel = path if path.suffix == ".whl" and path.is_file() else None
    said = canonicalize_name(metadata.name or ""), canonicalize_version(metadata.version or "")
    if said != (canonicalize_name(name), canonicalize_version(version.replace("_", "-"))):
        raise UsageError(
            f"{dist_info}: METADATA is that of {metadata.name} {metadata.version}, so what was installed is not known; install "
            "the package again"
        )
    return Installed(
        name=metadata.name or "",
        version=metadata.version or "",
        dist_info=dist_info,
        installer=(_text(dist_info / "INSTALLER", 1024) or "").strip(),
        editable=bool(_inside(direct, "dir_info", "editable")),
        plan=from_json(plan, strict=False) if plan else None,
        sha256=hashed.removeprefix("sha256=") if isinstance(hashed, str) else None,
        requires=metadata.requires_dist,
        record=digest,
        wheel=wheel,
    )


def _inside(data: Any, *keys: str) -> Any:
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _text(path: Path, limit: int) -> str | None:
    try:
        return read_text(path, limit, errors="replace")
    except FileNotFoundError:
        return None


IMPORT_LIMIT = 120.0
"""Seconds of one process."""
_PAUSE = 0.02
_IMPORTS_AT_ONCE = 4
# Bytes of its answer, which the package's code could write as well.
_ANSWER = 16 << 20
_PROGRAM = r"""
import json, os, sys
answer, error, process = int(sys.argv[1]), None, os.getpid()
for name in sys.argv[2:]:
    try:
        __import__(name)
    except BaseException as raised:
        error = error or f"import {name}: {type(raised).__name__}: {raised}"[:2000].rstrip(": ")
found = {}
with open("/proc/self/maps") as maps:
    for line in maps:
        path = line.rstrip("\n").split(None, 5)[5:]
        if path and path[0].startswith("/"):
            try:
                with open(path[0], "rb") as file:
                    if file.read(4) == b"\x7fELF":
                        status = os.fstat(file.fileno())
                        found[f"{status.st_dev}:{status.st_ino}"] = path[0]
            except OSError:
                pass
if process == os.getpid():
    os.write(answer, json.dumps({"mapped": found, "error": error}).encode())
os._exit(0)
"""


class RealImport(msgspec.Struct, frozen=True):
    """What came of importing modules one after the other in one process.

    :ivar mapped: the ELF files that it has mapped in the end: by device and inode the path.
    :ivar error: the first exception, or how the process ended; None where all were imported.
    """

    mapped: Mapping[str, str]
    error: str | None

    def differs(
        self, predicted: Iterable[str], before: RealImport
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the paths that are mapped and not predicted, and the other way round.

        :param before: a process that imports nothing.
        """
        expected = identify(predicted)
        missed = {self.mapped[key] for key in self.mapped.keys() - expected.keys() - before.mapped.keys()}
        invented = {expected[key] for key in expected.keys() - self.mapped.keys() - before.mapped.keys()}
        return tuple(sorted(missed)), tuple(sorted(invented))


def import_all(python: str, modules: Mapping[str, Sequence[str]]) -> dict[str, RealImport]:
    """Import the modules of each distribution in a process of its own, several at once; the key "" imports nothing."""
    wanted = {"": ("sys",), **modules}
    work = [(0, import_really(python, names)) for names in wanted.values()]
    return dict(
        zip(wanted, run_side_by_side(work, min(_IMPORTS_AT_ONCE, os.cpu_count() or 1), 0), strict=True)
    )


def identify(paths: Iterable[str]) -> dict[str, str]:
    """Return paths by device and inode, without those that are not there."""
    found = {}
    for path in paths:
        with suppress(OSError, ValueError):
            status = os.stat(path)
            found[f"{status.st_dev}:{status.st_ino}"] = path
    return found


def import_really(python: str, names: Sequence[str]) -> Steps[RealImport]:
    """Import modules in a process of a Python, with this process's environment variables and in an empty directory.

    What it prints is not read. When it has ended, or its time is over, what it has started is ended with it.

    :raises MachineError: the machine has no process or no memory for it.
    """
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryDirectory(prefix="relink-") as directory:
        try:
            process = subprocess.Popen(
                [python, "-c", _PROGRAM, str(answer.fileno()), *names],
                pass_fds=[answer.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=directory,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
                start_new_session=True,
            )
        except OSError as error:
            raise_if_machine_fault(error, python)
            return RealImport({}, f"{python} cannot be run ({error.strerror})")
        end, ended = time.monotonic() + IMPORT_LIMIT, None
        try:
            yield
            while ended is None and time.monotonic() < end:
                # It is not waited for yet: until then no other group gets its number.
                ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
                time.sleep(0 if ended else _PAUSE)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            status = process.wait()
        if ended is None:
            return RealImport({}, f"import {' '.join(names)}: did not end in {IMPORT_LIMIT:g} s")
        answer.seek(0)
        with suppress(msgspec.MsgspecError):
            return msgspec.json.decode(answer.read(_ANSWER), type=RealImport)
    how = f"died of {signal.Signals(-status).name}" if status < 0 else f"ended with exit code {status}"
    return RealImport({}, f"import {' '.join(names)}: the process {how}")
