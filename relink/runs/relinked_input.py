"""A relinked wheel as input: it is done for this ROCm already, or the vendor's wheel is what has to be relinked.

Whoever made the wheel wrote the plan in it. That is compared with what is planned today for the wheel's own files, and it names
the vendor's wheel; nothing of it is carried out, and nothing of it lowers a finding.
"""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

from relink.make.added_members import PLAN_MEMBER
from relink.planning.model.embedded import embedded
from relink.planning.model.model import Plan, with_digests
from relink.providers.site_packages import SITE_PACKAGES
from relink.system.errors import UsageError, WheelError
from relink.system.text import join_truncated
from relink.vendors.registry import vendor_of
from relink.wheel.archive import WheelArchive
from relink.wheel.naming import WheelName, parse_wheel_name

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
# Characters of a reason, which may quote the plan in the wheel.
_SHOWN: Final = 300
# Bytes of a file's name on Linux.
_NAME_MAX: Final = 255


def is_relinked(archive: WheelArchive) -> bool:
    """Whether a wheel says that relink wrote it."""
    return f"{archive.dist_info}/{PLAN_MEMBER}" in archive.members


def check_current(archive: WheelArchive, recorded: Plan, today: Plan) -> None:
    """Check that a relinked wheel is what relinking the vendor's wheel today is for.

    :param recorded: the plan in it.
    :param today: the plan for its own files, without stubs.
    :raises UsageError: it is not; says which wheel to relink instead.
    """
    if reason := _difference(recorded, today):
        reason = f"{reason[:_SHOWN]}…" if len(reason) > _SHOWN else reason
        vendor, sha256 = _vendor(archive, recorded)
        raise UsageError(
            f"{archive.path.name} was relinked from {vendor.filename} ({vendor.canonical} {vendor.version}, SHA-256 {sha256}), "
            f"{reason}: relink that one, which `relink fetch {vendor.canonical}=={vendor.version}` fetches where an index has it"
        )


def _difference(recorded: Plan, today: Plan) -> str | None:
    """Say why a wheel does not count as relinked for what is asked for today; None where it does."""
    sites = tuple(provider.path for provider in today.providers if provider.kind == SITE_PACKAGES)
    now = embedded(with_digests(replace(today, sites=sites)))
    if _places(recorded) != _places(now):
        return f"for {join_truncated([provider.path for provider in recorded.providers])}"
    if recorded.target != now.target:
        return "for another loader or Python"
    if recorded.options != now.options:
        return f"with other options ({shlex.join(recorded.options) or 'none'})"
    product = vendor_of({entry.soname for file in today.files for entry in file.needed}).product
    if any(provider.digest is None for provider in recorded.providers):
        return f"by a relink that noted no digest of its {product}"
    if [provider.digest for provider in recorded.providers] != [
        provider.digest for provider in now.providers
    ]:
        return f"and its {product} has changed since"
    errors = dict.fromkeys(f"{item.code} {item.subject}" for item in today.findings if item.level == "error")
    if errors:
        return f"and has errors now ({join_truncated(list(errors))})"
    return "and its files would change once more" if today.changed else None


def _places(plan: Plan) -> list[tuple[str, str, str | None]]:
    return [(provider.kind, provider.path, provider.rocm_version) for provider in plan.providers]


def _vendor(archive: WheelArchive, recorded: Plan) -> tuple[WheelName, str]:
    """Return the name and the SHA-256 of the vendor's wheel that a plan in a wheel names.

    :raises UsageError: it is not one that this wheel can be made of: what would be fetched is another package.
    """
    facts, own = recorded.wheel, archive.name
    name = PurePosixPath(facts.path).name[:_NAME_MAX]
    with suppress(WheelError):
        vendor = parse_wheel_name(name)
        same = (vendor.canonical, vendor.version.public) == (own.canonical, own.version.public)
        if same and _SHA256.fullmatch(facts.sha256):
            return vendor, facts.sha256
    raise UsageError(
        f"{archive.path.name} cannot be made of {name!r} (SHA-256 {facts.sha256[:_SHOWN]!r}), as the plan in it says; relink the "
        "vendor's wheel"
    )
