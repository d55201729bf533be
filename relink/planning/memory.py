"""How the memory of one run is divided (``--max-memory``), and whether what is there is enough.

What grows with the largest file is bounded: its content goes to a file (:mod:`relink.system.spool`), and what is edited side by
side waits for its turn. What remains are the facts of all files, and what patchelf gets of a file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from relink.planning.contents import Contents
from relink.planning.options import Options
from relink.system.errors import UsageError
from relink.system.safe_open import read_text
from relink.system.spool import KEPT, WHOLE, Spool

LEAST_MEMORY: Final = 256 << 20
"""Bytes: the program itself, what it reads a file with, and the facts of a small wheel and of a prefix."""
# Bytes that are edited side by side, if nothing limits them.
_USUAL: Final = 256 << 20
# Each share's usual size, and the divisor of --max-memory that bounds the share.
_PARTS: Final = ((WHOLE, 4), (KEPT, 12), (_USUAL, 8))
# Copies of what patchelf gets of a file: three of its own (measured), or those that the result is made and checked with.
_COPIES: Final = 4
# The files' facts are read again after the edit, which takes a quarter of the memory that is in use before.
_VERIFIED: Final = 4
# Bytes for writing one member, however small: its entries of RECORD and of the directory, old and new. Measured with 250,000
# empty members: 1,033 MB at the end, 289 MB before the first edit.
_WRITTEN: Final = 3 << 10


@dataclass(frozen=True, slots=True)
class Shares:
    """Bytes of memory for each purpose.

    :ivar whole: of one member's content; a larger one is in a file. `kept`: of the parts of all members that are read again.
    :ivar edits: of files that are edited side by side.
    """

    whole: int = WHOLE
    kept: int = KEPT
    edits: int = _USUAL


def shares_of(most: int | None) -> Shares:
    """Divide what a run may take; None: nothing limits it."""
    return Shares() if most is None else Shares(*(min(usual, most // part) for usual, part in _PARTS))


def spool_of(options: Options) -> Spool:
    """Return where the contents of a run go that are too large for memory: beside the output.

    :raises UsageError: `max_memory` is less than any run takes.
    """
    most = options.max_memory
    if most is not None and most < LEAST_MEMORY:
        raise UsageError(f"--max-memory {most >> 20}: a run takes at least {LEAST_MEMORY >> 20} MiB")
    shares = shares_of(most)
    output = options.output_place.absolute()
    directories = (output, *output.parents)
    beside = (
        None
        if options.dry_run
        else next((directory for directory in directories if directory.is_dir()), None)
    )
    return Spool(beside, shares.whole, shares.kept)


def edit_memory(contents: Contents, name: str) -> int:
    """Return about how many bytes the edit of a member takes."""
    loaded = contents.loaded.get(name)
    gaps = sum(map(len, loaded.gaps)) if loaded else 0
    return _COPIES * (contents.source.members[name].size - gaps)


def check_room(most: int | None, contents: Contents, changed: Iterable[str]) -> None:
    """Refuse a run before its first edit, if it will take more memory than it may.

    :param changed: the members that are edited.
    :raises UsageError: says how much it takes.
    """
    if most is None:
        return
    # Memory of this process that no file holds: pages that are resident, less those that are shared (proc(5), statm).
    resident, shared = (int(field) for field in read_text("/proc/self/statm", 4096).split()[1:3])
    used = (resident - shared) * os.sysconf("SC_PAGE_SIZE")
    edits = max((edit_memory(contents, name) for name in changed), default=0)
    least = used + used // _VERIFIED + _WRITTEN * len(contents.source.members) + edits
    if least > most:
        raise UsageError(
            f"{contents.source.path.name}: --max-memory {most >> 20} is too little, {-(-least >> 20)} MiB are needed; "
            "nothing was edited"
        )
