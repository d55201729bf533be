"""`relink install`: a wheel with what it depends on. What of that needs the vendor's libraries is relinked as well.

Which dependencies there are is the installer's answer (pip's report, or what uv would do), before anything of them is fetched.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from relink.indexes.install.cache import in_cache, working_place
from relink.indexes.install.checking import check_environment
from relink.indexes.install.environment import TargetEnvironment, find_installed, refuse_foreign
from relink.indexes.install.installers import InstallerError, has_pip, run_installer
from relink.indexes.install.installing import (
    InstallResult,
    hold_for_undo,
    install_exactly,
    installer_of,
    relinked_into,
    repair,
    required_by,
    requirements_of,
    tested,
)
from relink.planning.options import Options
from relink.system.bounded_json import JSON_LIMIT, parse_json
from relink.system.findings.model import Finding, finding, has_errors, select
from relink.system.safe_open import read_text
from relink.system.text import join_truncated
from relink.vendors.registry import RECOGNIZED, is_distribution, products
from relink.wheel.naming import parse_wheel_name


def install_wheel(
    wheel: Path,
    environment: TargetEnvironment,
    options: Options,
    *,
    extras: Collection[str] = (),
    import_test: bool = True,
    dependencies: bool = True,
) -> InstallResult:
    """Relink a wheel for an environment and install it there, with its `dependencies`; no error may be among the findings.

    :param options: what relinking is told; the target is the environment's Python. The relinked wheel stays in
        `output_directory`, if one is given.
    :raises UsageError: conda has installed the package, or it is an editable installation.
    :raises InstallerError: pip or uv fails.
    """
    name = parse_wheel_name(wheel.name)
    if present := find_installed(environment, name.distribution):
        refuse_foreign(environment, present)
    with working_place() as place:
        if dependencies:
            wanted = list_requirements(wheel, extras, environment)
            refused = select(
                tuple(_other_stack(name.canonical, _new(environment, wanted, place), wanted)),
                options.select,
                options.ignore,
            )
            if has_errors(refused):
                return InstallResult(None, None, refused=refused)
        report, result = relinked_into(place, wheel, environment, options)
        if result is None:
            return InstallResult(report, None)
        original = in_cache(wheel).path
        install_exactly(environment, result)
        hold_for_undo(original, environment, name.distribution)
        done = parse_wheel_name(result.name)
        relinked: tuple[InstallResult, ...] = ()
        if dependencies:
            chosen = f"[{','.join(sorted(extras))}]" if extras else ""
            requirement = f"{done.distribution}{chosen}=={done.version}"
            failed = f"{requirement} is installed, but not all that it depends on"
            run_installer([*installer_of(environment), requirement], place, failed)
            relinked = _relink(done.canonical, environment, options, import_test=import_test)
        imports, loads = tested(result, report, environment) if import_test else ((), ())
        return InstallResult(report, done, imports, required_by(result), loads, relinked)


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


def _new(environment: TargetEnvironment, wanted: Sequence[str], place: Path) -> list[str]:
    """Return the canonical names of what the installer would install for requirements; nothing is installed and nothing is built.

    :raises InstallerError: pip or uv fails: some cannot be had, or only as sources.
    """
    if not wanted:
        return []
    # pip builds what stands at an address, whatever --only-binary says.
    built = [
        text for text in wanted if (url := Requirement(text).url) and not urlsplit(url).path.endswith(".whl")
    ]
    if built:
        raise InstallerError(
            f"{join_truncated(built)}: installing it would run its build before relink has decided anything; install it by "
            "itself, or pass --no-deps"
        )
    document = place / "report.json"
    command = installer_of(environment)
    # relink's own pip, where it has one: that of an older environment may have no --report (pip 22.2).
    if has_pip(sys.executable):
        command = [
            sys.executable,
            "-I",
            "-m",
            "pip",
            f"--python={environment.python}",
            "install",
            "--no-input",
        ]
    # installer_of gives [uv, pip, ...] or [python, -I, -m, pip, ...].
    is_uv = command[1] == "pip"
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
        f"({join_truncated(list(brought))}), not {products()}"
    )
    return [finding("RLK552", name, text)]


def _relink(
    name: str, environment: TargetEnvironment, options: Options, *, import_test: bool
) -> tuple[InstallResult, ...]:
    """Relink what an installed distribution depends on and cannot load its libraries; not what others have brought."""
    below = _below(name, environment)
    checked = check_environment(environment, options)
    return tuple(
        repair(one, environment, options, import_test=import_test) for one in checked.mendable if one in below
    )


def _below(name: str, environment: TargetEnvironment) -> set[str]:
    """Return the canonical names of what an installed distribution requires, and what that does, as far as it is installed."""
    below: set[str] = set()
    left = [name]
    while left:
        installed = find_installed(environment, left.pop())
        for text in installed.requires if installed else ():
            if match := re.match(r"[A-Za-z0-9][\w.-]*", text, re.ASCII):
                required = canonicalize_name(match[0])
                if required not in below:
                    below.add(required)
                    left.append(required)
    return below
