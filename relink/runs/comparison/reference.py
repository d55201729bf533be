"""What a wheel is compared with: the one that relink makes of the old wheel today, with the user's own options or plan.

Relinking is reproducible, so whatever differs was not done by relink, or not with these options. Of the new wheel nothing is
believed; what is taken of it weakens no proof, and is told.
"""

from __future__ import annotations

import calendar
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from relink import __version__
from relink.make.added_members import SBOM_MEMBER
from relink.planning.options import Options
from relink.report.model import Report
from relink.system.atomic import working_directory
from relink.system.bounded_json import JSON_LIMIT, parse_json
from relink.system.errors import WheelError
from relink.wheel.archive import WheelArchive


@dataclass(frozen=True, slots=True)
class Reference:
    """The wheel that relink made again.

    :ivar wheel: None where relink writes nothing; `refusals` then says why.
    :ivar source: what it was made by, for the verdict.
    :ivar notes: what was taken from the new wheel, and what it says of the release of relink.
    """

    wheel: Path | None
    source: str
    notes: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()


@contextmanager
def made_again(
    old: Path, new: Path, options: Options, make: Callable[[Options], Report], source: str
) -> Iterator[Reference]:
    """Relink the old wheel into a directory that is gone at the end.

    :param make: relinks the old wheel with the options that it gets.
    :param source: what is relinked by, for the verdict.
    :raises RelinkError: the new wheel cannot be read, or the old one cannot be relinked at all.
    """
    limits = options.limits
    with WheelArchive(old, limits=limits) as before, WheelArchive(new, limits=limits) as after:
        moments = [archive.member(f"{archive.dist_info}/RECORD").date_time for archive in (before, after)]
        release = _release(after)
    notes, epoch = [], None
    if moments[0] != moments[1]:
        # A date that there is not is not what relink writes.
        with suppress(ValueError):
            epoch = calendar.timegm((*moments[1], 0, 0, 0))
            text = "{:04}-{:02}-{:02} {:02}:{:02}:{:02}".format(*moments[1])
            notes.append(f"taken from NEW: {text}, the time of what relink writes (SOURCE_DATE_EPOCH)")
    if release not in (None, __version__):
        notes.append(
            f"NEW says that relink {release} wrote it, and this is {__version__}: that release judges plan and SBOM"
        )
    with working_directory(Path(tempfile.gettempdir())) as directory:
        options = replace(options, output_directory=directory, epoch=epoch, dry_run=False, gc_root=None)
        report = make(options)
        errors = [
            f"{found.code} {found.subject}: {found.message}"
            for found in report.findings
            if found.level == "error"
        ]
        refusals = (
            [] if report.path else [f"relink writes nothing: {error}" for error in errors or ("no output",)]
        )
        wheel = Path(report.path) if report.path else None
        yield Reference(wheel, source, tuple(notes), tuple(refusals))


def _release(archive: WheelArchive) -> str | None:
    """Return the release of relink that a wheel says it is of; None where it does not say."""
    name = f"{archive.dist_info}/{SBOM_MEMBER}"
    try:
        data = parse_json(archive.read(name, JSON_LIMIT).decode("utf-8", "replace"))
        version = data["metadata"]["tools"]["components"][0]["version"]
    except (LookupError, TypeError, ValueError, WheelError):
        return None
    return version if isinstance(version, str) else None
