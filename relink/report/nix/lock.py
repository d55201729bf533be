"""The plan of a wheel as a lock for Nix: what is linked to which package of the store, without hashes and versions.

A build makes its own plan; the lock says whether it is the one that was made before. It has what tells two
plans apart and stays the same in every nixpkgs in which the wheel is linked in the same way: search paths are sets, each once.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from relink.planning.model.files import FilePlan
from relink.planning.model.model import Plan
from relink.providers.nix_store import name_in_store_path, store_path
from relink.system.bounded_json import JSON_LIMIT, parse_json
from relink.system.errors import UsageError
from relink.system.findings.model import Finding, finding
from relink.system.safe_open import read_text
from relink.system.text import join_truncated

SCHEMA = "relink.nix.lock/1"


def lock_json(plan: Plan) -> str:
    """Return the lock of a plan: search paths by number, and of each file that changes the number and its edits of NEEDED."""
    return json.dumps(_lock(plan), indent=1) + "\n"


def _lock(plan: Plan) -> dict[str, Any]:
    paths: list[list[str]] = []
    files = {}
    for file in sorted(plan.changed, key=lambda changed: changed.path):
        path = _packages(file)
        if path not in paths:
            paths.append(path)
        edit = file.edit
        edits = {"replace": dict(edit.replace), "remove": list(edit.remove), "add": list(edit.add)}
        files[file.path] = {
            "path": paths.index(path),
            **{name: value for name, value in edits.items() if value},
        }
    releases = [provider.rocm_version for provider in plan.providers if provider.rocm_version]
    return {
        "schema": SCHEMA,
        **({"rocm": releases[0].split(".")[0]} if releases else {}),
        "paths": paths,
        "files": files,
        "stubs": sorted(stub.soname for stub in plan.stubs),
    }


def _packages(file: FilePlan) -> list[str]:
    """The directories of a search path in packages of the store: ``clr/lib``, ``gcc-lib/lib``."""
    found = set()
    for entry in (file.rpath.after or "").split(":"):
        if package := store_path(entry):
            name = name_in_store_path(package)
            output = f"-{name.output}" if name.output else ""
            found.add(f"{name.package}{output}{entry[len(package) :]}")
    return sorted(found)


def lock_findings(path: Path, plan: Plan, *, strict: bool) -> tuple[Finding, ...]:
    """Compare a plan with the lock in a file.

    :param strict: a difference is an error.
    :raises UsageError: the file cannot be read, or is no lock.
    """
    try:
        lock = parse_json(read_text(path, JSON_LIMIT))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path}: cannot be read as a lock ({error}); write it anew by relink nix --lock"
        ) from error
    if not isinstance(lock, dict) or lock.get("schema") != SCHEMA:
        raise UsageError(f"{path}: is no lock of this relink ({SCHEMA}); write it anew by relink nix --lock")
    before, after = _by_file(lock), _by_file(_lock(plan))
    other = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    if not other:
        return ()
    text = f"not what the lock says of {join_truncated(other)}"
    return (finding("RLK716", str(path), text, level="error" if strict else "warning"),)


def _by_file(lock: dict[str, Any]) -> dict[str, Any]:
    """What a lock says of each file, with the search path in the place of its number; "stubs" beside them."""
    files, paths = lock.get("files"), lock.get("paths")
    rows = files.items() if isinstance(files, dict) else ()
    numbered = {str(number): path for number, path in enumerate(paths if isinstance(paths, list) else ())}
    return {
        str(name): {**row, "path": numbered.get(str(row.get("path")))}
        for name, row in rows
        if isinstance(row, dict)
    } | {"stubs": lock.get("stubs")}
