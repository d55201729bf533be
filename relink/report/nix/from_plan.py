"""From a plan that was proved with libraries to a package for Nix: directories become attributes, everything else stays."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping

from relink.loader.target import GLIBC_SONAMES
from relink.planning.model.model import FilePlan, Plan
from relink.planning.resolve.search_path import is_of_stubs
from relink.planning.siblings import sibling_of
from relink.providers.nix_store import NIX_STORE, deriver_of, store_path
from relink.report.nix.attributes import attribute_of_path, attribute_of_soname
from relink.report.nix.model import File, Package, PathEntry, Replaced, RunPath
from relink.report.nix.subject import Attributes, Subject, hip_major, package_of, place, sibling_entry
from relink.system.errors import UsageError
from relink.system.findings.model import finding
from relink.system.text import join_truncated
from relink.vendors.registry import is_package

__all__ = ["package_from_plan"]


def package_from_plan(subject: Subject, plan: Plan) -> Package:
    """Make a package of a plan.

    Of libraries that are not in a store (an ordinary prefix), what they export is taken to be true of nixpkgs' as well; how
    they find each other is not, so what was added to NEEDED and a DT_RPATH for their sake are left out.

    :raises UsageError: the wheel's name asks for an address, or a file takes an edit that the functions for Nix cannot make.
    """
    if edited := [file.path for file in plan.files if file.edit.versions]:
        raise UsageError(
            f"{join_truncated(edited)}: version records have to be edited, which the functions for Nix cannot do; "
            "relink the wheel with relink itself"
        )
    major = subject.major or _release_major(plan) or hip_major(subject.context.images.values())
    attributes = Attributes()
    outside = [provider.path for provider in plan.providers if provider.kind != NIX_STORE]
    if outside:
        text = f"checked against {join_truncated(outside)}; the libraries of nixpkgs, which it will be built with, were not seen"
        attributes.findings.append(finding("RLK710", subject.archive.path.name, text))
    by_path = _attributes_of_paths(plan, major, attributes)
    files = [
        _file(subject, file, by_path, major, attributes)
        for file in plan.files
        if file.served and (file.changed or _of_siblings(subject, file))
    ]
    served = [file.path for file in plan.files if file.served]
    return package_of(subject, files, served, attributes, major, proved=not outside, stubs=plan.stubs)


def _release_major(plan: Plan) -> int | None:
    release = next((item.rocm_version for item in plan.providers if item.rocm_version), None)
    return int(release.split(".", 1)[0]) if release else None


def _attributes_of_paths(plan: Plan, major: int | None, attributes: Attributes) -> dict[str, str]:
    """The attribute of each store path that the plan writes into a search path."""
    sonames: dict[str, list[str]] = {}
    for file in plan.files:
        for item, _ in _store_directories(file):
            for soname in _served_by(item, file):
                sonames.setdefault(item, []).append(soname)
    result = {}
    for item, names in sonames.items():
        result[item], known = attribute_of_path(item, names, major)
        if not known:
            built = deriver_of(item)
            by = f"was built by {built} and " if built else ""
            text = f"{by}has {join_truncated(list(dict.fromkeys(names)))}; the attribute is guessed from the path's name"
            given = result[item].split(".")[1]
            remedy = (
                f"If there is no {result[item]}, pass the package: extraLibraries.{given} = its derivation."
            )
            attributes.findings.append(finding("RLK711", item, text, remedy))
    return result


def _served_by(item: str, file: FilePlan) -> list[str]:
    """The libraries that are found in a store path when a file is loaded.

    A search path may name one that serves nothing: nixpkgs' libgcc_s.so.1 lies in an output of its own, and the loader meets the
    link to it beside libstdc++ before.
    """
    needed = [(entry.soname_after or entry.soname, entry.resolved or "") for entry in file.needed]
    return [
        soname
        for soname, path in dict.fromkeys((*needed, *file.closure))
        if path and store_path(path) == item
    ]


def _store_directories(file: FilePlan) -> Iterator[tuple[str, str]]:
    """The entries of a planned search path that are in a store: the store path, and the directory in it."""
    for text in (file.rpath.after or "").split(":"):
        if item := store_path(text):
            yield item, posixpath.relpath(posixpath.normpath(text), item)


def _of_siblings(subject: Subject, file: FilePlan) -> list[str]:
    """The NEEDED that come by another Python package's import."""
    kept = [entry.soname for entry in file.needed if entry.action != "drop" and entry.origin != "wheel"]
    return [soname for soname in kept if sibling_of(subject.context.siblings, soname) is not None]


def _is_of_stubs(entry: PathEntry) -> bool:
    """Whether it is the directory of the stubs, which is the last, so that a library itself comes before."""
    return is_of_stubs(entry.text or "")


def _file(
    subject: Subject, file: FilePlan, by_path: Mapping[str, str], major: int | None, attributes: Attributes
) -> File:
    edit = file.edit
    served = {
        entry.soname_after or entry.soname: entry.resolved or ""
        for entry in file.needed
        if entry.origin == "provider" and entry.action != "drop"
    }
    elsewhere = {soname for soname, path in served.items() if store_path(path) is None}
    added = tuple(soname for soname in edit.add if soname not in elsewhere)
    search_path = None
    mapped = _of_siblings(subject, file)
    if edit.search_path is not None or mapped:
        entries: dict[PathEntry, None] = {}
        for text in (edit.search_path or file.rpath.after or "").split(":"):
            if item := store_path(text):
                if item not in by_path or not _served_by(item, file):
                    continue
                here = [soname for soname, path in served.items() if store_path(path) == item]
                here = here or _served_by(item, file)
                directory = posixpath.relpath(posixpath.normpath(text), item)
                entries[PathEntry(attribute=attributes.use(by_path[item], here), directory=directory)] = None
            elif text.startswith(("$ORIGIN", "${ORIGIN}")) and not any(
                map(is_package, text.split("/"))
            ):  # what pip installed is not beside a package of a store
                entries[PathEntry(text=text)] = None
        for soname in served:
            if soname in elsewhere and soname not in GLIBC_SONAMES and soname not in edit.add:
                attribute = attribute_of_soname(soname, major)
                entries[PathEntry(attribute=attributes.use(attribute, [soname]))] = None
        for soname in mapped:
            if (entry := sibling_entry(subject, attributes, soname)) is not None:
                entries[entry] = None
        kind = "runpath" if elsewhere else edit.search_kind or "runpath"
        search_path = RunPath(kind, tuple(sorted(entries, key=_is_of_stubs)))
    return File(
        *place(subject.context.layout, file.path),
        search_path=search_path,
        replace=tuple(Replaced(old, new) for old, new in edit.replace),
        remove=edit.remove,
        add=added,
        interpreter=file.interpreter.after is not None,
    )
