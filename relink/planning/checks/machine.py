"""`relink doctor`: whether this machine, with the vendors' libraries on it, can run GPU code; each vendor says so of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relink.loader.target import find_target
from relink.planning.model.model import plain
from relink.providers.prefix import Provider, open_prefix
from relink.system.findings.model import Finding, finding
from relink.vendors.protocol import Diagnosis
from relink.vendors.registry import VENDORS, find_places, prefix_of_libraries, products, vendor_of


@dataclass(frozen=True, slots=True)
class MachineCheck:
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
    named = [prefix_of_libraries(path, target) for path in prefixes]
    named = named or [place.path for place in find_places(target, environment)]
    owned: dict[str, list[Provider]] = {vendor.name: [] for vendor in VENDORS}
    for path in named:
        provider = open_prefix(path, target)
        owned[vendor_of((), [provider]).name].append(provider)
    diagnoses = tuple(vendor.gpus.diagnose(owned[vendor.name], root, environment) for vendor in VENDORS)
    findings = [found for diagnosis in diagnoses for found in diagnosis.findings]
    if not named:
        variables = ", ".join(f"no ${vendor.places.variable}" for vendor in VENDORS)
        message = f"no {products()} was found: no --prefix, {variables}, none in /opt, ld.so.cache and /usr"
        findings.append(finding("RLK424", products(), message))
    return MachineCheck(diagnoses, tuple(findings))


def to_json(check: MachineCheck) -> dict[str, Any]:
    """Return the check as JSON data (``relink.doctor/1``): the facts of the machine by vendor, lists joined."""
    facts: dict[str, Any] = {}
    for diagnosis in check.diagnoses:
        for key, value in diagnosis.facts.items():
            facts[key] = [*facts.get(key, ()), *value] if isinstance(value, list) else facts.get(key) or value
    return {
        "schema": "relink.doctor/1",
        **facts,
        "prefixes": [prefix for diagnosis in check.diagnoses for prefix in diagnosis.prefixes],
        "findings": plain(check.findings),
    }
