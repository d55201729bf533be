"""`relink DIR -o NEWDIR`: files of a tree are planned, edited and verified as a wheel's are, and a copy of the tree has them.

The copy has other content in some files, and in the RECORD files that list these. Modes, times, symbolic links as they stand,
hard links inside of the tree, and holes are kept. Set-id bits, capabilities and owners are not: nobody but who makes the copy
gives it rights. What is neither a file nor a link is left out. Findings list what the copy still names of the original.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import posixpath
import re
import stat
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace
from packaging.version import Version

from relink.elf.constants import EM_AMDGPU
from relink.elf.image import is_elf, read_image
from relink.loader.target import Target
from relink.make.editing import edit_members
from relink.make.store_roots import register_roots
from relink.planning.case import open_providers
from relink.planning.contents import Contents, check_room, make_spool
from relink.planning.model import PLAN_MEMBER, from_json, is_plain
from relink.planning.options import Options, option_table
from relink.planning.reading import Wheel, read_members
from relink.planning.resolve.context import Layout, is_below
from relink.planning.wheel_plan import PreparedPlan
from relink.providers.nix_store import store_path
from relink.providers.prefix import Provider, make_tree_provider
from relink.providers.profiles import NO_PROFILE, profile_for
from relink.report.model import OutputFacts, Report
from relink.runs.relink_wheel import check_edits, make_plan, make_report, relinked_error
from relink.system.atomic import copy_content, publish_directory, working_directory
from relink.system.bounded_json import JSON_LIMIT
from relink.system.errors import ElfError, UsageError, WheelError, describe_failure, raise_if_machine_fault
from relink.system.findings.model import Finding, finding, has_errors, select_findings
from relink.system.progress import Clock, OnBytes, OnProgress
from relink.system.safe_open import map_file, open_regular, read_start, read_text
from relink.system.sandbox.start import find_sandbox, sandbox_findings
from relink.system.spool import Spool
from relink.system.text import join_truncated
from relink.vendors.registry import vendor_of
from relink.wheel.changes import Content, NewContent, iterate_content
from relink.wheel.deflate.ranges import ENDS, make_place
from relink.wheel.deflate.stream import Checkpoint
from relink.wheel.limits import NO_LIMITS, WheelLimits
from relink.wheel.naming import WheelName, explain_not_a_wheel
from relink.wheel.record import RecordEntry, with_new_hashes
from relink.wheel.source import load_member
from relink.wheel.zipformat import Member

_OF_WHEELS = ("local_version", "requires", "compress", "verify_record", "sysroot")


def relink_tree(
    directory: Path,
    options: Options,
    *,
    on_stage: Callable[[str], None] = lambda _: None,
    on_bytes: OnBytes = lambda _done, _total: None,
) -> Report:
    """Write a relinked copy of a tree; :func:`relink.library.relink_tree` has the parameters."""
    source, options = open_tree(directory, options)
    _refuse_relinked_packages(source)
    new, clock = _place_of_copy(directory, options), Clock(on_stage, on_bytes)
    # A tree has no version, and no RECORD of all its files.
    options = dataclasses.replace(options, keep_version=True, verify_record=False)
    with Contents(source.path, source=source, spool=make_spool(options), jobs=options.jobs) as contents:
        own = make_tree_provider(str(source.path), (*source.members, *source.links))
        find, layout = partial(_providers, own), Layout(own.path, tree=True)
        wheel, planned = make_plan(
            contents,
            options,
            clock,
            read=partial(read_members, beside=source.files),
            find_providers=find,
            layout=layout,
        )
        facts = replace(planned.plan.wheel, path=str(directory), name=source.name.distribution, version="")
        plan = replace(planned.plan, wheel=replace(facts, tags=()), output=str(new or directory))
        planned = replace(planned, plan=plan)
        if new is None or not (plan.ok or options.force):
            return make_report(planned, options, clock)
        with describe_failure(UsageError, f"{new}: cannot be written", "; name another"):
            return _write_copy(wheel, planned, source, options, clock)


def open_tree(directory: Path, options: Options) -> tuple[TreeSource, Options]:
    """Return the files of a directory, and the options with the profile of the first distribution in it that has one."""
    if not directory.is_dir():
        raise UsageError(f"{directory}: no such directory; name an unpacked tree, or a wheel")
    source = TreeSource(Path(os.path.realpath(directory)), options.limits)
    names = [path.name.partition("-")[0] for path in sorted(source.path.glob("*.dist-info"))]
    known = next((found.name for name in names if (found := profile_for(name)) is not NO_PROFILE), None)
    # In the site-packages of one package, stubs lie where those of the package's wheel do.
    if len(names) == 1 and is_plain(names[0]):
        source.name = replace(source.name, distribution=names[0])
    return source, dataclasses.replace(options, profile=options.profile or known)


def _refuse_relinked_packages(source: TreeSource) -> None:
    """Refuse a tree with a package that relink wrote.

    :raises UsageError: names the vendor's wheel of the first one; or the plan of such a package cannot be read.
    """
    for name in source.entries:
        directory, _, base = name.rpartition("/")
        if base != PLAN_MEMBER or not directory.endswith(".dist-info"):
            continue
        path = source.path / name
        with describe_failure(UsageError, f"{path}: cannot be read", "; remove that package"):
            text = read_text(path, JSON_LIMIT, errors="replace", root=str(source.path))
        plan = from_json(text, strict=False)
        distribution, _, version = posixpath.basename(directory).removesuffix(".dist-info").rpartition("-")
        raise relinked_error(plan, str(path), distribution, version)


def _place_of_copy(directory: Path, options: Options) -> Path | None:
    """Refuse a copy that cannot be made; return its place, None in a dry run."""
    given = (name for name in _OF_WHEELS if getattr(options, name) != getattr(Options(), name))
    if words := [option_table(Options)[name].names[0] for name in given]:
        raise UsageError(f"{', '.join(words)}: for wheels; leave that out for a directory")
    if os.path.lexists(directory / "pyvenv.cfg"):
        raise UsageError(
            f"{directory} is a virtual environment, and its scripts name it; make another one, and put the packages into it by "
            "`relink install NAME --python NEW/bin/python`, or change this one by `relink repair NAME --python …`"
        )
    if options.dry_run:
        return None
    new = options.output_place
    parent, wrong = Path(os.path.realpath(new.parent)), None
    if new == Path():
        wrong = f"{directory} is a directory, and its relinked copy has no name"
    elif os.path.lexists(new):
        wrong = f"{new}: is there already"
    elif not parent.is_dir():
        wrong = f"{new.parent}: no such directory"
    elif parent.is_relative_to(os.path.realpath(directory)):
        wrong = f"{new}: is in {directory}, which is never changed"
    if wrong is not None:
        raise UsageError(f"{wrong}; name by --output a directory that does not exist, in one that does")
    return parent / new.name


def _providers(
    own: Provider, options: Options, target: Target, sonames: Collection[str]
) -> tuple[Provider, ...]:
    """The tree itself, then those that were named; else the one place of this machine, for a tree that has no runtime itself."""
    named = options.prefixes or options.nix_closures
    has_runtime = any(map(vendor_of(own.libraries).libraries.is_runtime, own.libraries))
    if has_runtime and not named:
        return (own,)
    try:
        others = open_providers(options, target, sonames)
    except UsageError:
        if named:
            raise
        return (own,)
    if not others:
        return (own,)
    # A later prefix serves no runtime, so a tree without any counts as one with the first prefix.
    return (own if has_runtime else replace(own, closure=others[0].named), *others)


def _write_copy(
    wheel: Wheel, planned: PreparedPlan, source: TreeSource, options: Options, clock: Clock
) -> Report:
    """Edit, verify, write beside the new name, list references to the original, and rename."""
    plan, new = planned.plan, Path(planned.plan.output)
    report = partial(make_report, planned, options, clock)
    check_room(options.max_memory, wheel.contents, [file.path for file in plan.changed])
    sandbox = find_sandbox(options.sandbox)
    with working_directory(new.parent) as scratch, working_directory(new.parent) as staged:
        with clock.stage("edit"):
            contents: dict[str, NewContent] = {}
            edits, failures = edit_members(wheel, planned, options, sandbox, scratch, contents.__setitem__)
        if failures:
            return report(findings=sandbox_findings(sandbox), failures=failures)
        with clock.stage("verify"):
            names = {name: name for name in planned.context.images}
            findings, verified = check_edits(wheel, planned, edits, options, sandbox, names, source.links)
        if has_errors(select_findings(findings, (), options.ignore)) and not options.force:
            return report(findings=findings, verified=verified)
        with clock.stage("write"):
            new_files = {name: made.content for name, made in contents.items()}
            stubs = {stub.path: stub.content() for stub in plan.stubs}
            written = TreeCopy(source, staged, new_files, stubs, frozenset(plan.removed))
            findings += written.write()
            findings += find_references(staged, new, (str(source.path), os.path.abspath(plan.wheel.path)))
            copy = TreeSource(staged, NO_LIMITS)
            copy.digests |= source.digests | written.digests
            sizes = [
                sum(status.st_blocks for status in tree.entries.values()) << 9 for tree in (copy, source)
            ]
            output = OutputFacts(str(new), copy.sha256(), sizes[0], sizes[1])
        with clock.stage("publish"):
            # What is in the store is synced by Nix, where it is set up to do so.
            publish_directory(staged, new, sync=store_path(str(new)) is None)
        findings += register_roots(plan, output.path, options.gc_root)
        return report(output, findings, verified=verified)


_AT_ONCE = 1 << 20
_ZEROS = memoryview(bytes(_AT_ONCE))
_AMDGPU = EM_AMDGPU.to_bytes(2, "little")
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
_SET_ID = stat.S_ISUID | stat.S_ISGID
_LARGEST_RECORD = 64 << 20  # bytes, as of a wheel


class TreeSource:
    """A directory in the place of a wheel; its ELF files are the members, but for GPU code objects, which lie there by thousands.

    :param path: without symbolic links.
    :ivar entries: lstat(2) of all that is in it, by relative path: "" for itself, a directory before what is in it.
    :ivar links: the texts of the symbolic links; none is followed.
    :ivar files: the regular files that are no members.
    :ivar digests: SHA-256 of members, as far as they have been hashed (:meth:`sha256`).
    :raises UsageError: it cannot be listed, has more files than `limits` allow, or has no ELF file.
    :raises WheelError: a file cannot be read.
    """

    def __init__(self, path: Path, limits: WheelLimits | None = None) -> None:
        self.path = path
        self.dist_info, self.data_dir = "", None
        self.digests: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self.entries = {"": path.stat()}
        most = (limits or WheelLimits()).members
        for folder, below, files in os.walk(path, onerror=_unlistable):
            within = os.path.relpath(folder, path)
            for base in sorted(below + files):
                name = base if within == "." else f"{within}/{base}"
                self.entries[name] = os.lstat(os.path.join(folder, base))
            if len(self.entries) > most:
                raise UsageError(f"{path}: more than {most} files; --limit members=N allows more")
        self.links: dict[str, str] = {}
        members: dict[str, Member] = {}
        for name, status in self.entries.items():
            mode, size = status.st_mode, status.st_size
            if stat.S_ISLNK(mode):
                self.links[name] = os.readlink(path / name)
            elif stat.S_ISREG(mode):
                with os.fdopen(self.open_file(name), "rb", buffering=0) as file:
                    head = file.read(20)
                if is_elf(head) and head[18:20] != _AMDGPU:
                    facts = (name, 0, 0, 0, size, size, 0, 0, mode, _LONG_AGO, 0, 3)
                    members[name] = Member(*facts, is_directory=False)
        if not members:
            raise UsageError(f"{explain_not_a_wheel(path)}; no ELF file is in it either")
        self.members = members
        kept = (name for name, status in self.entries.items() if stat.S_ISREG(status.st_mode))
        self.files = [name for name in kept if name not in members]
        text = "".join(char if char.isalnum() and char.isascii() else "_" for char in path.name)
        self.name = WheelName(text.strip("_") or "tree", Version("0"), "0", "", "py3", "none", "any")

    def open_file(self, name: str) -> int:
        """Open a regular file, the very one that was listed; returns its descriptor.

        :raises WheelError: it cannot be opened, or is another one by now.
        """
        with describe_failure(WheelError, f"{self.path / name} cannot be read"):
            descriptor = open_regular(self.path / name, root=str(self.path))
        try:
            self.check(name, descriptor)
        except WheelError:
            os.close(descriptor)
            raise
        return descriptor

    def check(self, name: str, descriptor: int) -> None:
        """Refuse an open file that has changed since it was listed."""
        now, then = os.fstat(descriptor), self.entries[name]
        same = (now.st_dev, now.st_ino, now.st_size) == (then.st_dev, then.st_ino, then.st_size)
        if not (same and now.st_mtime_ns == then.st_mtime_ns):
            raise WheelError(f"{self.path / name} has changed while it was read; run the same command again")

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield a file's content in chunks; raises as :meth:`open_file`."""
        left = self.entries[name].st_size
        with os.fdopen(self.open_file(name), "rb", buffering=0) as file:
            while data := file.read(min(_AT_ONCE, left)):
                left -= len(data)
                yield data
            self.check(name, file.fileno())

    def may_be_elf(self, name: str) -> bool:
        """Whether a file was listed as an ELF file: the members are no others."""
        return name in self.members

    def read_into(
        self, name: str, on_progress: OnProgress = lambda _: None, *, spool: Spool | None = None
    ) -> memoryview:
        """Return the content of a file in one buffer: :func:`relink.wheel.source.load_member`."""
        return load_member(self, name, on_progress, spool=spool)

    def read_lazily(
        self,
        name: str,
        on_progress: OnProgress = lambda _: None,
        signatures: Collection[bytes] = (),
        spool: Spool | None = None,
    ) -> tuple[memoryview, list[Checkpoint]]:
        """Return a content that is in memory where it is asked for; of a file no page is worth keeping for its signature."""
        del signatures
        size = self.entries[name].st_size
        memory = make_place(name, size, partial(self._fetch, name), spool)
        memory.fill(0, ENDS)
        memory.fill(max(0, size - ENDS), size)
        on_progress(size)
        return memoryview(memory), []

    def _fetch(self, name: str, part: range) -> Iterator[tuple[int, bytes]]:
        with os.fdopen(self.open_file(name), "rb", buffering=0) as file:
            for start in part[::_AT_ONCE]:
                yield start, os.pread(file.fileno(), min(_AT_ONCE, part.stop - start), start)
            self.check(name, file.fileno())

    def close(self) -> None:
        """Do nothing: no file is open between two calls."""

    def sha256(self, on_progress: OnProgress = lambda _: None) -> str:
        """Return a SHA-256 of the names, sizes and digests of all members, in hexadecimal."""
        with self._lock:
            for name in self.members.keys() - self.digests.keys():
                digest = hashlib.sha256()
                for data in self.chunks(name):
                    on_progress(len(data))
                    digest.update(data)
                self.digests[name] = digest.digest()
        whole = hashlib.sha256()
        for name, member in sorted(self.members.items()):
            whole.update(
                f"{len(os.fsencode(name))} {member.size} ".encode() + os.fsencode(name) + self.digests[name]
            )
        return whole.hexdigest()


def _unlistable(error: OSError) -> None:
    raise_if_machine_fault(error)
    raise UsageError(f"{error.filename}: cannot be listed ({error.strerror})") from error


class TreeCopy(msgspec.Struct):
    """A copy that is being written.

    :ivar target: an empty directory; `new`: what some files are to contain.
    :ivar added: files that the tree has not, and their contents; `left_out`: those that the copy has not.
    """

    tree: TreeSource
    target: Path
    new: Mapping[str, Content]
    added: Mapping[str, bytes] = msgspec.field(default_factory=dict)
    left_out: Collection[str] = ()
    _known: dict[str, RecordEntry] = msgspec.field(default_factory=dict)  # of the new files
    # Device, inode and new digest of a file, which may have several names → its first path in the copy.
    _made: dict[tuple[object, ...], Path] = msgspec.field(default_factory=dict)
    _others: list[str] = msgspec.field(default_factory=list)  # that another user owns

    @property
    def digests(self) -> dict[str, bytes]:
        """SHA-256 of the files whose content is not the tree's, once they are written."""
        return {name: entry.digest for name, entry in self._known.items() if entry.digest is not None}

    def write(self) -> Iterator[Finding]:
        """Write the copy, and yield a finding for each part of the tree that the copy lacks.

        :raises RelinkError: a file of the tree cannot be read or linked, or has changed since it was listed.
        :raises OSError: a file cannot be written.
        """
        entries = self.tree.entries
        records = {name for name in entries if name.endswith(".dist-info/RECORD")}
        self._known |= {
            name: RecordEntry(name, "sha256", hashlib.sha256(content).digest(), len(content))
            for name, content in self.added.items()
        }
        # RECORD files are written last, since they list the hashes of the new files.
        written = (name for name in entries if name not in self.left_out)
        for name in sorted(written, key=lambda name: name in records):
            yield from self._write(name, self._record(name) if name in records else self.new.get(name))
        for name, content in self.added.items():
            self._add(name, content)
        # The time of a directory is set after all was made in it. Reversed, since a directory stands before what is in it.
        for name in reversed(entries):
            if stat.S_ISDIR(entries[name].st_mode):
                _finish(self.target / name, entries[name])
        if self._others:
            text = f"files of other users, which belong to you in the copy: {join_truncated(self._others)}"
            yield finding("RLK543", str(self.tree.path), text)

    def _write(self, name: str, new: Content | None) -> Iterator[Finding]:
        status, path = self.tree.entries[name], self.target / name
        kind, rights = stat.S_IFMT(status.st_mode), status.st_mode & _SET_ID != 0
        if kind == stat.S_IFLNK:
            path.symlink_to(self.tree.links[name])
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns), follow_symlinks=False)
            return
        if kind == stat.S_IFDIR:
            # Closed to other users until the copy is complete.
            path.mkdir(0o700, exist_ok=not name)
        elif kind == stat.S_IFREG:
            source = self.tree.open_file(name)
            try:
                with suppress(OSError):  # it has none
                    rights |= bool(os.getxattr(source, "security.capability"))
                self._write_file(name, source, new)
            finally:
                os.close(source)
        else:
            yield finding("RLK540", name, "left out of the copy: a FIFO, a socket or a device")
            return
        if rights:
            yield finding("RLK545", name or ".", "without its set-id bits and capabilities in the copy")
        if status.st_uid != os.geteuid():
            self._others.append(name or ".")

    def _write_file(self, name: str, source: int, new: Content | None) -> None:
        path, status, digest, size = self.target / name, self.tree.entries[name], hashlib.sha256(), 0
        with path.open("xb") as file:
            if new is None:
                copy_content(source, file.fileno())
            else:
                for piece in iterate_content(new):
                    digest.update(piece)
                    size += len(piece)
                    # Where code was taken out the copy has holes.
                    if piece == _ZEROS[: len(piece)]:
                        file.seek(len(piece), os.SEEK_CUR)
                    else:
                        file.write(piece)
                file.truncate(size)
                self._known[name] = RecordEntry(name, "sha256", digest.digest(), size)
        # Once more after the copy: a file that changed meanwhile would be neither the old nor the new one.
        self.tree.check(name, source)
        _finish(path, status)
        # Names of one file stay linked as long as their content in the copy is the same.
        first = self._made.setdefault((status.st_dev, status.st_ino, new and digest.digest()), path)
        if first != path:
            path.unlink()
            os.link(first, path)

    def _add(self, name: str, content: bytes) -> None:
        """Write a file that the tree lacks; no link of the tree may lead elsewhere."""
        above = [name[:end] for end, char in enumerate(name) if char == "/"]
        if name in self.tree.entries or any(
            path in self.tree.entries and not stat.S_ISDIR(self.tree.entries[path].st_mode) for path in above
        ):
            raise UsageError(f"{self.tree.path / name}: relink writes a stub there; move what is there away")
        path = self.target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(content)
        path.chmod(0o755)

    def _record(self, name: str) -> Content | None:
        """Return a RECORD with the hashes of the new files; None where the RECORD lists none of them."""
        status = self.tree.entries[name]
        if (
            not (self._known or self.left_out)
            or not stat.S_ISREG(status.st_mode)
            or status.st_size > _LARGEST_RECORD
        ):
            return None
        site, data = posixpath.dirname(posixpath.dirname(name)) or ".", b"".join(self.tree.chunks(name))
        if sum(entry.endswith(".dist-info/RECORD") for entry in self.tree.entries) == 1:
            # The tree is the site-packages of one package, whose stubs these are. A RECORD may end without a line feed.
            data += b"" if data.endswith(b"\n") or not self.added else b"\n"
            data += "".join(f"{posixpath.relpath(path, site)},,\n" for path in self.added).encode()
        rows = {posixpath.relpath(path, site): row for path, row in self._known.items()}
        new = with_new_hashes(data, rows, {posixpath.relpath(path, site) for path in self.left_out})
        return None if new == data else new


def _finish(path: Path, status: os.stat_result) -> None:
    os.chmod(path, stat.S_IMODE(status.st_mode) & ~_SET_ID)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


_ORIGIN = re.compile(r"\$(?:ORIGIN\b|\{ORIGIN\})/?")
_LOOKED_AT = 64 << 10  # bytes of a text


def find_references(copy: Path, destination: Path, originals: tuple[str, ...]) -> Iterator[Finding]:
    """Yield RLK544 for each of the ELF files, symbolic links, scripts, .pth and .pc files of a copy that leads to the original.

    :param copy: where the copy is, and `destination`: where it will be.
    :param originals: absolute paths of the original; the first one without symbolic links.
    """

    def leads_back(path: str, folder: str) -> bool:
        """Whether a path, from a directory of the copy, leads to the original: itself, by links, or out of the copy and back."""
        here = posixpath.normpath(posixpath.join(destination, folder, path))
        ways = (here, posixpath.normpath(posixpath.join(originals[0], folder, path)), os.path.realpath(here))
        return not is_below(here, str(destination)) and any(
            is_below(way, top) for way in ways for top in originals
        )

    for directory, below, files in os.walk(copy):
        folder = os.path.relpath(directory, copy)
        for base in sorted(below + files):
            paths = _paths_of(posixpath.join(directory, base), originals)
            if what := next((what for what, path in paths if leads_back(path, folder)), None):
                yield finding(
                    "RLK544",
                    posixpath.normpath(posixpath.join(folder, base)),
                    f"its {what} leads to {originals[0]}",
                )


def _paths_of(file: str, originals: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the paths that a file names, relative to its directory, each with its kind."""
    if os.path.islink(file):
        yield "target", os.readlink(file)
        return
    if not os.path.isfile(file):
        return
    head = read_start(file, 4)
    if is_elf(head):
        try:
            with map_file(file) as buffer:
                image = read_image(buffer, file)
        except ElfError:  # no loader takes it
            return
        for text in (*(image.rpath or "").split(":"), *(image.runpath or "").split(":")):
            yield "search path", _ORIGIN.sub("", text)
        for text in (*image.needed, *image.filters, image.interpreter or ""):
            if "/" in text:
                yield "NEEDED or interpreter", _ORIGIN.sub("", text)
    elif head.startswith(b"#!") or file.endswith((".pth", ".pc")):
        data = read_start(file, _LOOKED_AT)
        if any(re.search(re.escape(os.fsencode(path)) + rb"(?![\w.+-])", data) for path in originals):
            yield "text", originals[0]
        lines = os.fsdecode(data).splitlines()
        if head.startswith(b"#!"):
            yield from (("interpreter", word) for word in lines[0][2:].split()[:1])
        elif file.endswith(".pth"):
            yield from (("path", line) for line in lines if not line.startswith(("#", "import ", "import\t")))
