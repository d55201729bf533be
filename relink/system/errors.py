"""The errors relink raises. Everything a caller may catch derives from :class:`RelinkError`.

A *finding* (``relink.system.findings.model``) is not an error: findings are collected and reported together.
An error means that relink could not read, decide or write at all; the command line turns it into exit code 2.
"""

from __future__ import annotations

from collections.abc import Iterable


class RelinkError(Exception):
    """Root of all errors: a sentence that names the thing, the reason and the next step.

    :param message: the sentence shown to the user.
    :param issues: further lines, one a problem, when several were found in one go.
    """

    def __init__(self, message: str, issues: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.issues: tuple[str, ...] = tuple(issues)

    def __str__(self) -> str:
        return "\n  - ".join((self.message, *self.issues))


class UsageError(RelinkError):
    """The command line or the arguments of the API do not make sense together."""


class NoPlaceError(UsageError):
    """No place has a vendor's libraries, and the user named none."""


class WheelError(RelinkError):
    """The input is not a wheel that can be trusted: damaged, lying, or hostile."""


class MemberError(WheelError):
    """One file of an installed distribution cannot be read; the others can."""


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
