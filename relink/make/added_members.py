"""The members that relink adds to an output: the plan, the bill of materials (SBOM), stubs, and the store paths that it names."""

from __future__ import annotations

import hashlib
import json
import uuid
from typing import Any
from urllib.parse import quote

from packaging.utils import canonicalize_name

from relink import __version__
from relink.make.store_roots import store_paths
from relink.planning.model import BASE_PREFIX, PLAN_MEMBER, SITE, Plan, Stub, add_digests, embed_plan, to_json
from relink.wheel.archive import WheelArchive
from relink.wheel.changes import NewContent
from relink.wheel.naming import WheelName, rename_directory

SBOM_MEMBER = "sboms/relink.cdx.json"  # PEP 770
STORE_MEMBER = "relink-store-paths"

# The namespace of relink's UUIDs: serial numbers depend on content alone.
_NAMESPACE = uuid.UUID("5b2d6f0e-6a3d-5e0a-9a4c-0c8a5d7f1e42")


def make_added_members(plan: Plan, archive: WheelArchive, name: WheelName) -> dict[str, NewContent]:
    """Make the members that are added to the output `name`, by path.

    :raises UsageError: a library that the plan rests on cannot be read.
    """
    dist_info, plan = rename_directory(archive.dist_info, name), embed_plan(add_digests(plan))
    added = {
        PLAN_MEMBER: NewContent(encode_json(to_json(plan))),
        SBOM_MEMBER: NewContent(encode_json(make_bill_of_materials(plan, str(name.version)))),
    }
    if paths := store_paths(plan):
        # Not compressed: Nix finds references by searching the bytes of a file.
        added[STORE_MEMBER] = NewContent("".join(f"{path}\n" for path in paths).encode(), stored=True)
    stubs = {stub.path: NewContent(stub.content(), mode=0o755) for stub in plan.stubs}
    return stubs | {f"{dist_info}/{member}": addition for member, addition in added.items()}


def make_bill_of_materials(plan: Plan, version: str) -> dict[str, Any]:
    """Describe where the output comes from as a CycloneDX 1.6 document: the vendor's wheel, the plan, every library linked to.

    Nothing in it depends on when or where it was made, so the same input gives the same bytes.

    :param version: the output's version.
    """
    wheel = plan.wheel
    # purl-spec, types/pypi: the name normalised, the version percent-encoded.
    vendor, result = (
        f"pkg:pypi/{canonicalize_name(wheel.name)}@{quote(own, safe='')}" for own in (wheel.version, version)
    )
    # The plan is all that the output depends on, beside the release of relink.
    content = hashlib.sha256(encode_json(to_json(plan))).hexdigest()
    serial = uuid.uuid5(_NAMESPACE, f"{content} {version} {__version__}")
    libraries = sorted((path, soname) for file in plan.changed for soname, path in file.closure)
    # The wheel's own files are shown as $WHEEL/… and $PREFIX/…. A file may have been loaded by two names: the first one stays.
    outside = {
        path: soname
        for path, soname in reversed(libraries)
        if path.startswith(("/", f"{BASE_PREFIX}/", f"{SITE}/"))
    }
    outside = dict(sorted(outside.items()))
    gpus = f", with code for {' and '.join(plan.only_gpus)} alone" if plan.only_gpus else ""
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
                    "notes": f"relinked{gpus}; relink.json beside this file is the plan that was carried out",
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
                "description": _describe_stub(stub),
                "properties": [
                    {"name": "relink:path", "value": stub.path},
                    {"name": "relink:stub", "value": "true"},
                ],
            }
            for stub in plan.stubs
        ],
        "dependencies": [{"ref": result, "dependsOn": [*outside, *(stub.path for stub in plan.stubs)]}],
    }


def _describe_stub(stub: Stub) -> str:
    if stub.shim_of is not None:
        names = ", ".join(function.name for function in stub.functions)
        return f"a shim of relink's beside {stub.shim_of}, which lacks {names}: {stub.why}"
    return f"a {'forwarder' if stub.needed else 'stub'} of relink's in place of the library: {stub.why}"


def encode_json(data: dict[str, Any]) -> bytes:
    """Encode JSON data for a member."""
    return json.dumps(data, indent=1).encode() + b"\n"
