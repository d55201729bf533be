"""Bindings against ``ldd -r`` over every ELF of the vendors' wheels and of real prefixes."""

from __future__ import annotations

import fnmatch
import os
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relink.elf.constants import EM_X86_64
from relink.elf.image import read_header
from relink.loader.search import Environment
from relink.loader.seen_files import Files
from relink.loader.tables import Tables
from relink.loader.target import GLIBC_SONAMES, find_target
from relink.system.errors import RelinkError
from tests.fuzz.real_binding import LoaderCrashError, really_bind, simulated_bind

pytestmark = pytest.mark.real
LIBRARIES = "lib/x86_64-linux-gnu"
TOO_BIG = 1 << 30  # bytes of a member that is not worth unpacking


def _from(variable: str) -> Path:
    value = os.environ.get(variable)
    if not value:
        pytest.skip(f"{variable} is not set")
    return Path(value).resolve()


def _elves(top: Path) -> Iterator[str]:
    """Yield what this machine could load below `top`."""
    for directory, _, files in os.walk(top):
        for name in sorted(files):
            path = Path(directory, name)
            if path.is_symlink() or not path.is_file():
                continue
            with path.open("rb") as file:
                head = file.read(64)
            if head[:4] != b"\x7fELF" or len(head) < 64:
                continue
            header = read_header(head, str(path))
            if header.machine == EM_X86_64 and header.elf_class == 64 and header.kind in (2, 3):
                yield str(path)


def _compare(top: Path, environment: Environment, *, bindings: bool = True) -> Counter[str]:
    tables = Tables(environment.files, {})
    counts: Counter[str] = Counter()
    wrong = []
    for path in _elves(top):
        try:
            said, closure = simulated_bind(environment, path, tables=tables, bindings=bindings)
        except RelinkError:
            counts["not loadable"] += 1
            continue
        if closure.fatal:
            counts["not loadable"] += 1
            continue
        try:
            real = really_bind(environment, path, bindings=bindings)
        except LoaderCrashError:
            counts["the loader itself crashed"] += 1
            continue
        counts["ELF files"] += 1
        counts["unbound symbols"] += len(real.lost)
        counts["missing versions"] += len(real.gone)
        counts["bindings"] += len(real.bound)
        if closure.missing:
            real, said = real.without_versions(), said.without_versions()
        if not real.agrees_with(said):
            wrong.append((path, real.lost ^ said.lost, real.gone ^ said.gone, real.bound ^ said.bound))
    assert not wrong
    return counts


def _report(label: str, counts: Counter[str], record: Callable[[str, object], None]) -> None:
    assert counts["ELF files"]
    for name, value in sorted(counts.items()):
        record(f"compared with ldd -r, {label}, {name}", value)
    print(f"{label}: " + ", ".join(f"{value} {name}" for name, value in sorted(counts.items())))  # noqa: T201


@pytest.mark.parametrize("size", ["full", "small"])
def test_every_file_of_a_prefix(size: str, record_property: Callable[[str, object], None]) -> None:
    prefix = _from(f"RELINK_REAL_PREFIX_{size.upper()}")
    environment = _environment_of(prefix)
    _report(f"{size} prefix", _compare(prefix, environment), record_property)


def _environment_of(prefix: Path) -> Environment:
    libraries = prefix / LIBRARIES
    target = find_target(interpreter=str(libraries / "ld-linux-x86-64.so.2"))
    return Environment(target, Files(), (str(libraries), str(libraries / "migraphx" / "lib")))


@pytest.mark.parametrize("against", ["full", "small", "host"])
def test_every_file_of_the_wheels(
    against: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    wheels = _from("RELINK_REAL_WHEELS")
    if against == "host":
        environment = Environment(find_target(), Files())
    else:
        environment = _environment_of(_from(f"RELINK_REAL_PREFIX_{against.upper()}"))
    total: Counter[str] = Counter()
    for wheel in sorted(wheels.glob("*.whl")):
        unpacked = tmp_path / wheel.name
        with zipfile.ZipFile(wheel) as archive:
            for info in archive.infolist():
                name = info.filename.rsplit("/", 1)[-1]
                if fnmatch.fnmatch(name, "*.so*") and info.file_size < TOO_BIG:
                    archive.extract(info, unpacked)
        total += _compare(unpacked, environment)
        for path in sorted(unpacked.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    _report(f"wheels on {against}", total, record_property)


def test_a_prefix_on_an_older_c_library(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    prefix = _from("RELINK_REAL_PREFIX_SMALL")
    for path in sorted((prefix / LIBRARIES).glob("*.so*")):
        if path.name not in GLIBC_SONAMES:
            (tmp_path / path.name).symlink_to(path)
    environment = Environment(find_target(), Files(), (str(tmp_path),))
    _report("small prefix on the host's C library", _compare(prefix, environment), record_property)
