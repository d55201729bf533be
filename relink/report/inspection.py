"""What a wheel is, before anything is decided: the facts of its ELF members."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, repeat
from typing import Any

import msgspec

from relink.elf.image import Image, machine_name
from relink.elf.symbols import SymbolTable
from relink.planning.model import WheelFacts, to_data
from relink.report.lines import Line, align_rows
from relink.system.findings.model import Finding


class ElfFacts(msgspec.Struct, frozen=True):
    """One ELF member: its dynamic section, and the versions it requires as (soname, versions)."""

    path: str
    size: int
    machine: str
    soname: str | None
    needed: tuple[str, ...]
    search_kind: str | None
    search_path: str | None
    interpreter: str | None
    versions: tuple[tuple[str, tuple[str, ...]], ...]
    imports: int
    exports: int


class Inspection(WheelFacts, frozen=True):
    """A wheel: its name and tags, members, ELF facts and findings."""

    members: int
    size: int
    unpacked: int
    files: tuple[ElfFacts, ...]
    findings: tuple[Finding, ...]


def elf_facts(image: Image, table: SymbolTable) -> ElfFacts:
    """Put the facts of one member together."""
    versions = tuple((need.file, tuple(version.name for version in need.versions)) for need in table.verneeds)
    return ElfFacts(
        image.path,
        image.size,
        machine_name(image.header.machine),
        image.soname,
        image.needed,
        image.search_kind,
        image.search_path,
        image.interpreter,
        versions,
        len(table.imports),
        sum(len(exports) for exports in table.exports.values()),
    )


def to_json(inspection: Inspection) -> dict[str, Any]:
    """Return the inspection as JSON data (``relink.inspection/1``)."""
    return {"schema": "relink.inspection/1", **to_data(inspection)}


def to_text(inspection: Inspection) -> list[Line]:
    """Return the inspection for people: a head line and one table a file."""
    parts = [
        Line(f"{inspection.name} {inspection.version}", style="bold"),
        Line(
            f"{inspection.members} files, {_size(inspection.size)}, {_size(inspection.unpacked)} unpacked; "
            f"tags {', '.join(inspection.tags)}"
        ),
    ]
    for file in inspection.files:
        path = [] if file.search_path is None else file.search_path.split(":")
        kind = "RPATH" if file.search_kind == "rpath" else "RUNPATH"
        rows = [
            *_headed("needs", file.needed or ("nothing",)),
            *_headed(kind, [entry or "(empty: current directory)" for entry in path]),
            *([("interpreter", file.interpreter)] if file.interpreter else []),
            *(("requires", f"{', '.join(versions)} of {soname}") for soname, versions in file.versions),
            ("symbols", f"{file.imports} imported, {file.exports} exported"),
        ]
        table = align_rows((Line(f"{name:<12}", style="dim"), text) for name, text in rows)
        parts += [Line(), Line(f"{file.path}  ({file.machine}, {_size(file.size)})", style="bold"), *table]
    return parts + [
        Line(f"{finding.level} {finding.code} {finding.subject}: {finding.message}")
        for finding in inspection.findings
    ]


def _headed(word: str, texts: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Return a row for each text, the first of them with the word before it."""
    return zip(chain([word], repeat("")), texts, strict=False)


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count / 1e3:.1f} kB"
