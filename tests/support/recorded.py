"""What relink reads of a vendor's wheel, or of a ROCm, recorded as JSON: so that a profile can be tested without either.

``scripts/record-wheel`` writes a recording. Of every ELF member it has the dynamic section, the version records, the imports that
relocations name and the exports that another member asks for; of the wheel the names of all members and what is wrong with its
RECORD. A recorded wheel or prefix is made again as small ELF files (:mod:`tests.support.elf_builder`), which relink then reads
as it reads the vendor's: nothing behind the reading knows the difference, but for GPU code, which is not recorded.

Of a prefix it has the libraries that the recorded wheels need, directly and through each other, with the exports that the wheels
ask for.
"""

from __future__ import annotations

import argparse
import json
import posixpath
import sys
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from relink.elf.image import Image, read_image
from relink.elf.symbol_reader import read_symbols
from relink.elf.symbols import SymbolTable
from relink.loader.target import GLIBC_SONAMES, find_target
from relink.providers.prefix import open_prefix
from relink.system.safe_open import map_file
from relink.vendors.rocm.places import release_of
from relink.wheel.record import check_record, read_record
from tests.support.elf_builder import WEAK, Export, Import, Library, build
from tests.support.wheels import make_wheel
from tests.support.works import open_wheel

SCHEMA = "relink.recorded/1"
DIRECTORY = Path(__file__).resolve().parents[1] / "unit" / "providers" / "profiles" / "recorded"


# Recording


def record_wheel(path: Path) -> dict[str, Any]:
    """Return what is recorded of a wheel."""
    with ExitStack() as stack:
        wheel = open_wheel(path, stack)
        archive = wheel.archive
        entries, _ = read_record(archive)
        issues = check_record(entries, archive.members, archive.dist_info)
        kinds = [issue.kind.name for issue in issues]
        asked = {item.name for table in wheel.tables.values() for item in table.imports}
        return {
            "schema": SCHEMA,
            "read": {"filename": path.name, "sha256": archive.sha256(), "size": archive.size},
            "record_issues": {kind: kinds.count(kind) for kind in sorted(set(kinds))},
            "members": [name for name in archive.members if name not in wheel.images],
            "elf": {name: _facts(image, wheel.tables[name], asked) for name, image in wheel.images.items()},
        }


def _facts(image: Image, table: SymbolTable, asked: Collection[str]) -> dict[str, Any]:
    """The dynamic section and the symbols of one file; `asked` are the exports that anybody wants."""
    facts: dict[str, Any] = {
        "soname": image.soname,
        "needed": list(image.needed),
        "rpath": image.rpath,
        "runpath": image.runpath,
        "interpreter": image.interpreter,
        "size": image.size,
        "versions": {need.file: [item.name for item in need.versions] for need in table.verneeds},
        "imports": [
            [item.name, item.version, item.file, *(["weak"] if item.binding == "weak" else [])]
            for item in table.imports
            if item.relocated
        ],
        "exports": [
            [name, found.version, *(["hidden"] if found.hidden else [])]
            for name, every in table.exports.items()
            if name in asked
            for found in every
        ],
        "exported": len(table.exports),
    }
    return {key: value for key, value in facts.items() if value not in (None, [], {})}


def record_prefix(prefix: str, interpreter: str, wheels: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what is recorded of a prefix: what `wheels` need of it, and what that needs."""
    wheels = list(wheels)
    provider = open_prefix(prefix, find_target(interpreter=interpreter))
    asked = {
        row[0] for wheel in wheels for facts in wheel["elf"].values() for row in facts.get("imports", ())
    }
    waiting = {
        name for wheel in wheels for facts in wheel["elf"].values() for name in facts.get("needed", ())
    }
    stems = {name.partition(".so")[0] for name in waiting}
    waiting |= {name for name in provider.libraries if name.partition(".so")[0] in stems}
    found: dict[str, Any] = {}
    while waiting:
        name = waiting.pop()
        path = provider.find(name)
        if path is None or name in found or name in GLIBC_SONAMES:
            continue
        with map_file(path) as buffer:
            image = read_image(buffer, path)
            table = read_symbols(buffer)
        if image.soname != name:
            continue
        facts = _facts(image, SymbolTable(exports=table.exports), asked)
        found[name] = {"path": posixpath.relpath(path, provider.path), **facts}
        waiting |= set(image.needed)
    release = release_of(provider)
    return {
        "schema": SCHEMA,
        "read": {"rocm": release.release if release else None},
        "libraries": dict(sorted(found.items())),
    }


def written(data: Mapping[str, Any]) -> str:
    """The recording as it is kept: a line for each member, so that a difference between two can be read."""

    def lines(value: Any, depth: int) -> str:
        if isinstance(value, Mapping) and value and depth < 3:
            inner = [f'{" " * depth}"{key}": {lines(item, depth + 1)}' for key, item in value.items()]
            return "{\n" + ",\n".join(inner) + "\n" + " " * (depth - 1) + "}"
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)

    return lines(data, 1) + "\n"


# Making it again


def read_recorded(name: str) -> dict[str, Any]:
    """Return a recording that is kept beside the tests."""
    data = json.loads((DIRECTORY / f"{name}.json").read_text(encoding="utf-8"))
    assert data["schema"] == SCHEMA
    return dict(data)


def library(facts: Mapping[str, Any]) -> Library:
    """Return the small ELF file that has these facts."""
    imports = tuple(
        Import(row[0], row[1], row[2], *((WEAK,) if "weak" in row[3:] else ()))
        for row in facts.get("imports", ())
    )
    exports = tuple(Export(row[0], row[1], hidden="hidden" in row[2:]) for row in facts.get("exports", ()))
    return Library(
        soname=facts.get("soname"),
        needed=tuple(facts.get("needed", ())),
        rpath=facts.get("rpath"),
        runpath=facts.get("runpath"),
        imports=imports,
        exports=exports,
    )


def make_recorded_wheel(directory: Path, data: Mapping[str, Any]) -> Path:
    """Write a wheel with the name, the members and the ELF facts of a recorded one."""
    name, version, tag = data["read"]["filename"].removesuffix(".whl").split("-", 2)
    info = f"{name}-{version}.dist-info/"
    files: dict[str, bytes | Path] = {
        member: b"" for member in data["members"] if not member.startswith(info)
    }
    files |= {member: build(library(facts)) for member, facts in data["elf"].items()}
    return make_wheel(
        directory, files, name=name, version=version, tag=tag, hashes="NO_HASH" not in data["record_issues"]
    )


def make_recorded_prefix(directory: Path, data: Mapping[str, Any], without: Collection[str] = ()) -> Path:
    """Write the libraries of a recorded prefix, those named in `without` left out, and the file that tells its release."""
    for name, facts in data["libraries"].items():
        if name not in without:
            path = directory / facts["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            library({key: facts[key] for key in facts if key != "imports"}).write(path)
    info = directory / ".info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "version").write_text(f"{data['read']['rocm']}\n")
    return directory


def bound_by(data: Mapping[str, Any], symbol: str) -> list[str]:
    """The recorded libraries that export a symbol."""
    rows = {name: facts.get("exports", ()) for name, facts in data["libraries"].items()}
    return [name for name, found in rows.items() if any(row[0] == symbol for row in found)]


def main(arguments: list[str] | None = None) -> int:
    """Record a wheel, or with --prefix what the wheels recorded before need of a ROCm."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("wheel", nargs="?", type=Path, help="the vendor's wheel")
    parser.add_argument("--prefix", help="a ROCm; needs --interpreter, and RECORDING… instead of a wheel")
    parser.add_argument("--interpreter", help="the loader that goes with it")
    parser.add_argument("--for", dest="recordings", nargs="*", default=[], type=Path, help="recorded wheels")
    parser.add_argument(
        "-o", "--output", type=Path, help="where the recording goes; default: standard output"
    )
    chosen = parser.parse_args(arguments)
    if (chosen.wheel is None) == (chosen.prefix is None):
        parser.error("name a wheel, or --prefix and what is recorded --for it")
    if chosen.wheel is not None:
        data = record_wheel(chosen.wheel)
    else:
        wheels = [json.loads(path.read_text(encoding="utf-8")) for path in chosen.recordings]
        data = record_prefix(chosen.prefix, chosen.interpreter, wheels)
    text = written(data)
    if chosen.output is None:
        sys.stdout.write(text)
    else:
        chosen.output.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
