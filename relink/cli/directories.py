"""`relink DIR -o NEWDIR`: what `relink run` does with a directory in the place of a wheel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from relink.system.errors import UsageError

if TYPE_CHECKING:
    from relink.planning.options import Options
    from relink.report.model import Report
    from relink.system.progress import OnBytes

__all__ = ["check_paths", "print_path", "relink_path"]


def check_paths(paths: Sequence[Path], statement: Path | None, *, link: bool) -> None:
    """Refuse what cannot be done with these wheels and directories together.

    :raises UsageError: says which; also for a directory of wheels or of sources.
    """
    from relink.wheel.lookalikes import no_tree

    directories = [path for path in paths if path.is_dir()]
    for path in directories:
        if told := no_tree(path):
            raise UsageError(told)
    if directories and len(paths) > 1:
        raise UsageError(
            f"{directories[0]}: a directory is relinked alone, as --output is the name of its copy"
        )
    if directories and statement is not None:
        raise UsageError("--statement says where a wheel comes from; the copy of a directory has none")
    if link and not directories:
        raise UsageError("--link is for the copy of a directory; leave it out for a wheel")


def relink_path(
    path: Path, options: Options, *, link: bool, on_stage: Callable[[str], None], on_bytes: OnBytes
) -> Report:
    """Relink a wheel, or an unpacked tree in a copy.

    :raises RelinkError: as for the functions of the library.
    """
    from relink import library

    if path.is_dir():
        return library.relink_tree(path, options, link=link, on_stage=on_stage, on_bytes=on_bytes)
    return library.relink(path, options, on_stage=on_stage, on_bytes=on_bytes)


def print_path(report: Report, path: Path, *, verbose: bool, quiet: bool, dry_run: bool) -> None:
    """Print the report on a wheel, or on a tree and where its copy is."""
    from relink.cli.terminal import print_report, show

    tree = path.is_dir()
    print_report(report, verbose=verbose, quiet=quiet, dry_run=dry_run, installed=tree)
    if tree and report.output is not None and not quiet:
        show(f"{report.output.path} is the relinked copy; {path} is as it was.")
