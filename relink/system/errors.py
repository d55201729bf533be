"""The errors relink raises, and what an error number of the system says.

Everything a caller may catch derives from :class:`RelinkError`. A *finding* (``relink.system.findings.model``) is not an error:
findings are collected and reported together. An error means that relink could not read, decide or write at all; the command line
turns it into exit code 2.

An error number says that something is not there, or that this machine has a fault or lacks a resource. A library that cannot be
opened for lack of descriptors is not missing. What opens files (:mod:`relink.system.safe_open`) therefore checks an error by
:func:`raise_if_machine_fault`, and so does other code that would read it as "there is no such file".
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final


class RelinkError(Exception):
    """Root of all errors: a sentence that names the thing, the reason and the next step.

    :param message: the sentence shown to the user.
    :param issues: further lines, one a problem, when several were found in one go.
    :param step: a command that helps; or a word of the command line and another one, with which the same command helps.
    """

    def __init__(
        self, message: str, issues: Iterable[str] = (), step: str | tuple[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.issues: tuple[str, ...] = tuple(issues)
        self.step = step

    def __str__(self) -> str:
        return "\n  - ".join((self.message, *self.issues))


class UsageError(RelinkError):
    """The command line or the arguments of the API do not make sense together."""


class NoPlaceError(UsageError):
    """No place has a vendor's libraries, and the user named none."""


class SeveralPlacesError(UsageError):
    """Places have a vendor's libraries, the user named none, and none is taken by itself.

    :param places: the directories that lack fewest of the libraries that are needed.
    """

    def __init__(self, message: str, issues: Iterable[str], places: Iterable[str]) -> None:
        super().__init__(message, issues)
        self.places = tuple(places)


class WheelError(RelinkError):
    """The input is not a wheel that can be trusted: damaged, lying, or hostile."""


class MemberError(WheelError):
    """One file of an installed distribution cannot be read; the others can."""


class BudgetError(WheelError):
    """A run has done as much as it may for these files (:mod:`relink.system.progress`)."""


class ElfError(RelinkError):
    """A file that should be ELF is not, or its headers point outside of it."""


class PatchelfError(RelinkError):
    """patchelf is missing, too old, or cannot be run; or, as :class:`EditError`, it cannot edit a file."""


class EditError(PatchelfError):
    """patchelf failed with one file, or what it wrote does not hold up; other files may be edited all the same."""


class MachineError(RelinkError):
    """The machine or the process has run out of something (memory, open files, processes), or a disk fails.

    It says nothing about the wheel or the prefix.
    """


class TargetError(RelinkError):
    """The loader that is to run the result cannot be found, asked or understood."""


class ProviderError(RelinkError):
    """A prefix that was named cannot be used as a place libraries come from."""


class SandboxError(RelinkError):
    """Nothing here confines the loader and patchelf, and they are not to run without."""


_LIMITS: Final = {errno.EMFILE: resource.RLIMIT_NOFILE, errno.ENOMEM: resource.RLIMIT_AS}
_NEXT: Final = {
    errno.EMFILE: "this process may not open more files{limit}; raise that (ulimit -n)",
    errno.ENFILE: "this machine has no more open files to give; end what holds them, or raise fs.file-max",
    errno.ENOMEM: "there is not enough memory{limit}; free some, or raise the limit of this process (ulimit -v)",
    errno.EAGAIN: "no more processes or threads can be started; end some, or raise the limit (ulimit -u, pids.max of the cgroup)",
    errno.ENOBUFS: "the kernel has no more buffers; free memory",
    errno.EIO: "the disk cannot be read; check it (dmesg)",
    errno.EUCLEAN: "the file system is damaged; check it (dmesg)",
    errno.EBADMSG: "the file system is damaged; check it (dmesg)",
    errno.ESTALE: "the network file system does not answer as it should; mount it again",
    errno.ETIMEDOUT: "the network file system does not answer; mount it again",
    errno.EHOSTDOWN: "the network file system does not answer; mount it again",
    errno.EHOSTUNREACH: "the network file system does not answer; mount it again",
    errno.ENOTCONN: "the program behind this file system has ended; mount it again",
    errno.EREMOTEIO: "the disk cannot be read; check it (dmesg)",
}
"""Not among them, since ld.so then goes on as if there were no file: ENOENT and EACCES, after which open_path of glibc's
elf/dl-load.c takes the next directory; and what a path itself causes (ENOTDIR, ELOOP, ENAMETOOLONG), which ends that list."""

_TEXTS: Final = {os.strerror(number): number for number in _NEXT}


def raise_if_machine_fault(error: Exception, subject: str | None = None) -> None:
    """Return where `error` is a fact about a path: there is no such file, it may not be read, or it is no ELF file.

    :param subject: what was being done, or to which file; the error's own file name where it is None.
    :raises MachineError: it is a fault of this machine, or a resource has run out; names the resource and what to do.
    """
    if isinstance(error, MachineError):
        raise error
    if isinstance(error, OSError) and error.errno in _NEXT:
        raise _machine_error(error.errno, subject or str(error.filename or "")) from error


@contextmanager
def describe_failure(kind: type[RelinkError], what: str, step: str = "") -> Iterator[None]:
    """Raise an error that begins with `what`, and ends with `step`, in place of an OSError of the block.

    :raises MachineError: as :func:`raise_if_machine_fault`.
    """
    try:
        yield
    except OSError as error:
        raise_if_machine_fault(error, what)
        raise kind(f"{what} ({error.strerror}){step}") from error


def find_machine_fault(text: str, subject: str) -> MachineError | None:
    """Return the same for what a program printed in the C locale, if it ends with strerror(3), as ld.so's messages do."""
    number = _TEXTS.get(text.rpartition(": ")[2].strip())
    return None if number is None else _machine_error(number, subject)


def _machine_error(number: int, subject: str) -> MachineError:
    limit = ""
    if number in _LIMITS:
        soft, _ = resource.getrlimit(_LIMITS[number])
        limit = "" if soft == resource.RLIM_INFINITY else f" (its limit is {soft})"
    message = f"{os.strerror(number)}: {_NEXT[number].format(limit=limit)}"
    return MachineError(f"{subject}: {message}" if subject else message)
