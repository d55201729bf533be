"""A statement of where an output comes from: an in-toto Statement v1 with SLSA Provenance v1 as its predicate, to be signed.

Specifications: in-toto attestation, ``spec/v1/statement.md`` and ``spec/v1/resource_descriptor.md``; SLSA v1,
``spec/build-provenance.md``. ``relink/schemas/statement.schema.json`` has what relink writes. No time is in it: one input
on one machine gives the same bytes again. It claims no SLSA level: how far it can be trusted depends on who signs it.

The digest of a provider is the SHA-256 of what ``sha256sum`` prints for the libraries of it that the wheel relies on: for each
``<sha256>  <path>`` and a line feed, sorted by path.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from relink import __version__
from relink.elf.patchelf import find_patchelf
from relink.loader.seen_files import resolve_inside
from relink.loader.target import GLIBC_SONAMES
from relink.make.added_members import PLAN_MEMBER
from relink.planning.model.basis import LIBRARY_LIMIT
from relink.planning.model.files import FilePlan
from relink.planning.model.model import ProviderFacts, plain
from relink.planning.options import Options
from relink.report.model import Report
from relink.system.atomic import save
from relink.system.errors import RelinkError, UsageError
from relink.system.safe_open import file_sha256
from relink.wheel.archive import WheelArchive
from relink.wheel.record import default_jobs

STATEMENT: Final = "https://in-toto.io/Statement/v1"
PREDICATE: Final = "https://slsa.dev/provenance/v1"
BUILD_TYPE: Final = "pkg:pypi/rocm-relink#relink/1"
"""Names what the parameters mean: options of ``relink WHEEL`` that are not at their default, and the target."""

# Options that change how a result is made or where it goes, and no byte of it.
_NO_PARAMETERS: Final = frozenset(
    {"output_directory", "gc_root", "dry_run", "jobs", "max_memory", "command", "limits"}
)


def make_statement(
    report: Report, options: Options, digest: Callable[[str], str] | None = None
) -> dict[str, Any]:
    """Return the statement about the output of a report, as JSON data.

    :param options: those of the run.
    :param digest: the SHA-256 of a library, where its digests are known already; by default each is read.
    :raises UsageError: there is no output.
    :raises RelinkError: the output, or a library that it relies on, cannot be read.
    """
    output = report.output
    if output is None:
        raise UsageError("nothing was written, so there is nothing to make a statement about")
    wheel = report.wheel
    digests = _library_digests(report.files, report.providers, report.target.sysroot, digest or _file_digest)
    patchelf = find_patchelf()
    vendor = f"pkg:pypi/{wheel.name}@{wheel.version.replace('+', '%2B')}"
    return {
        "_type": STATEMENT,
        "subject": [{"name": os.path.basename(output.path), "digest": {"sha256": output.sha256}}],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"wheel": wheel.path, "options": _parameters(options)},
                "internalParameters": {"target": plain(report.target)},
                "resolvedDependencies": [
                    {"name": wheel.path, "uri": vendor, "digest": {"sha256": wheel.sha256}},
                    *(_provider(provider, digests) for provider in report.providers),
                    *(
                        {"name": os.path.basename(path), "uri": _uri(path), "digest": {"sha256": digest}}
                        for path, digest in digests.items()
                    ),
                ],
            },
            "runDetails": {
                "builder": {
                    "id": f"pkg:pypi/rocm-relink@{__version__}",
                    "version": {
                        "relink": __version__,
                        "patchelf": str(patchelf.version),
                        "python": platform.python_version(),
                    },
                    "builderDependencies": [
                        {
                            "name": "patchelf",
                            "uri": f"pkg:generic/patchelf@{patchelf.version}",
                            "digest": {"sha256": _file_digest(patchelf.path)},
                        }
                    ],
                },
                "byproducts": _byproducts(Path(output.path)),
            },
        },
    }


def write_statement(statement: Mapping[str, Any], path: Path) -> None:
    """Write a statement under its name whole, or not at all.

    :raises UsageError: it cannot be written.
    """
    save(path, json.dumps(statement, indent=2) + "\n", "the statement")


def _parameters(options: Options) -> dict[str, Any]:
    """The options that are not at their default and that the result depends on."""
    return {
        field.name: plain(value)
        for field in fields(options)
        if field.name not in _NO_PARAMETERS and (value := getattr(options, field.name)) != field.default
    }


def _provider(provider: ProviderFacts, digests: Mapping[str, str]) -> dict[str, Any]:
    own = {path: digest for path, digest in digests.items() if _within(path, provider.path)}
    lines = "".join(f"{digest}  {path}\n" for path, digest in sorted(own.items()))
    release = {"rocm": provider.rocm_version} if provider.rocm_version else {}
    return {
        "name": f"provider {provider.path}",
        "uri": _uri(provider.path),
        "digest": {"sha256": hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()},
        "annotations": {"kind": provider.kind, "libraries": len(own), **release},
    }


def _within(path: str, directory: str) -> bool:
    return path.startswith(directory.rstrip("/") + "/")


def _uri(path: str) -> str:
    """A path as a ``file`` URI; bytes that are no UTF-8 are percent-encoded like others."""
    return Path(path).as_uri()


def _byproducts(output: Path) -> list[dict[str, Any]]:
    """The plan inside of the output. The copy of a wheel that needed no change has none."""
    with WheelArchive(output) as archive:
        name = f"{archive.dist_info}/{PLAN_MEMBER}"
        if name not in archive.members:
            return []
        digest = hashlib.sha256(archive.read(name)).hexdigest()
    return [{"name": name, "digest": {"sha256": digest}, "mediaType": "application/json"}]


def _library_digests(
    files: Iterable[FilePlan],
    providers: Sequence[ProviderFacts],
    sysroot: str,
    digest: Callable[[str], str],
) -> dict[str, str]:
    """SHA-256 of each library of the providers that is in a closure, by path as the target sees it, sorted.

    The C library's own parts belong to the target, whose distribution updates them: they are left out.
    """
    paths = {
        path
        for file in files
        for soname, path in file.closure
        if soname not in GLIBC_SONAMES and any(_within(path, provider.path) for provider in providers)
    }
    with ThreadPoolExecutor(default_jobs(), "relink-digest") as pool:
        digests = pool.map(lambda path: digest(resolve_inside(sysroot, path)), ordered := sorted(paths))
        return dict(zip(ordered, digests, strict=True))


def _file_digest(path: str) -> str:
    """SHA-256 of a file.

    :raises RelinkError: it cannot be read, or is no regular file of a library's size.
    """
    try:
        return file_sha256(path, LIBRARY_LIMIT)
    except OSError as error:
        raise RelinkError(f"{path}: cannot be read ({error.strerror})") from error
