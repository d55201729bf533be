"""A wheel that relink wrote is no input of a relink: the vendor's wheel is, which the plan in the wheel names.

Whoever made the wheel wrote that plan. It is read for one sentence; nothing of it is carried out.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Final

from relink.make.added_members import PLAN_MEMBER, read_plan
from relink.system.errors import UsageError, WheelError
from relink.wheel.naming import parse_wheel_name
from relink.wheel.source import MemberSource

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
# Characters of what the plan says, in a sentence.
_SHOWN: Final = 300
# Bytes of a file's name on Linux.
_NAME_MAX: Final = 255


def is_relinked(source: MemberSource) -> bool:
    """Whether a wheel says that relink wrote it."""
    return f"{source.dist_info}/{PLAN_MEMBER}" in source.members


def refuse_relinked(source: MemberSource) -> None:
    """Refuse a wheel that relink wrote, and name the vendor's wheel that it was made from.

    :raises UsageError: relink wrote the wheel.
    """
    plan = read_plan(source)
    if plan is None:
        return
    facts, own = plan.wheel, source.name
    filename = PurePosixPath(facts.path).name[:_NAME_MAX]
    with suppress(WheelError):
        vendor = parse_wheel_name(filename)
        # Another distribution or version is not what this wheel can have been made of, and is not to be fetched.
        same = (vendor.canonical, vendor.version.public) == (own.canonical, own.version.public)
        if same and _SHA256.fullmatch(facts.sha256):
            raise UsageError(
                f"{source.path.name} was relinked from {vendor.filename} (SHA-256 {facts.sha256}); relink that one, which "
                f"`relink fetch {vendor.canonical}=={vendor.version}` fetches where an index has it"
            )
    raise UsageError(
        f"{source.path.name} was relinked, but not from {filename!r} (SHA-256 {facts.sha256[:_SHOWN]!r}), "
        "as the plan in it says; relink the vendor's wheel"
    )
