"""The second readers, before an output is published: pyelftools for each edited file, `wheel` for the archive.

What they read has been read and checked by relink's own readers already; see :mod:`relink.make.elf_second_reader` and
:mod:`relink.make.wheel_second_reader` for what is compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from relink.elf.image import Image
from relink.elf.patchelf import Edited, result_of
from relink.elf.symbols import SymbolTable
from relink.elf.version_checks import planned_numbers
from relink.make.elf_second_reader import differences, planned_needs
from relink.make.wheel_second_reader import refusals
from relink.planning.model.model import FilePlan
from relink.system.findings.model import Finding, Level, finding
from relink.wheel.archive import WheelArchive
from relink.wheel.limits import NO_LIMITS

__all__ = ["reread_files", "reread_wheel"]


def reread_files(
    files: Iterable[FilePlan],
    images: Mapping[str, Image],
    tables: Mapping[str, SymbolTable],
    edited: Mapping[str, Edited],
) -> Iterator[Finding]:
    """Yield a finding for each edited file in which pyelftools reads something else than was planned.

    :param files: the plan's; unchanged ones are skipped.
    :param images: by member, the facts before the edit, `tables` the symbols.
    :param edited: by member, the files after it.
    """
    for file in files:
        if not file.changed:
            continue
        after = edited[file.path]
        found = differences(
            after.view,
            result_of(images[file.path], file.edit),
            after.image.segments,
            planned_needs(tables[file.path].verneeds, file.edit),
            after.gaps,
            planned_numbers(tables[file.path], file.edit),
        )
        if found:
            yield finding("RLK610", file.path, "; ".join(found))


def reread_wheel(path: Path) -> Iterator[Finding]:
    """Yield a finding for each thing in a finished wheel that `wheel` refuses, or reads otherwise than relink.

    :raises WheelError: relink's own reader does not take it.
    """
    with WheelArchive(path, limits=NO_LIMITS) as archive:  # it was read under the user's limits
        expected = f"{archive.name.distribution}-{archive.name.version_text}.dist-info"
        # `wheel` looks for a directory of just this name; pip and relink, which keep the vendor's spelling, for any that means
        # the same distribution and version.
        level: Level = "error" if archive.dist_info.lower() == expected.lower() else "warning"
        members = list(archive.members)
    for refusal in refusals(path, members):
        yield finding("RLK611", path.name, refusal, level=level)
