"""`relink install` and `relink repair`: wheels are relinked for an environment, installed by pip or uv, imported, and loaded.

Takes the path of a wheel and an :class:`~relink.indexes.install.environment.TargetEnvironment`; gives an :class:`InstallResult`.

What was installed is tried: its modules are imported, each in a process of its own. This runs the wheel's code, as whoever
imports it will. It is not in the sandbox, which has no GPU.

A repair takes the very wheel that a distribution was installed from, and ``--undo`` installs that one again. That a wheel is the
very one is shown by its SHA-256 where that is known, else by the content of every file that it has brought.

What a wheel depends on is relinked as well, where it needs the vendor's libraries. Which dependencies there are is the
installer's answer (pip's report, or what uv would do), before anything of them is fetched.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name, canonicalize_version
from packaging.version import Version

from relink.indexes.install.checking import check_environment, pin_findings
from relink.indexes.install.environment import Installed, TargetEnvironment, find_installed, refuse_foreign
from relink.indexes.install.installers import (
    LARGEST,
    copy_to_cache,
    fetch,
    find_by_sha256,
    has_pip,
    parse_requirement,
    pin_for_undo,
    platform_of,
    run_installer,
    working_place,
)
from relink.indexes.install.replacing import own, refuse_another, replace_files
from relink.library import relink
from relink.loader.target import find_target
from relink.planning.model import to_data
from relink.planning.options import Options
from relink.providers.profiles import profile_for
from relink.report.model import Report
from relink.report.model import to_json as report_json
from relink.system.bounded_json import JSON_LIMIT, parse_json
from relink.system.errors import UsageError, describe_failure
from relink.system.findings.model import Finding, finding, has_errors, select_findings
from relink.system.programs import NoAnswerError, ask_program
from relink.system.progress import Watch, unwatched
from relink.system.safe_open import file_sha256, read_text
from relink.system.text import join_truncated
from relink.vendors.registry import RECOGNIZED, find_local_gpus, is_distribution, list_products, vendor_of
from relink.wheel.archive import WheelArchive
from relink.wheel.metadata import read_metadata
from relink.wheel.naming import WheelName, parse_wheel_name
from relink.wheel.schemes import site_path


def install_wheel(
    wheel: Path,
    environment: TargetEnvironment,
    options: Options,
    *,
    extras: Collection[str] = (),
    import_test: bool = True,
    dependencies: bool = True,
    watch: Watch = unwatched,
) -> InstallResult:
    """Relink a wheel for an environment and install it there, with its `dependencies`; no error may be among the findings.

    :param options: what relinking is told; the target is the environment's Python. The relinked wheel stays in
        `output_directory`, if one is given.
    :param watch: shows how far it is, while relink works and no installer does.
    :raises UsageError: conda has installed the package, or it is an editable installation.
    :raises InstallerError: pip or uv fails.
    """
    name = parse_wheel_name(wheel.name)
    with own(environment), working_place() as place:
        if present := find_installed(environment, name.distribution):
            refuse_foreign(environment, present)
        if dependencies:
            wanted = list_requirements(wheel, extras, environment)
            stacks = _other_stack(name.canonical, _new(environment, wanted, place), wanted)
            refused = select_findings(stacks, options.select, options.ignore)
            if has_errors(refused):
                return InstallResult(None, None, refused=refused)
        report, result = relink_for(place, wheel, environment, options, watch)
        if result is None:
            return InstallResult(report, None)
        original = copy_to_cache(wheel).path
        kept = install_exactly(environment, present, result)
        hold_for_undo(original, environment, name.distribution)
        done = parse_wheel_name(result.name)
        relinked: tuple[InstallResult, ...] = ()
        if dependencies:
            chosen = f"[{','.join(sorted(extras))}]" if extras else ""
            requirement = f"{done.distribution}{chosen}=={done.version}"
            failed = f"{requirement} is installed, but not all that it depends on"
            run_installer([*installer_of(environment), requirement], place, failed)
            relinked = _relink(done.canonical, environment, options, watch, import_test=import_test)
        imports, loads = import_and_load(result, report, environment) if import_test else ((), ())
        return InstallResult(report, done, imports, required_by(result), loads, relinked, kept=kept)


def list_requirements(wheel: Path, extras: Collection[str], environment: TargetEnvironment) -> list[str]:
    """Return the requirements of a wheel that hold with these extras in an environment; markers without extras stay.

    The installer evaluates those markers. Requirements of packages of the vendor's libraries are left out.
    """
    wanted = []
    for text in requirements_of(wheel):
        try:
            requirement = Requirement(text)
        except (InvalidRequirement, RecursionError):
            # The installer says what is wrong with it.
            continue
        if is_distribution(requirement.name):
            # A package of the vendor's libraries: the relinked wheel may not require it.
            continue
        if requirement.marker is not None and "extra" in str(requirement.marker):
            cases = ({**environment.markers, "extra": extra} for extra in extras or ("",))
            try:
                if not any(map(requirement.marker.evaluate, cases)):
                    continue
            except (
                ValueError
            ):  # a comparison without a meaning, such as extra ~= "x"; the installer refuses it, too
                continue
            requirement.marker = None
        wanted.append(str(requirement))
    return wanted


# pip builds what stands at an address, whatever --only-binary says, and a wheel of the index may require that, too. It starts the
# Python that runs it for that, and for nothing else.
_PIP_WITHOUT_BUILDS = """
import os, runpy, sys
def refuse(event, arguments):
    if event == "subprocess.Popen" and os.fsdecode(arguments[0]) == sys.executable:
        raise PermissionError("relink lets pip build nothing before it has decided")
sys.addaudithook(refuse)
runner = sys.argv.pop(1)
runpy.run_path(runner, run_name="__main__") if runner else runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""


def _new(environment: TargetEnvironment, wanted: Sequence[str], place: Path) -> list[str]:
    """Return the canonical names of what the installer would install for requirements; nothing is installed and nothing is built.

    :raises InstallerError: pip or uv fails: some cannot be had, or only as sources.
    """
    if not wanted:
        return []
    document = place / "report.json"
    # relink's own pip, where it has one: that of an older environment may have no --report (pip 22.2).
    pip = find_spec("pip")
    runner = str(Path(pip.origin).with_name("__pip-runner__.py")) if pip and pip.origin else ""
    command = installer_of(environment)
    # installer_of gives [uv, pip, ...] or [python, -I, -m, pip, ...].
    is_uv = command[1] == "pip" and not runner
    if not is_uv:
        command = [environment.python, "-I", "-c", _PIP_WITHOUT_BUILDS, runner, "install", "--no-input"]
    more = ["--dry-run", "--only-binary=:all:", *([] if is_uv else ["--quiet", f"--report={document}"])]
    told = run_installer(
        [*command, *more, *wanted],
        place,
        "what the wheel depends on cannot be had as wheels, so nothing was installed (--no-deps leaves it out)",
    )
    if is_uv:
        names = re.findall(r"^ \+ ([\w.-]+)==", told, re.ASCII | re.MULTILINE)
    else:
        said = parse_json(read_text(document, JSON_LIMIT))
        names = [entry["metadata"]["name"] for entry in said["install"]]
    return [canonicalize_name(name) for name in names]


def _other_stack(name: str, new: Sequence[str], wanted: Sequence[str]) -> list[Finding]:
    """RLK552 where a dependency would bring another vendor's libraries."""
    brought = {name: other for name in new for other in RECOGNIZED if other.packages.is_distribution(name)}
    if not brought:
        return []
    other = next(iter(brought.values()))
    direct = [one for one in new if one in {canonicalize_name(Requirement(text).name) for text in wanted}]
    text = (
        f"it depends on {join_truncated(direct)}, and what the installer would take for that brings {other.product} "
        f"({join_truncated(list(brought))}), not {list_products()}"
    )
    return [finding("RLK552", name, text)]


def _relink(
    name: str, environment: TargetEnvironment, options: Options, watch: Watch, *, import_test: bool
) -> tuple[InstallResult, ...]:
    """Relink what an installed distribution depends on and cannot load its libraries; not what others have brought."""
    # What it requires, and what that does, as far as it is installed.
    below: set[str] = set()
    left = [name]
    while left:
        installed = find_installed(environment, left.pop())
        for text in installed.requires if installed else ():
            if (required := _required_name(text)) is not None and required not in below:
                below.add(required)
                left.append(required)
    checked = check_environment(environment, options)
    return tuple(
        repair(one, environment, options, import_test=import_test, watch=watch)
        for one in checked.mendable
        if one in below
    )


def repair(
    name: str,
    environment: TargetEnvironment,
    options: Options,
    *,
    wheel: Path | None = None,
    import_test: bool = True,
    watch: Watch = unwatched,
) -> InstallResult:
    """Relink an installed distribution and install the result in its place, without dependencies.

    :param wheel: the vendor's wheel that it was installed from; fetched where none is given.
    :raises UsageError: it is not installed, another program keeps it, or the wheel is another one.
    :raises InstallerError: pip or uv fails.
    """
    with own(environment), working_place() as place:
        installed = _installed(name, environment)
        original = _original(installed, environment, wheel)
        if installed.plan is None:
            refuse_another(original, installed, environment)
        report, result = relink_for(place, original, environment, options, watch)
        if result is None or (installed.plan is None and not report.plan.changed):
            return InstallResult(report, None)
        kept = install_exactly(environment, installed, result, original)
        hold_for_undo(original, environment, installed.name)
        imports, loads = import_and_load(result, report, environment) if import_test else ((), ())
        done = parse_wheel_name(result.name)
        return InstallResult(report, done, imports, required_by(result), loads, kept=kept)


def undo(
    name: str,
    environment: TargetEnvironment,
    *,
    wheel: Path | None = None,
) -> InstallResult:
    """Install the vendor's wheel again that an installed relinked one was made of; it is not imported.

    :raises UsageError: what is installed was not relinked, another program keeps it, or the wheel is another one.
    :raises InstallerError: pip or uv fails.
    """
    with own(environment):
        installed = _installed(name, environment)
        if installed.plan is None:
            raise UsageError(
                f"{installed.name} {installed.version} in {environment.prefix} is not relinked, so there is nothing to undo"
            )
        original = _original(installed, environment, wheel)
        kept = install_exactly(environment, installed, original, original)
        return InstallResult(None, parse_wheel_name(original.name), kept=kept)


def _installed(name: str, environment: TargetEnvironment) -> Installed:
    wanted = parse_requirement(name)
    if str(wanted.specifier) or wanted.extras:
        raise UsageError(f"{name!r}: pass the name alone; the version is the one that is installed")
    found = find_installed(environment, wanted.name)
    if found is None:
        raise UsageError(
            f"{wanted.name} is not installed in {environment.prefix}; `relink install` fetches, relinks and installs it"
        )
    refuse_foreign(environment, found)
    return found


def _original(installed: Installed, environment: TargetEnvironment, given: Path | None) -> Path:
    """Return the vendor's wheel, in the cache: as given, as kept there before, or fetched.

    :raises UsageError: it is of another package or version, or another wheel than is known to have been installed.
    """
    version, sha256 = installed.version, installed.sha256
    if installed.plan is not None:
        version, sha256 = installed.plan.wheel.version, installed.plan.wheel.sha256
    # What a relinked package was installed from is the result, and not the vendor's wheel.
    given = given or (installed.wheel if installed.plan is None else None)
    known = copy_to_cache(given) if given else find_by_sha256(sha256) if sha256 else None
    if known is None:
        # Not ==, which 1.0+rocm7.2.4.1 of an index of relinked wheels satisfies, too, and is preferred (PEP 440).
        exact = canonicalize_version(version, strip_trailing_zero=False)
        wanted = parse_requirement(f"{installed.name}==={exact}", exact=True)
        known = fetch(wanted, platform_of(find_target(python=environment.python)))
    if sha256 is not None and known.sha256 != sha256:
        raise UsageError(
            f"{known.path.name} (sha256 {known.sha256}) is not the wheel that {installed.name} was installed from (sha256 "
            f"{sha256}); pass that one by --wheel"
        )
    # A plan is what the package says of itself: it may name any wheel.
    own_name = canonicalize_name(installed.name), Version(installed.version).public
    if (known.name.canonical, known.name.version.public) != own_name:
        raise UsageError(
            f"{known.path.name} is not the wheel that {installed.name} {installed.version} was made of, whatever its plan says; "
            "install the package again"
        )
    return known.path


class InstallResult(msgspec.Struct, frozen=True):
    """What became of one wheel.

    :ivar report: of relinking it; None where the original was put back.
    :ivar installed: the name of the wheel that is installed now; None where nothing was changed.
    :ivar requires: the distributions that the wheel's metadata names, canonical.
    :ivar imports: empty where the import test was not wanted, or there is nothing to import.
    :ivar loads: the members that need the vendor's libraries, loaded by the environment's Python; empty as `imports`.
    :ivar dependencies: of what it depends on, what was relinked with it.
    :ivar refused: why nothing was installed, where that has nothing to do with relinking.
    :ivar kept: files that somebody had changed and that were replaced: where they are now.
    """

    report: Report | None
    installed: WheelName | None
    imports: tuple[Trial, ...] = ()
    requires: tuple[str, ...] = ()
    loads: tuple[Trial, ...] = ()
    dependencies: tuple[InstallResult, ...] = ()
    refused: tuple[Finding, ...] = ()
    kept: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True if nothing had to change, or the wheel was installed and every import and load test passed, with dependencies."""
        if self.installed is None:
            return self.report is not None and self.report.ok
        tried = any(result.problem for result in (*self.imports, *self.loads))
        return not tried and all(one.ok for one in self.dependencies)

    @property
    def missing_modules(self) -> tuple[str, ...]:
        """What the import test looked for in vain at the top of other distributions: numpy, say."""
        own = {result.name for result in self.imports}
        said = (
            re.search(r"No module named '([A-Za-z_]\w*)", result.problem or "") for result in self.imports
        )
        return tuple(dict.fromkeys(match[1] for match in said if match and match[1] not in own))

    @property
    def constraint(self) -> str | None:
        """The line of a constraints file that keeps an upgrade from replacing the relinked wheel."""
        if self.installed is None or self.installed.version.local is None:
            return None
        return f"{self.installed.canonical}=={self.installed.version}"


def to_json(done: InstallResult) -> dict[str, Any]:
    """Return what became of one wheel as JSON data."""
    return {
        "ok": done.ok,
        "name": done.installed and done.installed.canonical,
        "version": done.installed and str(done.installed.version),
        "constraint": done.constraint,
        "imports": [{"module": result.name, "problem": result.problem} for result in done.imports],
        "loads": [
            {"member": one.name, "problem": one.problem, "without_gpu": one.without_gpu} for one in done.loads
        ],
        "dependencies": [to_json(one) for one in done.dependencies],
        "refused": [to_data(reported) for reported in done.refused],
        "kept": list(done.kept),
        "report": done.report and report_json(done.report),
    }


def hold_for_undo(original: Path, environment: TargetEnvironment, name: str) -> None:
    """Keep the vendor's wheel, which is in the cache, for as long as what it became is installed.

    :raises UsageError: that cannot be noted.
    """
    now, kept = find_installed(environment, name), copy_to_cache(original)
    if now is None or now.plan is None or now.plan.wheel.sha256 != kept.sha256:
        # Nothing had to change, or it was relinked before: there is nothing to undo with it.
        return
    failed = f"{now.name} {now.version} is installed, but {kept.path.name} cannot be kept for --undo"
    with describe_failure(UsageError, failed):
        pin_for_undo(kept, now.dist_info)


def requirements_of(wheel: Path) -> tuple[str, ...]:
    """Return what a wheel's metadata requires, as written."""
    with WheelArchive(wheel) as archive:
        return read_metadata(archive.read(f"{archive.dist_info}/METADATA")).requires_dist


def required_by(wheel: Path) -> tuple[str, ...]:
    """Return the canonical names of what a wheel requires, by its metadata (of its extras, too) or by its profile."""
    texts = (*requirements_of(wheel), *profile_for(parse_wheel_name(wheel.name).distribution).requires)
    return tuple(name for name in map(_required_name, texts) if name is not None)


def _required_name(text: str) -> str | None:
    match = re.match(r"[A-Za-z0-9][\w.-]*", text, re.ASCII)
    return canonicalize_name(match[0]) if match else None


def import_and_load(
    wheel: Path, report: Report, environment: TargetEnvironment
) -> tuple[tuple[Trial, ...], tuple[Trial, ...]]:
    """Import what a wheel has brought into an environment, and load its GPU part."""
    with WheelArchive(wheel) as archive:
        modules = modules_of(archive)
    imports = import_modules(environment.python, modules)
    if any(result.problem for result in imports):
        return imports, ()
    parts = []
    for file in report.plan.files:
        sonames = {one.soname for one in file.needed}
        # A library, and one of the vendor's is among what it needs.
        is_library = file.served and file.interpreter.before is None
        if is_library and any(map(vendor_of(sonames).libraries.is_own, sonames)):
            parts.append(file.path)
    first = profile_for(parse_wheel_name(wheel.name).distribution).preload
    preloads = [path for name in first if name not in parts and (path := _installed_at(name, environment))]
    members = {name: path for name in parts if (path := _installed_at(name, environment))}
    sites = tuple(f"{site}/" for site in environment.site)
    beside = [
        needed.resolved
        for file in report.plan.files
        for needed in (file.needed if file.path in members else ())
        if needed.origin == "platform" and needed.resolved and needed.resolved.startswith(sites)
    ]
    has_gpu = bool([*find_local_gpus()])
    return imports, load_members(
        environment.python, modules, preloads, members, has_gpu=has_gpu, beside=beside
    )


def _installed_at(member: str, environment: TargetEnvironment) -> str | None:
    """Return where an installer has put a member of a wheel, if in site-packages."""
    inner = site_path(member)
    if inner is None:
        return None
    return next((str(site / inner) for site in environment.site if (site / inner).is_file()), None)


def relink_for(
    place: Path, wheel: Path, environment: TargetEnvironment, options: Options, watch: Watch
) -> tuple[Report, Path | None]:
    """Relink a wheel for an environment.

    :return: the report, and the relinked wheel, which may be `wheel` itself; None for it where a finding is an error.
    """
    is_kept = options.output_directory is not None
    directory = options.output_directory or place
    options = dataclasses.replace(options, python=environment.python, output_directory=directory)
    with watch() as (on_stage, on_bytes):
        report = relink(wheel, options, on_stage=on_stage, on_bytes=on_bytes)
    if not report.ok:
        # An environment's Python brings its own loader: no advice to name another one.
        remedy = "Name a release of the libraries that was built for this system by --prefix: the Python has its own loader."
        findings = tuple(
            replace(reported, step=None, remedy=remedy)
            if (reported.step or "").startswith("--interpreter ")
            else reported
            for reported in report.findings
        )
        return replace(report, plan=replace(report.plan, findings=findings)), None
    # It is relinked for this environment already.
    if report.output is None:
        return report, wheel
    result = Path(report.output.path)
    # The temporary directory is gone before anybody reads its path.
    if not is_kept:
        report = replace(report, output=replace(report.output, path=result.name))
    made = parse_wheel_name(result.name)
    pins = (*pin_findings(environment, {made.canonical: str(made.version)}),)
    findings = (*report.findings, *select_findings(pins, options.select, options.ignore))
    return replace(report, plan=replace(report.plan, findings=findings)), result


def install_exactly(
    environment: TargetEnvironment, installed: Installed | None, wheel: Path, original: Path | None = None
) -> tuple[str, ...]:
    """Install this very file (by its SHA-256) in place of what is there, without dependencies and without an index.

    It is chosen by version and hash, not by its path: pip would record the path (direct_url.json), which is a temporary one.

    :param installed: what is there, and `original` the vendor's wheel of it, as :func:`replace_files` takes them.
    :return: the files that somebody had changed, where they are kept now.
    :raises InstallerError: pip or uv fails.
    :raises UsageError: there is neither.
    """
    name = parse_wheel_name(wheel.name)
    line = f"{name.distribution}=={name.version} --hash=sha256:{file_sha256(wheel, LARGEST)}\n"
    with working_place() as place:
        requirements = place / "requirements.txt"
        requirements.write_text(line, encoding="utf-8")
        chosen = [
            "--no-deps",
            "--no-index",
            "--only-binary=:all:",
            f"--find-links={wheel.parent.absolute()}",
            "--require-hashes",
            f"--requirement={requirements}",
        ]
        command = installer_of(environment)
        # uv would keep the unpacked wheel in its cache, which nothing takes from there again.
        again = ["--reinstall", "--no-cache"] if command[1] == "pip" else ["--force-reinstall"]
        command += [*again, *chosen]
        failed = f"{wheel.name} was not installed, and all is as it was before"
        return replace_files(
            environment, installed, wheel, lambda: run_installer(command, place, failed), original
        )


def installer_of(environment: TargetEnvironment) -> list[str]:
    """Return a command that installs into an environment: its own pip, or uv (beside relink or on PATH), or relink's pip."""
    if has_pip(environment.python):
        return [environment.python, "-I", "-m", "pip", "install", "--no-input"]
    if uv := shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv"):
        return [uv, "pip", "install", f"--python={environment.python}"]
    if has_pip(sys.executable):
        return [sys.executable, "-I", "-m", "pip", f"--python={environment.python}", "install", "--no-input"]
    raise UsageError(
        f"{environment.prefix} has no pip, and there is no uv; install one of them: {environment.python} -m ensurepip"
    )


# Seconds: torch takes ten from a slow disk.
_TIMEOUT = 600
_IMPORT = "import importlib, sys; importlib.import_module(sys.argv[1])"
# os._exit: destructors of a GPU runtime may fail where there is no GPU, which says nothing about loading.
_LOAD = """
import ctypes, importlib, json, os, sys
modules, beside, preloads, members = json.loads(sys.argv[1])
for module in modules:
    importlib.import_module(module)
for path in beside:
    ctypes.CDLL(path, os.RTLD_NOW)
for path in preloads:
    ctypes.CDLL(path, os.RTLD_NOW | os.RTLD_GLOBAL)
for path in members:
    os.write(1, ("\\n" + path + "\\n").encode())
    try:
        ctypes.CDLL(path, os.RTLD_NOW)
    except OSError as error:
        os.write(1, ("\\n" + path + "\\t" + str(error) + "\\n").encode())
    else:
        os.write(1, ("\\n" + path + "\\t\\n").encode())
os._exit(0)
"""


class Trial(msgspec.Struct, frozen=True):
    """What came of importing one module, or of loading one library.

    :ivar name: of the module, or of the wheel's member.
    :ivar problem: the last line of the traceback, what dlopen says, or how the process ended; None where it worked.
    :ivar without_gpu: how the process ended once all was bound, where there is no GPU.
    """

    name: str
    problem: str | None
    without_gpu: str | None = None


def modules_of(archive: WheelArchive) -> tuple[str, ...]:
    """Return the modules and packages at the top of a wheel; private ones only where there are no others.

    A directory without ``__init__`` is part of a namespace that other distributions share, and is left out.
    """
    found = set()
    for name in archive.members:
        parts = (site_path(name) or "").split("/")
        stem, _, ending = parts[-1].partition(".")
        is_module = ending in {"py", "so"} or ending.endswith(".so")
        if is_module and (len(parts) == 1 or (len(parts) == 2 and stem == "__init__")):
            found.add(stem if len(parts) == 1 else parts[0])
    names = sorted(name for name in found if name.isidentifier())
    return tuple([name for name in names if not name.startswith("_")] or names)


def import_modules(python: str, modules: Iterable[str]) -> tuple[Trial, ...]:
    """Import each module in an environment's Python, in an empty directory."""
    return tuple(Trial(module, _run([python, "-c", _IMPORT, module])[1]) for module in modules)


def load_members(
    python: str,
    modules: Sequence[str],
    preloads: Sequence[str],
    members: Mapping[str, str],
    *,
    has_gpu: bool,
    beside: Sequence[str] = (),
) -> tuple[Trial, ...]:
    """Load libraries with RTLD_NOW in an environment's Python that has imported their package.

    A constructor may end the process where there is no GPU: onnxruntime's provider asks HIP for a device, and throws.
    When constructors run, all libraries are mapped and all symbols are bound (elf/dl-open.c, dl_open_worker).

    :param modules: imported first.
    :param preloads: the paths of what the package loads first, into the global scope.
    :param members: name in the wheel → path of each library that is tried.
    :param has_gpu: whether that ends the process although there is a GPU.
    :param beside: libraries of other packages, which have mapped them before.
    """
    trials = []
    left = dict(members)
    while left:
        said, ended = _run([python, "-c", _LOAD, json.dumps([modules, beside, preloads, [*left.values()]])])
        lines = said.split("\n")
        for name, path in tuple(left.items()):
            del left[name]
            problem = next((line[len(path) + 1 :] for line in lines if line.startswith(f"{path}\t")), ended)
            idle = problem == ended and not has_gpu and path in lines
            trials.append(Trial(name, None if idle else problem or None, problem if idle else None))
            # The process has ended at this member: the others are tried in another process.
            if problem == ended and ended is not None:
                break
    return tuple(trials)


def _run(command: Sequence[str]) -> tuple[str, str | None]:
    """Return what a Python prints, and how it failed, or None."""
    with tempfile.TemporaryDirectory(prefix="relink-") as directory:
        try:
            run = ask_program(command, directory=directory, timeout=_TIMEOUT)
        except NoAnswerError as error:
            return "", f"{command[0]} {error}"
    if run.returncode < 0:
        return run.stdout, f"the process died of {signal.Signals(-run.returncode).name}"
    return run.stdout, (_reason(run.stderr) or f"exit code {run.returncode}") if run.returncode else None


def _reason(traceback: str) -> str:
    """The last line of a traceback; where that is a bare name, the last line before it that says more, too.

    onnxruntime without numpy ends in ``ImportError``, and what is missing stands above it.
    """
    lines = [line.strip() for line in traceback.splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    if not re.fullmatch(r"[\w.]+", last):
        return last
    above = next((line for line in reversed(lines) if re.match(r"[\w.]*(Error|Exception): .", line)), None)
    return f"{last} ({above})" if above else last
