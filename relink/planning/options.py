"""What a user can say about one run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from relink.system.errors import UsageError
from relink.wheel.limits import WheelLimits

__all__ = ["COMPRESSION_LEVELS", "Options", "deciding", "source_date_epoch", "trusted"]

_EPOCH_DIGITS = 18  # 10**18 seconds are beyond the dates of any file system

COMPRESSION_LEVELS = {"fast": 2, "balanced": 3, "small": 6}
"""Levels of :class:`relink.wheel.zipwriter.ZipWriter`, by the words of ``--compress``; docs/large-wheels.md has the cost."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a user can say about one run, by the names of the command line's options.

    Sequences of strings may be lists.

    :ivar prefixes: the providers, in order of preference; the one ROCm of this machine where none is given ($ROCM_PATH, /opt,
        ld.so.cache, /usr).
    :ivar gpus: the GPUs that must be covered: target ids, product names, or ``auto`` for those of this machine.
    :ivar compress: how changed files are deflated, a key of `COMPRESSION_LEVELS`.
    :ivar jobs: threads that verify and write; None: one a processor, at most 4.
    :ivar max_memory: bytes that the run and what it starts may take, at least :data:`relink.planning.memory.LEAST_MEMORY`;
        None: as
        docs/large-wheels.md says.
    :ivar verify_record: compare the files with the vendor's RECORD.
    :ivar limits: sizes and counts that the wheel may not exceed.
    :ivar sandbox: what the loader and patchelf run in, one of :data:`relink.system.sandbox.MODES`.
    :ivar epoch: SOURCE_DATE_EPOCH in seconds; None takes the times from the input.
    :ivar nix_closures: store paths whose closures are providers, after the prefixes.
    :ivar profile: the name or the file of a profile; None takes the one for the wheel's distribution, ``none`` takes none.
    :ivar preload_known: preload what a profile or the ROCm table knows to be dlopened and not to be found, where that changes no
        binding.
    :ivar stub: sonames of libraries that nobody has and that a stub is written for; ``auto``: all that are known to be optional.
    :ivar fix: add the options that findings name and that are sound by proof alone.
    :ivar trust: globs of files that the loader and patchelf get although the static scan refuses them; with `sandbox` "require".
    :ivar requires: METADATA requires the packages in site-packages that the result relies on; else they are an extra.
    :ivar environment: the environment in which :func:`relink.verify` looks for the packages beside the wheel.
    :ivar gc_root: the directory for garbage collector roots of the store paths that the output names.
    """

    prefixes: Sequence[str] = ()
    nix_closures: Sequence[str] = ()
    gc_root: str | None = None
    profile: str | None = None
    output_directory: Path = Path()
    python: str | None = None
    interpreter: str | None = None
    sysroot: str | None = None
    allow_missing: Sequence[str] = ()
    substitute: Sequence[str] = ()
    assume_symbols: Sequence[str] = ()
    preload: Sequence[str] = ()
    stub: Sequence[str] = ()
    preload_known: bool = True
    select: Sequence[str] = ()
    ignore: Sequence[str] = ()
    keep_version: bool = False
    local_version: str | None = None
    verify: bool = True
    force: bool = False
    gpus: Sequence[str] = ()
    allow_isa_gap: bool = False
    dry_run: bool = False
    compress: str = "balanced"
    jobs: int | None = None
    verify_record: bool = True
    max_memory: int | None = None
    epoch: int | None = None
    command: Sequence[str] = ()
    limits: WheelLimits | None = None
    sandbox: str = "auto"
    trust: Sequence[str] = ()
    requires: bool = False
    fix: bool = False
    environment: str | None = None


def deciding(options: Options) -> tuple[str, ...]:
    """Return the options that decide how a wheel's files are edited and what the result is called, as words of a command.

    Left out are providers and target, which a plan has by themselves, the directory of a profile's file, and ``--fix``, which
    decides nothing for a wheel that loads.
    """
    lists = {
        "--allow-missing": options.allow_missing,
        "--substitute": options.substitute,
        "--assume-symbols": options.assume_symbols,
        "--preload": options.preload,
        "--stub": options.stub,
    }
    flags = {
        "--no-preload": not options.preload_known,
        "--keep-version": options.keep_version,
        "--requires": options.requires,
    }
    values = {
        "--profile": options.profile and os.path.basename(options.profile),
        "--local-version": options.local_version,
    }
    words = [word for name, items in lists.items() for item in items for word in (name, item)]
    words += [name for name, is_set in flags.items() if is_set]
    return (*words, *(word for name, value in values.items() if value for word in (name, value)))


def trusted(options: Options) -> Sequence[str]:
    """Return the globs of files that the loader and patchelf get although the static scan refuses them.

    :raises UsageError: the loader would not be confined.
    """
    if options.trust and options.sandbox != "require":
        raise UsageError("--trust lets the loader run code of a file; give --sandbox require with it")
    return options.trust


def source_date_epoch(environment: Mapping[str, str]) -> int | None:
    """Return SOURCE_DATE_EPOCH in seconds since 1970, or None where it is not set.

    Source: the specification of SOURCE_DATE_EPOCH by reproducible-builds.org.

    :raises UsageError: it is no such number.
    """
    value = environment.get("SOURCE_DATE_EPOCH")
    if not value:
        return None
    if not (value.isascii() and value.isdecimal() and len(value) <= _EPOCH_DIGITS):
        shown = value if len(value) <= _EPOCH_DIGITS else f"{value[:_EPOCH_DIGITS]}…"
        raise UsageError(
            f"SOURCE_DATE_EPOCH={shown!r} is not a number of seconds since 1970; correct or unset it"
        )
    return int(value)
