"""A site appears whole: its pages are written aside, and one rename of a symbolic link puts them in the place of the old ones.

``SITE`` is a link to ``SITE.relink/sites/NAME``, and ``files`` in there leads to ``SITE.relink/files``, which pages of all times
share: files there never change, so an installer that has read an old page still gets what the page says.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from relink.indexes.build.pages import FILES
from relink.indexes.build.store import Store
from relink.system.atomic import publish_directory, sync_directory, working_directory
from relink.system.errors import UsageError
from relink.system.safe_open import read_text
from relink.system.system_errors import raise_if_machine_fault

BASIS = "site.sha256"
"""The file of a site that says what it was made of."""
Write = Callable[[str, bytes], None]
"""Takes a path below the site and the content of the file."""
_KEPT = 2  # sites: the one that is shown, and the one before, of which a web server may still read


def check_place(site: Path) -> None:
    """Refuse to publish where something else is.

    :raises UsageError: there is a file or a directory that is no site.
    """
    if os.path.lexists(site) and not (
        site.is_symlink() and os.readlink(site).startswith(f"{site.name}.relink/")
    ):
        raise UsageError(
            f"{site}: is there already and is no site of relink; name another place, or remove it"
        )


def shows(site: Path, basis: str) -> bool:
    """Whether the site that is shown was made of this."""
    try:
        return read_text(site / BASIS, 100) == basis
    except (OSError, UnicodeDecodeError):
        return False


def publish(store: Store, site: Path, basis: str, write_pages: Callable[[Write], None]) -> None:
    """Write a site and show it.

    :param basis: a digest of what it is made of.
    :param write_pages: gets a function that writes one file.
    :raises UsageError: it cannot be written.
    """
    check_place(site)
    try:
        with working_directory(store.sites) as place:
            made = place / "site"
            made.mkdir(mode=0o755)

            def write(name: str, content: bytes) -> None:
                path = made / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)

            write_pages(write)
            (made / BASIS).write_text(basis)
            final = store.sites / f"{time.time_ns()}"
            (made / FILES).symlink_to(f"../../{FILES}")  # from where it will be
            publish_directory(made, final)
        _switch(store, site, final)
    except OSError as error:
        raise_if_machine_fault(error, str(site))
        raise UsageError(f"{site}: the site cannot be written ({error.strerror})") from error
    _remove_old(store, final)


def _switch(store: Store, site: Path, final: Path) -> None:
    link = store.directory / "next"
    link.unlink(missing_ok=True)
    link.symlink_to(final.relative_to(site.parent))
    os.replace(link, site)
    sync_directory(site.parent)


def _remove_old(store: Store, shown: Path) -> None:
    """Remove sites that are not shown any more, but the last of them."""
    others = sorted(
        (path for path in store.sites.iterdir() if path.name.isdigit()), key=lambda path: int(path.name)
    )
    for path in [path for path in others if path != shown][: -(_KEPT - 1)]:
        shutil.rmtree(path, ignore_errors=True)
