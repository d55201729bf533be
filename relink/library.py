"""What ``import relink`` offers. Each function imports what it needs when it is called: importing relink costs nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from relink.options import Options
from relink.progress import OnBytes

if TYPE_CHECKING:
    from relink.report.model import Report

__all__ = ["relink"]


def relink(
    wheel: Path | str,
    options: Options,
    *,
    on_stage: Callable[[str], None] = lambda _: None,
    on_bytes: OnBytes = lambda _done, _total: None,
) -> Report:
    """Relink one wheel: read, plan, edit, write, verify, publish.

    Nothing is written on a dry run, nor where a finding is an error, unless `options.force`. The output appears under its name
    only after the loader has confirmed it.

    :param on_stage: called with the name of each stage when it begins.
    :param on_bytes: called, while files are read and while they are written, with the bytes that are done and those that
        there are in all, unpacked.
    :raises RelinkError: the input cannot be read, the target or a prefix cannot be used, or patchelf fails.
    """
    from relink.contents import Contents

    # Opened first: the largest member is read while the rest of relink is imported.
    with Contents(Path(wheel), options.limits, reuse=not options.dry_run) as contents:
        from relink import pipeline

        return pipeline.run(contents, options, on_stage, on_bytes)
