"""Where ld.so looks for one NEEDED library, in which order, and which file it accepts.

The order is that of ``_dl_map_new_object`` in glibc elf/dl-load.c; see also ld.so(8). Whether a file that was opened is accepted,
passed over, or ends the load: ``open_verify`` and ``_dl_map_object_from_fd`` there.
"""

from __future__ import annotations

import errno
import posixpath
import re
import struct
from collections.abc import Iterable, Iterator

import msgspec

from relink.elf.constants import DF_1_PIE, ET_DYN, ET_EXEC, PT_DYNAMIC, PT_LOAD
from relink.elf.image import Header, Image, machine_name
from relink.loader.seen_files import Files, OpenedFile
from relink.loader.target import Target, lookup


class Environment(msgspec.Struct, frozen=True):
    """The surroundings of a load.

    :ivar library_path: the entries of LD_LIBRARY_PATH, as written: tokens are expanded for the program, and an empty entry is
        the current directory (a path of one empty entry is none at all).
    :ivar cwd: the current directory; None where it is unknown, and then relative entries find nothing.
    """

    target: Target
    files: Files
    library_path: tuple[str, ...] = ()
    cwd: str | None = None


class FoundBy(msgspec.Struct, frozen=True):
    """The rule that led to a library.

    :ivar rule: ``rpath``, ``runpath``, ``library-path``, ``cache``, ``default``, ``path`` (the name has a slash), ``loaded``
        (already loaded), ``root`` (what the caller wants loaded), ``preload``.
    :ivar owner: the path of the object whose RPATH or RUNPATH it was, where that is the rule.
    :ivar entry: the directory as written there, or the cache's or the default directory.
    """

    rule: str
    owner: str | None = None
    entry: str | None = None

    def __str__(self) -> str:
        match self.rule:
            case "rpath" | "runpath":
                return f"{self.rule.upper()} entry {self.entry or '(empty)'} of {self.owner}"
            case "library-path":
                return f"LD_LIBRARY_PATH entry {self.entry}"
            case "cache":
                return "ld.so.cache"
            case "default":
                return f"default directory {self.entry}"
            case "path":
                return "written as a path"
            case "loaded":
                return "already loaded"
            case _:
                return self.rule


class Tried(msgspec.Struct, frozen=True):
    """One path that was tried without success, by which rule, and why it was not accepted."""

    path: str
    found_by: FoundBy
    reason: str


class Requester(msgspec.Struct, frozen=True):
    """What the search needs to know of an object that needs a library.

    :ivar origin: the value of ``$ORIGIN``: the directory of the path *as found*, or None where it is unknown.
    :ivar loader: the object that loaded it, for the DT_RPATH chain; None for a program and what was dlopened.
    :ivar is_main: it is the program itself.
    """

    path: str
    image: Image
    origin: str | None
    loader: Requester | None
    is_main: bool = False


class Result(msgspec.Struct, frozen=True):
    """The outcome of one search: a file, or nothing with all that was tried; `fatal`: why the loader gives up."""

    candidate: OpenedFile | None
    found_by: FoundBy | None
    tried: tuple[Tried, ...]
    fatal: str | None = None


_TOKEN = re.compile(r"\$(?:\{(ORIGIN|LIB|PLATFORM)\}|(ORIGIN|LIB|PLATFORM)(?![A-Za-z0-9_]))")


def expand(entry: str, *, origin: str | None, target: Target) -> str | None:
    """Replace the dynamic string tokens of one entry (glibc elf/dl-load.c, _dl_dst_substitute).

    Returns None where a token has no value, since ld.so then drops the entry. Unknown ``$WORDS`` stay as they are.
    """
    if "$" not in entry:
        return entry
    values = {"ORIGIN": origin, "LIB": target.lib, "PLATFORM": target.platform or None}
    missing = False

    def value(match: re.Match[str]) -> str:
        nonlocal missing
        text = values[match[1] or match[2]]
        missing |= text is None
        return text or ""

    expanded = _TOKEN.sub(value, entry)
    return None if missing else expanded


def why_not_searched(directory: str) -> str | None:
    """Return what of a directory's path keeps it from being an entry of a search path; None where nothing does.

    A line feed is none of the loader's business, but its answer has a line for each library.
    """
    if ":" in directory:
        return "a colon, at which the loader divides a search path"
    if "\n" in directory:
        return "a line feed, which divides the loader's answer"
    if token := token_in(directory):
        return f"{token}, which the loader replaces in a search path"
    return None


def token_in(path: str) -> str | None:
    """Return the first dynamic string token of a path.

    The loader replaces it in search paths, LD_PRELOAD and the name that dlopen(3) is given, but not in a program's name
    (glibc elf/dl-load.c, _dl_map_object).
    """
    match = _TOKEN.search(path)
    return match[0] if match else None


def split_path(search_path: str, *, origin: str | None, target: Target) -> list[tuple[str, str]]:
    """Split an RPATH or RUNPATH into (entry as written, directory), in order, duplicates left out (fillin_rpath).

    An empty entry is the current directory, and its directory is the empty string; a search path that is empty as a whole
    has no entries (decompose_rpath).
    """
    return split_entries(search_path.split(":"), origin=origin, target=target) if search_path else []


def split_entries(entries: Iterable[str], *, origin: str | None, target: Target) -> list[tuple[str, str]]:
    """Expand the entries of a search path that is split already; see :func:`split_path`."""
    by_directory: dict[str, str] = {}
    for entry in entries:
        directory = ""
        if entry:
            expanded = expand(entry, origin=origin, target=target)
            if not expanded:
                continue
            directory = expanded.rstrip("/") or "/"
        by_directory.setdefault(directory, entry)
    return [(entry, directory) for directory, entry in by_directory.items()]


def _join(directory: str, *names: str) -> str:
    """Join as ld.so does: the directory with one slash, no cleaning up; an empty directory is the current one."""
    if not directory:
        return "/".join(names)
    return "/".join(("" if directory == "/" else directory, *names))


# The smallest page of all machines that ROCm runs on.
_PAGE = 4096
# LIBC_ABI_MAX of glibc's libc-abis; only GNU's OSABI may carry a version.
_ABI_MAX = 4


class Rejected(msgspec.Struct, frozen=True):
    """Why ld.so does not accept a file; `fatal`: it gives up at once instead of searching on."""

    reason: str
    fatal: bool


def reject(candidate: OpenedFile, wanted: Header, *, program: bool = False) -> Rejected | None:
    """Apply ld.so's checks of a file it opened (open_verify, then _dl_map_object_from_fd); None means that it is accepted.

    A library of another class or machine is skipped; anything else that is not a loadable ELF file ends the load.

    :param program: it is to be the program itself, which may be ET_EXEC or position-independent executable.
    """
    if candidate.head is not None and (refused := reject_header(candidate.head, wanted)):
        return refused
    image = candidate.image
    if image is None:
        return Rejected(candidate.problem or "cannot be read", fatal=True)
    if candidate.head is None and (refused := _reject_facts(image.header, wanted)):
        return refused
    loads = [segment for segment in image.segments if segment.type == PT_LOAD]
    if any((segment.address - segment.offset) % _PAGE for segment in loads):
        return Rejected("ELF load command address/offset not page-aligned", fatal=True)
    if not loads:
        return Rejected("object file has no loadable segments", fatal=True)
    if image.header.kind == ET_EXEC and not program:
        return Rejected("cannot dynamically load executable", fatal=True)
    empty = any(segment.type == PT_DYNAMIC and not segment.file_size for segment in image.segments)
    if empty or not (image.dynamic or image.header.kind == ET_EXEC):
        return Rejected("object file has no dynamic section", fatal=True)
    if image.flags_1 & DF_1_PIE and not program:
        return Rejected("cannot dynamically load position-independent executable", fatal=True)
    return None


def reject_header(head: bytes, wanted: Header) -> Rejected | None:
    """Check the raw ELF header in the order of open_verify, where a foreign class comes before all other damage."""
    # sizeof (Elf64_Ehdr); every 64-bit loader reads as much.
    if len(head) < 64:
        return Rejected("file too short", fatal=True)
    if head[:4] != b"\x7fELF":
        return Rejected("invalid ELF header", fatal=True)
    if head[4] != wanted.elf_class // 32:
        bits = {1: "32 bit", 2: "64 bit"}.get(head[4], f"class {head[4]}")
        return Rejected(f"wrong ELF class: {bits}", fatal=False)
    if head[5] != (1 if wanted.little_endian else 2):
        return Rejected("other byte order", fatal=True)
    if head[6] != 1:
        return Rejected("ELF file version ident does not match current one", fatal=True)
    order = "<" if wanted.little_endian else ">"
    kind, machine, version = struct.unpack_from(order + "HHI", head, 16)
    refused = _reject_facts(
        Header(wanted.elf_class, wanted.little_endian, head[7], head[8], kind, machine), wanted
    )
    # open_verify looks at OS ABI and ABI version, then the padding, then e_version, and only then at machine and type.
    if refused and refused.reason.startswith("ELF file "):
        return refused
    if any(head[9:16]):
        return Rejected("nonzero padding in e_ident", fatal=True)
    if version != 1:
        return Rejected("ELF file version does not match current one", fatal=True)
    if refused:
        return refused
    (entry_size,) = struct.unpack_from(order + "H", head, 54 if wanted.elf_class == 64 else 42)
    if entry_size != (56 if wanted.elf_class == 64 else 32):
        return Rejected("ELF file's phentsize not the expected size", fatal=True)
    return None


def _reject_facts(header: Header, wanted: Header) -> Rejected | None:
    if header.elf_class != wanted.elf_class:
        return Rejected(f"wrong ELF class: {header.elf_class} bit", fatal=False)
    if header.little_endian != wanted.little_endian:
        return Rejected("other byte order", fatal=True)
    # VALID_ELF_OSABI (sysdeps/gnu/ldsodefs.h): System V and GNU.
    if header.osabi not in (0, 3):
        return Rejected(f"ELF file OS ABI invalid ({header.osabi})", fatal=True)
    if header.abi_version and not (header.osabi == 3 and header.abi_version < _ABI_MAX):
        return Rejected(f"ELF file ABI version invalid ({header.abi_version})", fatal=True)
    if header.machine != wanted.machine:
        return Rejected(f"wrong machine: {machine_name(header.machine)}", fatal=False)
    if header.kind not in (ET_EXEC, ET_DYN):
        return Rejected("only ET_DYN and ET_EXEC can be loaded", fatal=True)
    return None


class _Search(msgspec.Struct):
    environment: Environment
    tried: list[Tried]
    fatal: str | None = None

    def look(self, path: str, found_by: FoundBy) -> tuple[OpenedFile | None, int]:
        """Open one path; returns (file or None, errno). Sets `fatal` where ld.so would give up."""
        actual = path
        if not path.startswith("/"):
            # Where the process will run is unknown, so nothing is found there.
            if self.environment.cwd is None:
                self.tried.append(Tried(path, found_by, "relative to the current directory"))
                return None, errno.ENOENT
            actual = posixpath.join(self.environment.cwd, path)
        candidate = self.environment.files.open(actual)
        if not candidate.exists:
            if candidate.error != errno.ENOENT:
                self.tried.append(
                    Tried(path, found_by, errno.errorcode.get(candidate.error, str(candidate.error)))
                )
            return None, candidate.error
        rejected = reject(candidate, self.environment.target.header)
        if rejected is None:
            return candidate, 0
        self.tried.append(Tried(path, found_by, rejected.reason))
        if rejected.fatal:
            self.fatal = f"{path}: {rejected.reason}"
        return None, errno.ENOENT

    def directories(
        self, name: str, entries: list[tuple[str, FoundBy]]
    ) -> tuple[OpenedFile, FoundBy, str] | None:
        """open_path: every directory with its hardware-capability subdirectories first."""
        files, target = self.environment.files, self.environment.target
        harmless = {errno.ENOENT, errno.EACCES, *((errno.ENOTDIR,) if target.passes_over_files else ())}
        for directory, found_by in entries:
            error = 0
            real = posixpath.join(self.environment.cwd or "/nonexistent", directory)
            exists = files.is_directory(real)
            for subdirectory in (*files.directories_in(real, target.subdirectories), ""):
                path = _join(directory, subdirectory, name) if subdirectory else _join(directory, name)
                candidate, error = self.look(path, found_by)
                if candidate:
                    return candidate, found_by, path
                if self.fatal:
                    return None
            if error == errno.ENOENT and not (self.tried and self.tried[-1].found_by is found_by):
                reason = "no such file" if exists else "no such directory"
                self.tried.append(Tried(_join(directory, name), found_by, reason))
            # A relative directory counts as existing without a stat(2) (fillin_rpath): the process may move.
            # elf/dl-load.c, open_path:
            # > if (here_any && errno != ENOENT && errno != EACCES && errno != ENOTDIR)
            # >   return -1;
            if (exists or not directory.startswith("/")) and error not in harmless:
                # open_path stops at any other error, a loop of symbolic links for one.
                return None
        return None


def search(name: str, requester: Requester, main: Requester | None, environment: Environment) -> Result:
    """Look for `name` on behalf of `requester`, as ld.so does for a library that is not loaded yet.

    :param main: the program, whose DT_RPATH counts for everything that its process loads.
    """
    state = _Search(environment, [])
    if "/" in name:
        return _as_path(name, requester, state)
    for entries in _stages(requester, main, environment):
        hit = _from_cache(name, requester, state) if entries is None else state.directories(name, entries)
        if hit:
            candidate, found_by, path = hit
            return Result(OpenedFile(path, candidate.identity, candidate.image), found_by, tuple(state.tried))
        if state.fatal:
            break
    return Result(None, None, tuple(state.tried), state.fatal)


def _as_path(name: str, requester: Requester, state: _Search) -> Result:
    found_by = FoundBy("path", requester.path, name)
    path = expand(name, origin=requester.origin, target=state.environment.target)
    candidate = None
    if path is None:
        state.tried.append(Tried(name, found_by, "a token in it stands for nothing"))
    else:
        candidate, _ = state.look(path, found_by)
        if candidate is None and not state.tried:
            state.tried.append(Tried(path, found_by, "no such file"))
    if candidate is None or path is None:
        return Result(None, None, tuple(state.tried), state.fatal)
    return Result(OpenedFile(path, candidate.identity, candidate.image), found_by, ())


def _stages(
    requester: Requester, main: Requester | None, environment: Environment
) -> Iterator[list[tuple[str, FoundBy]] | None]:
    """Yield the lists of directories in the order in which they are searched; None means the cache."""
    target = environment.target
    # elf/dl-load.c, _dl_map_new_object, from here on:
    # > /* When the object has the RUNPATH information we don't use any
    # >    RPATHs.  */
    # > if (loader == NULL || loader->l_info[DT_RUNPATH] == NULL)
    if requester.image.runpath is None:
        # > /* First try the DT_RPATH of the dependent object that caused NAME
        # >    to be loaded.  Then that object's dependent, and on up.  */
        # > for (l = loader; l; l = l->l_loader)
        did_main = False
        link: Requester | None = requester
        while link is not None:
            if link.image.search_kind == "rpath":
                yield _entries(link, target)
                did_main |= link.is_main
            link = link.loader
        # > /* If dynamically linked, try the DT_RPATH of the executable
        # >    itself.  NB: we do this for lookups in any namespace.  */
        # > if (fd == -1 && !did_main_map
        # >     && main_map != NULL && main_map->l_type != lt_loaded
        if main is not None and not did_main and main.image.search_kind == "rpath":
            yield _entries(main, target)
    # > /* Try the LD_LIBRARY_PATH environment variable.  */
    library_path = ":".join(environment.library_path)
    if library_path:
        origin = main.origin if main else None
        # LD_LIBRARY_PATH may have semicolons, too, unlike a DT_RUNPATH (_dl_init_paths).
        given = split_entries(re.split("[:;]", library_path), origin=origin, target=target)
        yield [(directory, FoundBy("library-path", None, entry)) for entry, directory in given]
    # > /* Look at the RUNPATH information for this binary.  */
    if requester.image.runpath is not None:
        yield _entries(requester, target)
    # > /* Check the list of libraries in the file /etc/ld.so.cache,
    # >    for compatibility with Linux's ldconfig program.  */
    if target.cache is not None:
        yield None
    # > /* Finally, try the default path.  */
    # > […] __glibc_likely (!(l->l_flags_1 & DF_1_NODEFLIB)))
    if not requester.image.nodeflib:
        yield [(directory, FoundBy("default", None, directory)) for directory in target.directories]


def _entries(owner: Requester, target: Target) -> list[tuple[str, FoundBy]]:
    rule = owner.image.search_kind or ""
    pairs = split_path(owner.image.search_path or "", origin=owner.origin, target=target)
    return [(directory, FoundBy(rule, owner.path, entry)) for entry, directory in pairs]


def _from_cache(name: str, requester: Requester, state: _Search) -> tuple[OpenedFile, FoundBy, str] | None:
    target = state.environment.target
    if target.cache is None:
        return None
    header = target.header
    path = lookup(
        target.cache, name, machine=header.machine, elf_class=header.elf_class, hwcaps=target.hwcaps
    )
    found_by = FoundBy("cache", None, target.cache_path)
    if path is None:
        state.tried.append(Tried(target.cache_path, found_by, "not listed"))
        return None
    if requester.image.nodeflib and any(path.startswith(directory + "/") for directory in target.directories):
        state.tried.append(Tried(path, found_by, "the requester is linked with -z nodeflib"))
        return None
    candidate, _ = state.look(path, found_by)
    return (candidate, found_by, path) if candidate else None
