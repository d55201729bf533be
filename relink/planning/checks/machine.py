"""`relink doctor`: whether this machine, with the vendors' libraries on it, can run GPU code; each vendor says so of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from relink.loader.seen_files import Files
from relink.loader.tables import Tables
from relink.loader.target import GLIBC_SONAMES, Target, find_target
from relink.planning.model import to_data
from relink.planning.resolve.evidence import broken_alone_remedy, find_unbound_alone
from relink.planning.resolve.import_findings import find_prefix_loader, order_versions
from relink.providers.prefix import Provider, open_prefix
from relink.system.findings.model import Finding, finding, has_errors
from relink.system.text import join_truncated, pluralize
from relink.vendors.protocol import Diagnosis, Vendor
from relink.vendors.registry import VENDORS, find_places, list_products, prefix_of_libraries, vendor_of


class MachineCheck(msgspec.Struct, frozen=True):
    """What each vendor says of this machine, and all findings."""

    diagnoses: tuple[Diagnosis, ...]
    findings: tuple[Finding, ...]


def check_machine(
    prefixes: Sequence[str] = (), root: str = "/", environment: Mapping[str, str] | None = None
) -> MachineCheck:
    """Look at the machine below `root`, the environment (this process's unless given) and each prefix.

    Without `prefixes` every place of this machine with a vendor's libraries is looked at. That there is none is a finding. A
    prefix belongs to the vendor whose release it holds, else to the first.

    :raises ProviderError: a prefix that was named cannot be used.
    """
    environment = os.environ if environment is None else environment
    target = find_target()
    named: list[tuple[str, str | None]] = [(prefix_of_libraries(path, target), None) for path in prefixes]
    named = named or [(place.path, place.found_by) for place in find_places(target, environment)]
    owned: dict[str, list[Provider]] = {vendor.name: [] for vendor in VENDORS}
    for path, found_by in named:
        provider = replace(open_prefix(path, target), found_by=found_by)
        owned[vendor_of((), [provider]).name].append(provider)
    diagnoses = tuple(vendor.gpus.diagnose(owned[vendor.name], root, environment) for vendor in VENDORS)
    findings = [found for diagnosis in diagnoses for found in diagnosis.findings]
    tables = Tables(Files(target.sysroot))
    for vendor in VENDORS:
        for provider in owned[vendor.name] if root == "/" else ():
            findings += _find_broken(provider, vendor, target, tables)
    if not named:
        variables = ", ".join(f"no ${vendor.places.variable}" for vendor in VENDORS)
        message = f"no {list_products()} was found: no --prefix, {variables}, none in LD_LIBRARY_PATH, /opt, ld.so.cache and /usr"
        findings.append(finding("RLK424", list_products(), message))
    return MachineCheck(diagnoses, tuple(findings))


def _find_broken(provider: Provider, vendor: Vendor, target: Target, tables: Tables) -> Iterator[Finding]:
    """Yield RLK302 for each of a prefix's own libraries that imports what nothing there has, and RLK301 for a newer glibc."""
    files = tables.files
    real = {
        os.path.realpath(path): path
        for name, (path, *_) in provider.libraries.items()
        if vendor.libraries.is_own(name)
    }
    newer: list[str] = []
    for path in real.values():
        needs = tables.read(files.open(path).identity or (path,), path).verneeds
        names = (one.name for need in needs if need.file in GLIBC_SONAMES for one in need.versions)
        highest = max(names, key=order_versions, default="")
        newer += [highest] if order_versions(highest) > order_versions(target.glibc) else []
        if lost := [unbound.name for unbound in find_unbound_alone(path, target, tables)]:
            text = f"imports {join_truncated(lost)}, which no library that it loads has"
            yield finding("RLK302", path, text, broken_alone_remedy(path, files), level="warning")
    if newer:
        who = pluralize(len(newer), "library needs", "libraries need")
        text = f"{who} up to {max(newer, key=order_versions)}; this machine has glibc {target.glibc}"
        loader = find_prefix_loader([provider], target, files)
        fix = f"Relink with --interpreter {loader}, the loader of this prefix." if loader else None
        yield finding("RLK301", provider.path, text, fix, level="warning")


def to_json(check: MachineCheck) -> dict[str, Any]:
    """Return the check as JSON data (``relink.doctor/1``): the facts of the machine by vendor, lists joined."""
    facts: dict[str, Any] = {}
    for diagnosis in check.diagnoses:
        for key, value in diagnosis.facts.items():
            facts[key] = [*facts.get(key, ()), *value] if isinstance(value, list) else facts.get(key) or value
    return {
        "schema": "relink.doctor/1",
        "ok": not has_errors(check.findings),
        **facts,
        "prefixes": [prefix for diagnosis in check.diagnoses for prefix in diagnosis.prefixes],
        "findings": to_data(check.findings),
    }
