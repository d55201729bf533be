"""The vendor's wheel, read out of one that was relinked from it: so that relinking it again starts from what the vendor wrote.

A relinked wheel has a reverse delta beside its plan (:mod:`relink.wheel.reverse_delta`). It counts only if what comes out is the
very wheel that the plan names by its SHA-256.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from relink.contents import Contents
from relink.errors import UsageError, WheelError
from relink.spool import Spool
from relink.wheel.archive import WheelArchive
from relink.wheel.limits import WheelLimits
from relink.wheel.naming import parse_wheel_name
from relink.wheel.reverse_delta import DELTA_MEMBER, ReverseDelta, read_delta

if TYPE_CHECKING:
    from relink.findings.model import Finding
    from relink.plans.model import WheelFacts

__all__ = ["delta_of", "open_contents", "open_original"]


def open_contents(
    path: Path,
    limits: WheelLimits | None = None,
    *,
    reuse: bool = False,
    sha256: str | None = None,
    spool: Spool | None = None,
) -> Contents:
    """Open a wheel to relink it; in the place of a relinked one the vendor's that it was made of, if that comes out.

    :param reuse: as for :class:`relink.contents.Contents`, and so `spool`.
    :param sha256: of the wheel that is wanted, in hexadecimal: a relinked wheel may be that itself.
    :raises WheelError: it is not a wheel that can be trusted.
    """
    archive = WheelArchive(path, limits=limits)
    if f"{archive.dist_info}/{DELTA_MEMBER}" not in archive.members or archive.sha256() == sha256:
        return Contents(path, archive=archive, reuse=reuse, spool=spool)
    try:
        original, findings = open_original(archive, limits)
    except BaseException:
        archive.close()
        raise
    if original is None:
        return Contents(path, archive=archive, reuse=reuse, findings=findings, spool=spool)
    archive.close()
    return Contents(path, archive=original, reuse=reuse, spool=spool)


def open_original(
    relinked: WheelArchive, limits: WheelLimits | None = None
) -> tuple[WheelArchive | None, tuple[Finding, ...]]:
    """Open the vendor's wheel in a relinked one; None, and why, where it does not come out.

    :param limits: as for a wheel that is opened.
    """
    # Of a vendor's wheel, nothing waits for so much to be imported.
    from relink.findings.model import finding
    from relink.provenance import read_plan

    try:
        plan = read_plan(relinked)
        return (None if plan is None else _original(relinked, plan.wheel, limits)), ()
    except (WheelError, UsageError) as error:
        reason = "; ".join((error.message, *error.issues[:1]))
        text = f"{DELTA_MEMBER} does not give the vendor's wheel back: {reason}"
        return None, (finding("RLK541", relinked.path.name, text),)


def delta_of(relinked: WheelArchive) -> ReverseDelta:
    """Read the delta of a relinked wheel.

    :raises WheelError: it is damaged, or the wheel was changed since.
    """
    own = {f"{relinked.dist_info}/{name}" for name in (DELTA_MEMBER, "RECORD")}
    others = (member for name, member in relinked.members.items() if name not in own)
    return read_delta(relinked.member(f"{relinked.dist_info}/{DELTA_MEMBER}"), relinked.bytes_at, others)


def _original(relinked: WheelArchive, facts: WheelFacts, limits: WheelLimits | None) -> WheelArchive:
    """Open what a delta gives.

    :raises WheelError: it is not the wheel that the plan names.
    """
    vendor = parse_wheel_name(facts.path)
    if vendor.canonical != relinked.name.canonical:
        raise WheelError("the plan is for another package")
    delta = delta_of(relinked)
    original = WheelArchive(relinked.source, filename=vendor.filename, limits=limits, delta=delta)
    if original.sha256() == facts.sha256:
        return original
    original.close()
    raise WheelError("what comes out is not the wheel that the plan names")
