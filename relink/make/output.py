"""The directory in which an output is made, beside its final name: created, filled, and published or removed.

Takes new contents as they come and the rest of the output when it is known. Threads deflate, write and read back while the
caller goes on; :meth:`Staging.publish` waits for them.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

from msgspec.structs import replace

from relink.make.second_readers import reread_wheel
from relink.planning.contents import Contents, divide_memory
from relink.planning.options import COMPRESSION_LEVELS, Options
from relink.system.atomic import move_synced, working_directory
from relink.system.errors import RelinkError, UsageError, raise_if_machine_fault
from relink.system.findings.model import Finding
from relink.system.progress import OnProgress
from relink.wheel.changes import Changes, NewContent, WriteOptions
from relink.wheel.naming import WheelName
from relink.wheel.record import default_jobs, verify_members
from relink.wheel.writer import pack_ahead, write_wheel

_ELSEWHERE: Final = "name another directory by --output"
_STEPS: Final = {
    errno.ENOSPC: f"make room there, or {_ELSEWHERE}",
    errno.EDQUOT: f"make room in your quota, or {_ELSEWHERE}",
    errno.EFBIG: "files may not be that large there; raise the limit of this process (ulimit -f)",
    errno.ENAMETOOLONG: "names may not be that long there; shorten it by --local-version or --keep-version",
    errno.EISDIR: f"move the directory of that name away, or {_ELSEWHERE}",
}
"""What to do about an output that cannot be written, where another directory is not the answer, or not the only one."""


class Staging:
    """The making of one output; a context manager that removes an output that was not published.

    :param contents: the input.
    :param name: of the output.
    :param on_progress: called with the number of bytes that have been written or read back; on any thread.
    :raises UsageError: the directory cannot be written to.
    """

    final: Path
    directory: Path

    def __init__(
        self, contents: Contents, name: WheelName, options: Options, on_progress: OnProgress = lambda _: None
    ) -> None:
        self.final = options.output_place / name.filename
        self._contents = contents
        self._name = name
        self._options = options
        self._write_options = WriteOptions(
            options.epoch,
            COMPRESSION_LEVELS[options.compress],
            options.verify_record,
            options.jobs,
        )
        self._on_progress = on_progress
        self._replacements: dict[str, NewContent] = {}
        # Bytes of members that may be deflated before it is their turn.
        self._ahead = divide_memory(options.max_memory).edits
        self._closing = threading.Event()
        self._written: Future[tuple[str, tuple[Finding, ...]]] = Future()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        parent = self.final.parent
        with ExitStack() as stack:
            try:
                stack.enter_context(_created(parent))
                self.directory = stack.enter_context(working_directory(parent))
            except OSError as error:
                raise_if_machine_fault(error, f"{parent}: cannot be written to")
                step = _STEPS.get(error.errno or 0, "name another by --output")
                raise UsageError(f"{parent}: cannot be written to ({error.strerror}); {step}") from error
            self._thread = stack.enter_context(ThreadPoolExecutor(1, "relink-write"))
            pool = ThreadPoolExecutor(self._options.jobs or default_jobs(), "relink-pack")
            self._pool = stack.enter_context(pool)
            # Called before the thread is waited for and the directory is removed: an ExitStack goes backwards.
            stack.callback(self._closing.set)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._stack.close()
        if isinstance(error, OSError):
            raise self._failed(error) from error

    def on_progress(self, more: int) -> None:
        """Report bytes, and stop the writer after the context manager has been left: a running thread cannot be cancelled."""
        if self._closing.is_set():
            raise RelinkError(f"{self.final} has been given up")
        self._on_progress(more)

    def add(self, name: str, new: NewContent) -> None:
        """Take a member's new content, and begin to deflate if there is memory for the result.

        SHA-256 of the largest member takes as long as the loader's dry run, so both are done at once.

        :raises UsageError: the output would replace the input.
        """
        self._refuse_the_inputs_place()
        size = 2 * self._contents.archive.members[name].compressed_size
        if size <= self._ahead:
            self._ahead -= size
            packing = self._pool.submit(pack_ahead, name, new, self._write_options.level)
            new = replace(new, content=(), size=new.length, ahead=packing)
        self._replacements[name] = new

    def write(
        self,
        additions: Mapping[str, NewContent],
        metadata: tuple[str, ...] = (),
        requires: Mapping[str, str | None] = MappingProxyType({}),
        removed: Iterable[str] = (),
    ) -> None:
        """Begin to write the output: the members that were added replace those of the input.

        :param additions: as for :class:`relink.wheel.changes.Changes`; the others too.
        :raises UsageError: the output would replace the input.
        """
        self._refuse_the_inputs_place()
        changes = Changes(self._name, self._replacements, additions, metadata, requires, frozenset(removed))
        self._written = self._thread.submit(self._write, changes)

    def copy(self) -> None:
        """Begin to copy the input to the output, and compare the input with its RECORD; both may be one file."""
        self._written = self._thread.submit(self._copy)

    def finish(self) -> tuple[Finding, ...]:
        """Wait for the output, and return the findings of the second reader of archives; none for a copy.

        :raises WheelError: a member of the input is damaged or is not what RECORD lists.
        :raises RelinkError: the output cannot be written, or is not what was written.
        """
        return self._written.result()[1]

    def publish(self, *, withhold: bool = False) -> str:
        """Wait for the output, move the file to its final name, and return the SHA-256 (hex); raises as :meth:`finish`.

        :param withhold: do not give it the name.
        """
        sha256, _ = self._written.result()
        if not withhold and not _is_same(self.final, self._contents.archive.path):
            move_synced(self.directory / self.final.name, self.final)
        return sha256

    def _write(self, changes: Changes) -> tuple[str, tuple[Finding, ...]]:
        result = write_wheel(
            self._contents.archive,
            self.directory,
            changes,
            self._write_options,
            on_progress=self.on_progress,
        )
        return result.sha256, tuple(reread_wheel(result.path))

    def _copy(self) -> tuple[str, tuple[Finding, ...]]:
        archive = self._contents.archive
        if self._options.verify_record:
            listed = self._contents.listed.values()
            entries = [entry for entry in listed if entry.path in archive.members and entry.digest]
            verify_members(archive, entries, self._options.jobs)
        if not _is_same(self.final, archive.path):
            shutil.copyfile(archive.path, self.directory / self.final.name)
        return archive.sha256(), ()

    def _refuse_the_inputs_place(self) -> None:
        if _is_same(self.final, self._contents.archive.path):
            raise UsageError(f"{self.final}: the result would take the input's place; {_ELSEWHERE}")

    def _failed(self, error: OSError) -> RelinkError:
        """Return the error to raise for an OSError about the output, or about another file that the output needs.

        :raises MachineError: the machine is the reason.
        """
        names = [name for name in (error.filename, error.filename2) if isinstance(name, str | os.PathLike)]
        own = (self.final, self.final.parent)
        reason = error.strerror or str(error)
        if names and not any(path in own or path.is_relative_to(self.directory) for path in map(Path, names)):
            raise_if_machine_fault(error, f"{names[0]}")
            return RelinkError(
                f"{names[0]}: {reason}, so {self.final.name} cannot be made; see to that file, and run this again"
            )
        raise_if_machine_fault(error, f"{self.final}: cannot be written")
        step = _STEPS.get(error.errno or 0, _ELSEWHERE)
        return UsageError(f"{self.final}: cannot be written ({reason}); {step}")


@contextmanager
def _created(directory: Path) -> Iterator[None]:
    """Make a directory and its missing parents; remove those that are empty at the end."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):
            for path in missing:
                path.rmdir()


def _is_same(final: Path, wheel: Path) -> bool:
    try:
        return os.path.samefile(final, wheel)
    except OSError:  # there is no output of that name yet
        return False
