"""The members that relink adds to an output: the plan, the bill of materials (SBOM), stubs, and the store paths that it names.

It also reads the plan of a wheel that was relinked before.
"""

from __future__ import annotations

import json
from typing import Any

from relink.planning.model.embedded import embedded
from relink.planning.model.model import Plan, from_json, to_json, with_digests
from relink.report.nix.roots import store_paths
from relink.report.sbom import bill_of_materials
from relink.system.bounded_json import JSON_LIMIT
from relink.wheel.archive import WheelArchive
from relink.wheel.changes import NewContent
from relink.wheel.naming import WheelName, renamed_directory

__all__ = [
    "MEMBERS",
    "PLAN_MEMBER",
    "SBOM_MEMBER",
    "STORE_MEMBER",
    "added_members",
    "json_bytes",
    "read_plan",
]

PLAN_MEMBER = "relink.json"
SBOM_MEMBER = "sboms/relink.cdx.json"  # PEP 770
STORE_MEMBER = "relink-store-paths"
MEMBERS = (PLAN_MEMBER, SBOM_MEMBER, STORE_MEMBER)
"""All of them, in the order in which an output has them."""


def added_members(plan: Plan, archive: WheelArchive, name: WheelName) -> dict[str, NewContent]:
    """Return what is added to the output `name`, by path.

    :raises UsageError: a library that the plan rests on cannot be read.
    """
    dist_info, plan = renamed_directory(archive.dist_info, name), embedded(with_digests(plan))
    added = {
        PLAN_MEMBER: NewContent(json_bytes(to_json(plan))),
        SBOM_MEMBER: NewContent(json_bytes(bill_of_materials(plan, str(name.version)))),
    }
    if paths := store_paths(plan):
        # Not compressed: Nix finds references by searching the bytes of a file.
        added[STORE_MEMBER] = NewContent("".join(f"{path}\n" for path in paths).encode(), stored=True)
    stubs = {stub.path: NewContent(stub.content(), mode=0o755) for stub in plan.stubs}
    return stubs | {f"{dist_info}/{member}": addition for member, addition in added.items()}


def read_plan(archive: WheelArchive) -> Plan | None:
    """Return the plan that a relinked wheel carries, or None for a vendor's wheel.

    :raises UsageError: the plan has another format than this relink reads, or is damaged.
    :raises WheelError: the member is larger than :data:`relink.system.bounded_json.JSON_LIMIT`, or damaged.
    """
    name = f"{archive.dist_info}/{PLAN_MEMBER}"
    if name not in archive.members:
        return None
    # Another release may have had more keys, such as that of libraries which it copied in: nothing is carried out of it.
    return from_json(archive.read(name, JSON_LIMIT).decode("utf-8", "replace"), strict=False)


def json_bytes(data: dict[str, Any]) -> bytes:
    """Return JSON data as it is written into the wheel."""
    return json.dumps(data, indent=1).encode() + b"\n"
