"""What a user can say about one run: the table of options.

Each field of :class:`Options` carries the :class:`~relink.planning.options.Option` that it is on the command line. The
signatures of the commands, the keys of settings that are refused, the commands that are printed, and docs/cli.md come from it.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec.structs import replace

from relink.system.errors import UsageError
from relink.wheel.limits import WheelLimits, parse_limits

if TYPE_CHECKING:  # slow to load
    from relink.gpu.coverage import RequestedGpu


# The groups of `relink COMMAND --help`.
LINK = "What to link to"
RUN = "Where the result will run"
KNOWN = "What only you can know"
GPUS = "GPUs"
OUTPUT = "What is written"
WORK = "How it is done"
SHOWN = "What is shown"


class Option(msgspec.Struct, frozen=True):
    """How a field is written on the command line, and which commands take it.

    A field that is False by default is a flag that sets it, and one that is True is a flag that clears it. A sequence is
    an option that can be repeated.

    :ivar commands: as a user writes them: ``run``, ``index build``.
    :ivar group: its heading in ``--help``; None for the first, which is called Options.
    :ivar names: ``--name`` and a letter; of the field's name where there are none.
    :ivar kind: of one value.
    :ivar repeatable: of a field that is not a sequence, but is made of several values.
    :ivar choices: the words that it can be.
    :ivar least: the smallest number.
    :ivar completion: the function of :mod:`relink.cli.options` that knows the values.
    :ivar parse: makes the field's value of what was passed.
    :ivar instead: the help of a command for which the option means something else.
    :ivar setting: the key of a project's settings that is its default; None where a file must not decide.
    :ivar decides: it changes how files are edited or what the result is called.
    :ivar default: of the field; :meth:`field` sets it.
    """

    commands: Sequence[str]
    group: str | None
    help: str
    names: tuple[str, ...] = ()
    metavar: str | None = None
    kind: type = str
    repeatable: bool = False
    choices: tuple[str, ...] = ()
    least: int | None = None
    completion: Literal["complete_gpu_name", "complete_profile_name", "complete_rule_code"] | None = None
    parse: Callable[[Any], Any] | None = None
    instead: Mapping[str, str] = msgspec.field(default_factory=dict)
    setting: str | None = None
    decides: bool = False
    default: Any = None

    @property
    def is_list(self) -> bool:
        """Whether it can be repeated."""
        return self.repeatable or self.default == ()

    def field(self, default: Any) -> Any:
        """Return a field of a dataclass that has this option."""
        return field(default=default, metadata={"option": replace(self, default=default)})


@cache
def option_table(table: type) -> dict[str, Option]:
    """Return the options of a dataclass by the names of their fields, each with its names on the command line."""
    return {
        entry.name: replace(option, names=option.names or (f"--{entry.name.replace('_', '-')}",))
        for entry in fields(table)
        if (option := entry.metadata.get("option")) is not None
    }


def parse_mebibytes(number: int | None) -> int | None:
    """Return bytes."""
    return number << 20 if number else None


# 10**18 seconds are beyond the dates of any file system.
_EPOCH_DIGITS = 18

COMPRESSION_LEVELS = {"fast": 2, "balanced": 3, "small": 6}
"""Levels of :class:`relink.wheel.writer.ZipWriter`, by the words of ``--compress``; docs/large-wheels.md has the cost."""

# Commands that take the same options.
_INSTALLS = ("install", "repair")
_RELINKS = ("run", *_INSTALLS, "diff")
_PLANS = (*_RELINKS, "nix")
_RESOLVES = (*_PLANS, "explain")
_TARGETS = ("run", "diff", "explain", "verify")


@dataclass(frozen=True, slots=True)
class Options:
    """What a user can say about one run, by the names of the command line's options.

    Sequences of strings may be lists.

    :raises UsageError: a text of `gpus` names no GPU.

    Each field says its meaning in the help of its option, which ``relink run --help`` and docs/cli.md print. None is the default
    that is said there.

    :ivar max_memory: bytes, at least :data:`relink.planning.contents.LEAST_MEMORY`.
    :ivar requested_gpus: the GPUs that `gpus` and `only_gpus` name, each architecture once; `kept_gpus`: those of `only_gpus`.
    :ivar epoch: SOURCE_DATE_EPOCH in seconds; None takes the times from the input.
    :ivar command: the words of the command line, for the report.
    :ivar several: the options are for several wheels, so that a name that fits none of one wheel is no error of it.
    """

    prefixes: Sequence[str] = Option(
        (*_RESOLVES, "doctor", "check"),
        LINK,
        "A ROCm to link to, or an environment with pip's; repeatable. Default: $ROCM_PATH, that of the Python, of modules, or "
        "the one in /opt, ld.so.cache or /usr.",
        ("--prefix",),
        "DIR",
        instead={
            "diff": "Relink OLD for this ROCm, and compare NEW with that; repeatable.",
            "check": "The ROCm that the printed command relinks for; repeatable.",
        },
        setting="prefix",
    ).field(())
    nix_closures: Sequence[str] = Option(
        _RESOLVES,
        LINK,
        "A Nix store path: its libraries and those of all that it refers to (closure); repeatable.",
        ("--nix-closure",),
        "PATH",
        setting="nix-closure",
    ).field(())
    output_directory: Path | None = Option(  # noqa: RUF009 (a field)
        ("run", *_INSTALLS, "nix", "fetch"),
        OUTPUT,
        "Where the result goes. Default: the current directory.",
        ("--output", "-o"),
        "DIR",
        kind=Path,
        instead={
            **dict.fromkeys(
                _INSTALLS,
                "Keep the relinked wheels there. Default: none is kept, but in a project of uv beside pyproject.toml.",
            ),
            "nix": "Where package.nix goes. Default: the current directory.",
            "fetch": "Where the wheels go. Default: the current directory.",
        },
    ).field(None)
    environment: str | None = Option(
        ("verify",),
        RUN,
        "As installed in this environment: what it has beside the wheel is found.",
        ("--in",),
        "VENV",
    ).field(None)
    python: str | None = Option(
        (*_TARGETS, *_INSTALLS, "nix", "fetch", "check"),
        RUN,
        "The Python that will load the result. Default: the active environment's, or this one.",
        metavar="PATH",
        instead=dict.fromkeys(
            _INSTALLS,
            "The Python of the environment to change. Default: that of the active virtual environment, or of ./.venv.",
        )
        | {"check": "The Python of the environment. Default: that of the active one, or of ./.venv."},
    ).field(None)
    interpreter: str | os.PathLike[str] | None = Option(  # noqa: RUF009 (a field)
        (*_TARGETS, "nix", "fetch", "report"),
        RUN,
        "The loader (ld-linux) that will run the result, if it is another.",
        metavar="PATH",
    ).field(None)
    sysroot: str | None = Option(
        _TARGETS, RUN, "A directory that will be / when the result is run.", metavar="DIR"
    ).field(None)
    allow_missing: Sequence[str] = Option(
        (*_RESOLVES, "verify"),
        KNOWN,
        "A library that will be there at run time; repeatable.",
        metavar="GLOB",
        setting="allow-missing",
        decides=True,
    ).field(())
    leave_out: Sequence[str] = Option(
        _RELINKS,
        KNOWN,
        "A member to leave out that is no ELF file, such as a kpack archive that hides another (RLK428); repeatable.",
        metavar="GLOB",
        decides=True,
    ).field(())
    clear_execstack: Sequence[str] = Option(
        _RELINKS,
        KNOWN,
        "A file that asks for an executable stack and does without, which glibc 2.41 and newer want (RLK116); repeatable.",
        metavar="GLOB",
        decides=True,
    ).field(())
    use_host: Sequence[str] = Option(
        _RELINKS,
        KNOWN,
        "A library that is this machine's (the HSA runtime within WSL), in place of the one that the wheel brings; repeatable.",
        metavar="SONAME",
        decides=True,
    ).field(())
    substitute: Sequence[str] = Option(
        _RESOLVES,
        KNOWN,
        "Use library NEW where a file needs OLD: you say that the two are compatible (one ABI); repeatable.",
        metavar="OLD=NEW",
        decides=True,
    ).field(())
    assume_symbols: Sequence[str] = Option(
        _PLANS,
        KNOWN,
        "Symbols that something else will supply; repeatable.",
        metavar="GLOB",
        decides=True,
    ).field(())
    search_path: str = Option(
        _RESOLVES,
        LINK,
        "What leads to libraries: a RUNPATH, or a DT_RPATH, which comes before LD_LIBRARY_PATH; auto: a DT_RPATH where only that "
        "reaches them.",
        choices=("auto", "runpath", "rpath"),
        decides=True,
    ).field("auto")
    preload: Sequence[str] = Option(
        _RESOLVES,
        KNOWN,
        "Load this library first (add it to NEEDED): one that others open by dlopen, or that a file forgot to name; repeatable.",
        metavar="SONAME",
        setting="preload",
        decides=True,
    ).field(())
    stub: Sequence[str] = Option(
        _RESOLVES,
        KNOWN,
        "A stand-in (stub) for a library that nobody has, or a function that one lacks: it refuses; auto: for all that are "
        "optional; repeatable.",
        metavar="SONAME[:SYMBOL]",
        decides=True,
    ).field(())
    forward: Sequence[str] = Option(
        _RESOLVES,
        KNOWN,
        "For a file that opens libNAME.so where the prefix has libNAME.so.1: a library that loads it; auto: all; repeatable.",
        metavar="NAME",
        decides=True,
    ).field(())
    preload_known: bool = Option(
        _RESOLVES,
        KNOWN,
        "Load nothing first but what --preload names: also not what is known to be opened (dlopen) and not found.",
        ("--no-preload",),
        decides=True,
    ).field(True)
    trust: Sequence[str] = Option(
        ("run", "diff", "verify"),
        KNOWN,
        "Give the loader and patchelf a file that the static scan refuses; only with --sandbox require; repeatable.",
        metavar="GLOB",
    ).field(())
    profile: str | None = Option(
        (*_RESOLVES, "verify", "isa"),
        KNOWN,
        "What is assumed of the package: a shipped profile, a file, or none. Default: by the wheel's name.",
        metavar="NAME|FILE",
        completion="complete_profile_name",
        setting="profile",
        decides=True,
    ).field(None)
    gpus: Sequence[str] = Option(
        (*_PLANS, "isa", "check", "verify"),
        GPUS,
        "A GPU that there must be code for: gfx1031, 'RX 6750 XT' or auto; repeatable.",
        ("--gpu",),
        "GPU",
        completion="complete_gpu_name",
        setting="gpus",
    ).field(())
    allow_isa_gap: bool = Option(_RELINKS, GPUS, "Go on although there is no code for a GPU of --gpu.").field(
        False
    )
    only_gpus: Sequence[str] = Option(
        ("run", *_INSTALLS, "check"),
        GPUS,
        "Take code for other GPUs out of the wheel: gfx1100, 'RX 7900 XTX' or auto; repeatable.",
        ("--only-gpu",),
        "GPU",
        instead={"check": "The printed command takes code for other GPUs out; repeatable."},
        completion="complete_gpu_name",
        setting="only-gpus",
        decides=True,
    ).field(())
    drop_jit: bool = Option(
        ("run", *_INSTALLS, "check"),
        GPUS,
        "With --only-gpu, take out code that is compiled on first use (SPIR-V) as well.",
        decides=True,
    ).field(False)
    dry_run: bool = Option(("run",), OUTPUT, "Plan, print, and write nothing.").field(False)
    keep_version: bool = Option(
        ("run", "diff"),
        OUTPUT,
        "Do not add +rocmX.Y.Z.",
        instead={"diff": "NEW was made with --keep-version."},
        setting="keep-version",
        decides=True,
    ).field(False)
    local_version: str | None = Option(
        ("run", "diff"),
        OUTPUT,
        "The local version label, if not rocmX.Y.Z.",
        metavar="LABEL",
        instead={"diff": "NEW was made with this --local-version."},
        setting="local-version",
        decides=True,
    ).field(None)
    requires: bool = Option(
        ("run", "diff"),
        OUTPUT,
        "Require the packages in site-packages that the result relies on; without it the extra [rocm] brings them.",
        decides=True,
    ).field(False)
    verify: bool = Option(
        ("run", "diff"),
        WORK,
        "Do not ask the real loader (ld.so) whether the result loads.",
        ("--no-verify",),
    ).field(True)
    verify_record: bool = Option(
        ("run",),
        WORK,
        "Believe the vendor's RECORD: do not hash what is copied.",
        ("--no-verify-record",),
    ).field(True)
    compress: str = Option(
        ("run",),
        WORK,
        "How much is spent on making changed files small again.",
        choices=tuple(COMPRESSION_LEVELS),
        setting="compress",
    ).field("balanced")
    jobs: int | None = Option(
        ("run",), WORK, "Threads that verify and write.", metavar="N", kind=int, least=1
    ).field(None)
    max_memory: int | None = Option(
        _RELINKS,
        WORK,
        "Memory for all of it, in MiB, at least 256; large files then lie beside the output.",
        metavar="MIB",
        kind=int,
        least=256,
        parse=parse_mebibytes,
    ).field(None)
    force: bool = Option(("run", "diff", "nix"), OUTPUT, "Write although there are errors.").field(False)
    gc_root: str | None = Option(
        ("run",),
        OUTPUT,
        "Put garbage collector roots of the Nix store paths used here.",
        metavar="DIR",
    ).field(None)
    limits: WheelLimits | None = Option(  # noqa: RUF009 (a field)
        ("run", "diff", "verify", "inspect"),
        WORK,
        "Another limit on a wheel: members, member-size, total-size (32G, say), ratio or loads; repeatable.",
        ("--limit",),
        "NAME=N",
        repeatable=True,
        parse=parse_limits,
    ).field(None)
    sandbox: str = Option(
        (*_RELINKS, "verify"),
        WORK,
        "Confine the loader and patchelf: as well as can be had here, or else refuse, or not at all.",
        choices=("auto", "require", "off"),
    ).field("auto")
    select: Sequence[str] = Option(
        _PLANS,
        SHOWN,
        "Show only warnings and infos of this code, or about this file or library; repeatable.",
        metavar="GLOB",
        completion="complete_rule_code",
    ).field(())
    ignore: Sequence[str] = Option(
        (*_PLANS, "verify", "check"),
        SHOWN,
        "Leave out findings of this code, or about this file or library, errors included; repeatable.",
        metavar="GLOB",
        completion="complete_rule_code",
    ).field(())
    epoch: int | None = None
    command: Sequence[str] = ()
    several: bool = False
    requested_gpus: tuple[RequestedGpu, ...] = field(init=False, default=(), repr=False, compare=False)
    kept_gpus: tuple[RequestedGpu, ...] = field(init=False, default=(), repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.output_directory is not None:  # a program may pass text
            object.__setattr__(self, "output_directory", Path(self.output_directory))
            if self.output_place.suffix == ".whl":
                raise UsageError(
                    f"-o {self.output_directory}: the name of a wheel; results go to a directory, under names of their own: -o "
                    f"{self.output_place.with_suffix('')}"
                )
        if self.gpus or self.only_gpus:
            from relink.vendors.registry import requested_gpus  # noqa: PLC0415 - slow to load, and here only

            object.__setattr__(self, "requested_gpus", requested_gpus((*self.gpus, *self.only_gpus)))
            object.__setattr__(self, "kept_gpus", requested_gpus(self.only_gpus))
        if self.drop_jit and not self.only_gpus:
            raise UsageError("--drop-jit goes with --only-gpu; name the GPUs whose code stays")

    @property
    def output_place(self) -> Path:
        """The directory that results go to: the one that was named, or the current one."""
        return self.output_directory or Path()


# Lists, then flags, then single values: the order of "options" in every relink.json.
_DECIDING = [
    name
    for name, option in sorted(
        option_table(Options).items(),
        key=lambda entry: (not entry[1].is_list, not isinstance(entry[1].default, bool)),
    )
    if option.decides
]


def list_words(values: object, names: Iterable[str]) -> list[str]:
    """Return what one passes on the command line for the fields of these names; a field that says nothing takes no word.

    :param values: :class:`Options`, or what has fields of the same names.
    """
    words: list[str] = []
    for name in names:
        value: Any = getattr(values, name)
        option = option_table(Options)[name]
        if isinstance(value, bool):
            words += [option.names[0]] * (value is not option.default)
        elif value != option.default:
            several: Sequence[str] = ([value] if value else []) if isinstance(value, str | None) else value
            words += [word for each in several for word in (option.names[0], each)]
    return words


def list_deciding_words(options: Options) -> tuple[str, ...]:
    """Return the options that decide how a wheel's files are edited and what the result is called, as words of a command.

    Left out are providers and target, which a plan has by themselves, and the directory of a profile's file.
    """
    profile = options.profile and os.path.basename(options.profile)
    return tuple(list_words(dataclasses.replace(options, profile=profile), _DECIDING))


def check_trust(options: Options) -> Sequence[str]:
    """Return the globs of files that the loader and patchelf get although the static scan refuses them.

    :raises UsageError: the loader would not be confined.
    """
    if options.trust and options.sandbox != "require":
        raise UsageError("--trust lets the loader run code of a file; give --sandbox require with it")
    return options.trust


def read_source_date_epoch(environment: Mapping[str, str]) -> int | None:
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
