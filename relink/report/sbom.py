"""Provenance of a relinked wheel as a CycloneDX 1.6 document (PEP 770 puts it into ``.dist-info/sboms/``)."""

from __future__ import annotations

import uuid
from typing import Any

from relink import __version__
from relink.planning.model.embedded import BASE_PREFIX, SITE
from relink.planning.model.model import Plan

__all__ = ["bill_of_materials"]

_NAMESPACE = uuid.UUID(
    "5b2d6f0e-6a3d-5e0a-9a4c-0c8a5d7f1e42"
)  # relink's own, for serial numbers that depend on content alone


def bill_of_materials(plan: Plan, version: str) -> dict[str, Any]:
    """Describe where the output comes from: the vendor's wheel by its sha256, the plan, and every library linked to.

    Nothing in it depends on when or where it was made, so the same input gives the same bytes.

    :param version: the output's version.
    """
    wheel = plan.wheel
    vendor = f"pkg:pypi/{wheel.name}@{wheel.version}"
    result = f"pkg:pypi/{wheel.name}@{version.replace('+', '%2B')}"
    serial = uuid.uuid5(_NAMESPACE, f"{wheel.sha256} {plan.output} {__version__}")
    libraries = sorted((path, soname) for file in plan.changed for soname, path in file.closure)
    # The wheel's own files are shown as $WHEEL/… and $PREFIX/…; a file may have been loaded by two names.
    outside = {
        path: soname
        for path, soname in reversed(libraries)
        if path.startswith(("/", f"{BASE_PREFIX}/", f"{SITE}/"))
    }
    outside = dict(sorted(outside.items()))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "tools": {"components": [{"type": "application", "name": "rocm-relink", "version": __version__}]},
            "component": {
                "type": "library",
                "bom-ref": result,
                "name": wheel.name,
                "version": version,
                "purl": result,
                "pedigree": {
                    "ancestors": [
                        {
                            "type": "library",
                            "bom-ref": vendor,
                            "name": wheel.name,
                            "version": wheel.version,
                            "purl": vendor,
                            "hashes": [{"alg": "SHA-256", "content": wheel.sha256}],
                        }
                    ],
                    "notes": "relinked; relink.json beside this file is the plan that was carried out",
                },
            },
        },
        "components": [
            {
                "type": "library",
                "bom-ref": path,
                "name": soname,
                "properties": [{"name": "relink:path", "value": path}],
            }
            for path, soname in outside.items()
        ]
        + [
            {
                "type": "library",
                "bom-ref": stub.path,
                "name": stub.soname,
                "description": f"a stub that relink wrote in place of the library: {stub.why}",
                "properties": [
                    {"name": "relink:path", "value": stub.path},
                    {"name": "relink:stub", "value": "true"},
                ],
            }
            for stub in plan.stubs
        ],
        "dependencies": [{"ref": result, "dependsOn": [*outside, *(stub.path for stub in plan.stubs)]}],
    }
