"""`relink repair`: what is installed already is relinked from the very wheel that it was installed from, and ``--undo``.

That a wheel is the very one is shown by its SHA-256 where that is known, else by the content of every file that it has brought.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from packaging.utils import canonicalize_version

from relink.indexes.install.cache import LARGEST, find_by_sha256, in_cache, working_place
from relink.indexes.install.environment import Installed, TargetEnvironment, find_installed, refuse_foreign
from relink.indexes.install.installers import fetch, parse_requirement, platform_of
from relink.indexes.install.installing import (
    InstallResult,
    hold_for_undo,
    install_exactly,
    refuse_full_disk,
    relinked_into,
    required_by,
    tested,
)
from relink.loader.target import find_target
from relink.planning.options import Options
from relink.system.errors import UsageError
from relink.system.safe_open import file_sha256
from relink.system.text import join_truncated
from relink.wheel.archive import WheelArchive
from relink.wheel.naming import parse_wheel_name


def repair(
    name: str,
    environment: TargetEnvironment,
    options: Options,
    *,
    wheel: Path | None = None,
    import_test: bool = True,
) -> InstallResult:
    """Relink an installed distribution and install the result in its place, without dependencies.

    :param wheel: the vendor's wheel that it was installed from; fetched where none is given.
    :raises UsageError: it is not installed, another program keeps it, or the wheel is another one.
    :raises InstallerError: pip or uv fails.
    """
    installed = _installed(name, environment)
    sha256 = installed.plan.wheel.sha256 if installed.plan else installed.sha256
    version = installed.plan.wheel.version if installed.plan else installed.version
    original = _original(installed, version, sha256, environment, wheel)
    # A repair replaces all files of a distribution: those that somebody changed would be lost.
    if installed.plan is None:
        _refuse_another(original, installed)
    with working_place() as place:
        report, result = relinked_into(place, original, environment, options)
        if result is None or (installed.plan is None and not report.plan.changed):
            return InstallResult(report, None)
        refuse_full_disk(result, environment)
        install_exactly(environment, result)
        hold_for_undo(original, environment, installed.name)
        imports, loads = tested(result, report, environment) if import_test else ((), ())
        return InstallResult(report, parse_wheel_name(result.name), imports, required_by(result), loads)


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
    installed = _installed(name, environment)
    if installed.plan is None:
        raise UsageError(
            f"{installed.name} {installed.version} in {environment.prefix} is not relinked, so there is nothing to undo"
        )
    facts = installed.plan.wheel
    original = _original(installed, facts.version, facts.sha256, environment, wheel)
    install_exactly(environment, original)
    return InstallResult(None, parse_wheel_name(original.name))


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


def _original(
    installed: Installed,
    version: str,
    sha256: str | None,
    environment: TargetEnvironment,
    given: Path | None,
) -> Path:
    """Return the vendor's wheel, in the cache: as given, as kept there before, or fetched.

    :param sha256: what it must have, where that is known.
    """
    known = in_cache(given) if given else find_by_sha256(sha256) if sha256 else None
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
    return known.path


def _refuse_another(wheel: Path, installed: Installed) -> None:
    """Compare what a wheel has for site-packages with what lies there.

    :raises UsageError: a file is another one, or missing.
    """
    site = installed.dist_info.parent
    other: list[str] = []
    with WheelArchive(wheel) as archive:
        for name, member in archive.members.items():
            skipped = name == f"{archive.dist_info}/RECORD" or name.startswith(f"{archive.data_dir}/")
            if member.is_directory or skipped:
                continue
            digest = hashlib.sha256()
            for chunk in archive.chunks(name):
                digest.update(chunk)
            if _sha256(site / name) != digest.hexdigest():
                other.append(name)
    if other:
        raise UsageError(
            f"{wheel.name} is not the wheel that {installed.name} was installed from, or its files were changed since: "
            f"{join_truncated(other)} differ; pass the very wheel by --wheel, or install the package again"
        )


def _sha256(path: Path) -> str | None:
    try:
        return file_sha256(path, LARGEST)
    except OSError:
        return None
