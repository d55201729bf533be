"""The command line. One short function a command; everything else is done elsewhere."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from relink.errors import RelinkError, UsageError
from relink.plan.findings import RULES, has_errors
from relink.report import text

if TYPE_CHECKING:
    from relink.report.model import Report

# The rest is imported by the command that uses it: `relink isa` of one file is as fast as reading that file.

__all__ = ["app", "main"]

app = typer.Typer(
    name="relink",
    help="Relink AMD's prebuilt ROCm wheels against the ROCm you have. `relink WHEEL --prefix DIR` is the main command.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Prefixes = Annotated[
    list[str],
    typer.Option(
        "--prefix", metavar="DIR", help="A ROCm to link to; repeatable. Default: $ROCM_PATH, /opt/rocm."
    ),
]
Closures = Annotated[
    list[str],
    typer.Option(
        "--nix-closure", metavar="PATH", help="A Nix store path: all libraries of its closure; repeatable."
    ),
]
Python = Annotated[
    str | None, typer.Option(metavar="PATH", help="The Python that will load the result. Default: this one.")
]
Interpreter = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="The loader (ld-linux) that will run the result, if it is another."),
]
Sysroot = Annotated[
    str | None, typer.Option(metavar="DIR", help="A directory that will be / when the result is run.")
]
AllowMissing = Annotated[
    list[str],
    typer.Option(
        "--allow-missing", metavar="GLOB", help="A library that will be there at run time; repeatable."
    ),
]
Gpus = Annotated[
    list[str],
    typer.Option(
        "--gpu", metavar="GPU", help="A GPU that must be covered: gfx1031, 'RX 6750 XT' or auto; repeatable."
    ),
]
Substitute = Annotated[
    list[str],
    typer.Option(
        "--substitute",
        metavar="OLD=NEW",
        help="Two sonames are one ABI: let NEW take OLD's place; repeatable.",
    ),
]
AssumeSymbols = Annotated[
    list[str],
    typer.Option(
        "--assume-symbols", metavar="GLOB", help="Symbols that something else will supply; repeatable."
    ),
]
Preload = Annotated[
    list[str],
    typer.Option(
        "--preload", metavar="SONAME", help="A library that others dlopen: load it before; repeatable."
    ),
]
Select = Annotated[
    list[str],
    typer.Option(
        "--select", metavar="GLOB", help="Of warnings and infos only this code or subject; repeatable."
    ),
]
Ignore = Annotated[
    list[str],
    typer.Option(
        "--ignore", metavar="GLOB", help="No findings of this code or subject, errors included; repeatable."
    ),
]
LimitOptions = Annotated[
    list[str],
    typer.Option(
        "--limit",
        metavar="NAME=N",
        help="What a wheel may ask for: members, member-size, total-size (32G, say) or ratio; repeatable.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Nothing but JSON on standard output.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Every NEEDED with its evidence, and all findings.")
]


class Compress(StrEnum):
    """Words for :data:`relink.pipeline.LEVELS`."""

    fast = "fast"
    balanced = "balanced"
    small = "small"


_INTERRUPTED = 130  # what typer makes of Ctrl-C, as shells do
_STAGES = ("target", "read", "plan", "edit", "write", "verify")


def _show_version(value: bool) -> None:
    if value:
        from relink import __version__

        typer.echo(f"relink {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    pass


@app.command("run")
def run(
    wheels: Annotated[list[Path], typer.Argument(metavar="WHEEL…", help="The vendor's wheels.")],
    prefix: Prefixes = [],
    nix_closure: Closures = [],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Where the result goes.")
    ] = Path(),
    python: Python = None,
    interpreter: Interpreter = None,
    sysroot: Sysroot = None,
    allow_missing: AllowMissing = [],
    substitute: Substitute = [],
    assume_symbols: AssumeSymbols = [],
    preload: Preload = [],
    gpu: Gpus = [],
    allow_isa_gap: Annotated[
        bool, typer.Option("--allow-isa-gap", help="Go on although a GPU of --gpu is not covered.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Plan, print, and write nothing.")] = False,
    keep_version: Annotated[bool, typer.Option("--keep-version", help="Do not add +rocmX.Y.Z.")] = False,
    local_version: Annotated[
        str | None, typer.Option(metavar="LABEL", help="The local version label, if not rocmX.Y.Z.")
    ] = None,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Do not ask the real loader.")] = False,
    no_verify_record: Annotated[
        bool,
        typer.Option("--no-verify-record", help="Believe the vendor's RECORD: do not hash what is copied."),
    ] = False,
    compress: Annotated[
        Compress, typer.Option(help="How much is spent on making changed files small again.")
    ] = Compress.balanced,
    jobs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Threads that verify and write.")
    ] = None,
    max_memory: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="MIB", help="MiB in which several files are compressed at once. Default: 256."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write although there are errors.")] = False,
    gc_root: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Put garbage collector roots of the Nix store paths used here."),
    ] = None,
    limit: LimitOptions = [],
    select: Select = [],
    ignore: Ignore = [],
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Relink wheels: `relink WHEEL --prefix DIR`. This is the default command, `run` need not be written.

    Example: relink onnxruntime_rocm-1.22.2-cp312-cp312-manylinux_2_34_x86_64.whl --prefix /opt/rocm-6.2.2 -o dist
    """
    from relink import pipeline
    from relink.report.model import to_json
    from relink.wheel.directory import parse_limits

    options = pipeline.Options(
        prefixes=tuple(prefix),
        nix_closures=tuple(nix_closure),
        gc_root=gc_root,
        output_directory=output,
        python=python,
        interpreter=interpreter,
        sysroot=sysroot,
        allow_missing=tuple(allow_missing),
        substitute=tuple(substitute),
        assume_symbols=tuple(assume_symbols),
        preload=tuple(preload),
        select=tuple(select),
        ignore=tuple(ignore),
        keep_version=keep_version,
        local_version=local_version,
        verify=not no_verify,
        force=force,
        gpus=tuple(gpu),
        allow_isa_gap=allow_isa_gap,
        dry_run=dry_run,
        compress=compress.value,
        jobs=jobs,
        verify_record=not no_verify_record,
        max_memory=max_memory << 20 if max_memory else None,
        epoch=_source_date_epoch(),
        limits=parse_limits(limit),
        command=("relink", *sys.argv[1:]),
    )
    reports, failures = [], []
    for wheel in wheels:
        try:
            with _progress(as_json) as on_stage:
                report = pipeline.relink(wheel, options, on_stage)
        except RelinkError as error:
            failures.append(error)
            continue
        reports.append(report)
        if not as_json:
            _print_report(report, verbose=verbose)
    if as_json:
        _print_json([to_json(report) for report in reports], several=len(wheels) > 1)
    for failure in failures:
        _say(str(failure))
    if failures or not all(report.ok for report in reports):
        raise typer.Exit(2 if failures else 1)


@app.command()
def verify(
    wheel: Annotated[Path, typer.Argument(metavar="WHEEL", help="A wheel, relinked or not.")],
    python: Python = None,
    interpreter: Interpreter = None,
    sysroot: Sysroot = None,
    as_json: Json = False,
) -> None:
    """Ask the real loader what it makes of every ELF file of a wheel, in a dry run: nothing of it is executed.

    Example: relink verify dist/onnxruntime_rocm-1.22.2+rocm6.2.2-cp312-cp312-linux_x86_64.whl
    """
    from relink import pipeline, queries
    from relink.plan.model import plain

    options = pipeline.Options(python=python, interpreter=interpreter, sysroot=sysroot)
    result = queries.verify_wheel(wheel, options)
    if as_json:
        _print_json([{"schema": "relink.verification/1", **plain(result)}])
    else:
        text.show(_console(), *text.verification_text(result.maps, result.findings))
    if has_errors(result.findings):
        raise typer.Exit(1)


@app.command()
def inspect(
    wheels: Annotated[list[Path], typer.Argument(metavar="WHEEL…", help="Wheels to look at.")],
    limit: LimitOptions = [],
    as_json: Json = False,
) -> None:
    """Say what a wheel is: its ELF files, what they need, their search paths, versions and tags.

    Example: relink inspect onnxruntime_rocm-1.22.2-cp312-cp312-manylinux_2_34_x86_64.whl
    """
    from relink import queries
    from relink.report import inspection
    from relink.wheel.directory import parse_limits

    limits = parse_limits(limit)
    found, failures = [], []
    for wheel in wheels:
        try:
            found.append(queries.inspect(wheel, limits))
        except RelinkError as error:
            failures.append(error)
    if as_json:
        _print_json([inspection.to_json(item) for item in found], several=len(wheels) > 1)
    else:
        for item in found:
            text.show(_console(), *inspection.to_text(item))
    for failure in failures:
        _say(str(failure))
    if failures:
        raise typer.Exit(2)


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="A wheel, the vendor's for example.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="Another, what relink made of it for example.")],
    limit: LimitOptions = [],
    as_json: Json = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every difference, however many.")] = False,
) -> None:
    """Say how two wheels differ, and whether it is only what the plan inside of NEW says.

    Exit code 0 if so, or if they are the same; 1 if there are differences that no plan explains.
    Example: relink diff onnxruntime_rocm-1.22.2-*.whl dist/onnxruntime_rocm-1.22.2+rocm6.2.2-*.whl
    """
    from relink.diff import diff as compare
    from relink.report import diff_text
    from relink.wheel.directory import parse_limits

    found = compare(old, new, parse_limits(limit))
    if as_json:
        _print_json([diff_text.to_json(found)])
    else:
        text.show(_console(), *diff_text.to_text(found, verbose=verbose))
    if not found.ok:
        raise typer.Exit(1)


@app.command()
def explain(
    wheel: Annotated[Path, typer.Argument(metavar="WHEEL")],
    soname: Annotated[str, typer.Argument(metavar="SONAME", help="A library; a glob works.")],
    prefix: Prefixes = [],
    python: Python = None,
    interpreter: Interpreter = None,
    sysroot: Sysroot = None,
) -> None:
    """Say who needs a library, and by which rule it is found, or everything that is tried in vain.

    Example: relink explain onnxruntime_rocm-1.22.2-cp312-cp312-manylinux_2_34_x86_64.whl 'librocm_smi64*'
    """
    from relink import pipeline, queries

    options = pipeline.Options(
        prefixes=tuple(prefix), python=python, interpreter=interpreter, sysroot=sysroot
    )
    lines = [line for part in queries.explain(wheel, soname, options) for line in text.why_text(*part)]
    if not lines:
        raise UsageError(f"{soname}: nothing in the closure of {wheel.name} needs a library of that name")
    text.show(_console(), *lines)


@app.command()
def nix(
    wheel: Annotated[Path, typer.Argument(metavar="WHEEL", help="The vendor's wheel.")],
    prefix: Prefixes = [],
    nix_closure: Closures = [],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Where package.nix and its plan go.")
    ] = Path(),
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="Where the wheel comes from, if not from PyPI.")
    ] = None,
    rocm_major: Annotated[
        int | None, typer.Option(metavar="N", help="The ROCm of rocmPackages, if not the wheel's own.")
    ] = None,
    python: Python = None,
    interpreter: Interpreter = None,
    allow_missing: AllowMissing = [],
    substitute: Substitute = [],
    assume_symbols: AssumeSymbols = [],
    gpu: Gpus = [],
    force: Annotated[bool, typer.Option("--force", help="Write although there are errors.")] = False,
    select: Select = [],
    ignore: Ignore = [],
    verbose: Verbose = False,
) -> None:
    """Write a package for Nix: package.nix, and the plan as JSON with attributes of nixpkgs instead of directories.

    Without --prefix and --nix-closure it is made from a table and proved by building it.
    Example: relink nix onnxruntime_rocm-1.22.2-cp312-cp312-manylinux_2_34_x86_64.whl -o pkgs/onnxruntime-rocm
    """
    from relink import pipeline, queries
    from relink.nix.emit import write_package

    options = pipeline.Options(
        prefixes=tuple(prefix),
        nix_closures=tuple(nix_closure),
        python=python,
        interpreter=interpreter,
        allow_missing=tuple(allow_missing),
        substitute=tuple(substitute),
        assume_symbols=tuple(assume_symbols),
        gpus=tuple(gpu),
        select=tuple(select),
        ignore=tuple(ignore),
    )
    package = queries.nix_package(wheel, options, url=url, major=rocm_major)
    text.show(_console(), *text.findings_text(package.findings, verbose=verbose))
    for attribute, sonames in package.libraries:
        text.show(_console(), Text(text.safe(f"{attribute}  {', '.join(sonames)}")))
    if has_errors(package.findings) and not force:
        raise typer.Exit(1)
    for path in write_package(package, output):
        text.show(_console(), Text(text.safe(str(path))))
    if has_errors(package.findings):
        raise typer.Exit(1)


@app.command()
def isa(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH…", help="Wheels, libraries, .co/.hsaco/.kpack files, directories, prefixes."
        ),
    ],
    gpu: Gpus = [],
    scan: Annotated[
        bool,
        typer.Option("--scan", help="Search other data of each file too, for code that is loaded by hand."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Say which GPUs the code in wheels, files and directories is for. Exit code 1 if a GPU of --gpu is missing.

    Example: relink isa onnxruntime_rocm-1.22.2-cp312-cp312-manylinux_2_34_x86_64.whl --gpu 'RX 6750 XT'
    """
    from relink.isa.wanted import wanted_gpus
    from relink.plan.gpu_survey import survey_of
    from relink.report import isa_text

    wanted = wanted_gpus(gpu)
    found = [survey_of(path, scan=scan) for path in paths]
    if as_json:
        _print_json([item.to_json([one.target for one in wanted]) for item in found], several=len(paths) > 1)
    else:
        console = _console()
        for item in found:
            text.show(console, *isa_text.survey_text(item, wanted, console))
    if not all(item.covers(one.target) for item in found for one in wanted):
        raise typer.Exit(1)


@app.command()
def doctor(prefix: Prefixes = [], as_json: Json = False) -> None:
    """Check this machine and its ROCm: GPUs, access to them, environment, what the runtime can load, coherence.

    Exit code 1 if something is wrong. Example: relink doctor --prefix /opt/rocm
    """
    from relink.plan.doctor import diagnose, to_json
    from relink.report.doctor_text import doctor_text

    found = diagnose(prefix)
    if as_json:
        _print_json([to_json(found)])
    else:
        text.show(_console(), *doctor_text(found))
    if has_errors(found.findings):
        raise typer.Exit(1)


@app.command()
def rules(
    code: Annotated[str | None, typer.Argument(metavar="[CODE]", help="For example RLK101.")] = None,
) -> None:
    """List the finding codes, or explain one."""
    if code is None:
        text.show(_console(), text.rules_table())
        return
    rule = RULES.get(code.upper())
    if rule is None:
        raise UsageError(f"{code}: there is no such rule; `relink rules` lists them")
    text.show(_console(), *text.rule_text(rule))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def demo(context: typer.Context) -> None:
    """Relink a real vendor wheel, install it and show the loader's map before and after (downloads 21 MB)."""
    from relink import queries

    raise typer.Exit(queries.run_demo(context.args))


def _source_date_epoch() -> int | None:
    value = os.environ.get("SOURCE_DATE_EPOCH")
    if not value:
        return None
    if not value.isdecimal():
        raise UsageError(f"SOURCE_DATE_EPOCH={value!r} is not a number of seconds since 1970")
    return int(value)


class _Console(Console):
    """One whose reader may leave: what it would have read is dropped, and the work goes on to its true exit code."""

    def on_broken_pipe(self) -> None:
        _drop_output()


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _console(*, stderr: bool = False) -> Console:
    return _Console(stderr=stderr, highlight=False)


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """A bar over the stages, on a terminal only; it is gone when they are done."""
    console = _console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:8}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("start", total=len(_STAGES))

        def on_stage(name: str) -> None:
            done = _STAGES.index(name) if name in _STAGES else len(_STAGES)
            progress.update(task, description=name, completed=done)

        yield on_stage


def _print_report(report: Report, *, verbose: bool) -> None:
    parts = [*text.plan_text(report, verbose=verbose), *text.findings_text(report.findings, verbose=verbose)]
    roots = [] if verbose else [found for found in report.findings if found.code == "RLK702"]
    told = [
        Text(text.safe(f"garbage collector roots: {found.message}. {RULES[found.code].meaning}"))
        for found in roots
    ]
    text.show(_console(), *parts, *told, text.summary_text(report))


def _print_json(documents: list[dict[str, Any]], *, several: bool = False) -> None:
    """One document for one wheel, a list for several; nothing for one that could not be read."""
    if not several and not documents:
        return
    try:
        sys.stdout.write(json.dumps(documents if several else documents[0], indent=2) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()


def main(arguments: list[str] | None = None) -> None:
    """Run the command line: exit code 0 when all went well, 1 for error findings, 2 for wrong usage or unreadable input."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    commands = {
        command.name or command.callback.__name__ for command in app.registered_commands if command.callback
    }
    own = {"-h", "--help", "--version", "--install-completion", "--show-completion"}
    if words and words[0] not in commands | own:
        words.insert(0, "run")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(
            stream, io.TextIOWrapper
        ):  # a name or a sign that the reader's encoding lacks is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    try:
        with _ended_in_order():
            app(words)
    except SystemExit as end:
        if end.code == _INTERRUPTED:
            _say("interrupted; no unfinished file was left behind")
        raise
    except RelinkError as error:
        _say(str(error))
    except Exception as error:
        if os.environ.get("RELINK_DEBUG"):
            raise
        _say(
            f"a fault of relink itself ({type(error).__name__}: {error}); no unfinished file was left behind. "
            "Please report it with the output of the same command under RELINK_DEBUG=1"
        )
    sys.exit(2)


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """Being told to end (by a batch system, say) unwinds as Ctrl-C does, so that no temporary file stays."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _say(message: str) -> None:
    _console(stderr=True).print(Text(text.safe(f"relink: {message}")), soft_wrap=True)
