"""Writing a package for Nix: package.nix in the style of RFC 166, the plan as JSON, and what the two need beside them."""

from __future__ import annotations

import shutil
from importlib import resources
from pathlib import Path

from relink import __version__
from relink.atomic import atomic_file
from relink.errors import UsageError
from relink.nix.attributes import EXTRA
from relink.nix.model import Package, plan_json
from relink.nix.text import nix_attribute, nix_comment, nix_list, nix_string

__all__ = ["SHIPPED", "package_nix", "shipped_directory", "write_package"]

SHIPPED = ("relink-wheel.nix", "resolve.nix", "isa.nix", "isa.json", "relink.sh")
"""The files of nix/ that a package needs."""


def shipped_directory() -> Path:
    """Return the directory of relink's Nix files: inside of the package when installed, beside it in a source tree."""
    inside = Path(str(resources.files("relink"))) / "_nix"
    return inside if inside.is_dir() else Path(__file__).resolve().parents[2] / "nix"


def package_nix(package: Package) -> str:
    """Return package.nix: what a user may want to change; the rest is in the plan."""
    scope = f"python{package.python.replace('.', '')}Packages" if package.python else "python3Packages"
    lacking = [
        (name.partition(".")[2], sonames) for name, sonames in package.libraries if name.startswith(EXTRA)
    ]
    lines = [
        f"# Written by relink {__version__} from {nix_comment(package.source.name)}.",
        "# The plan beside it is data; `relink nix` makes both anew.",
        *(
            []
            if package.proved
            else ["# No library of a store was at hand when it was made: the build's dry run is the proof."]
        ),
        "{",
        f"  {scope},",
    ]
    for name, sonames in lacking:
        lines.append(
            f"  # nixpkgs has none that relink knows: {nix_comment(name)}, with lib/{nix_comment(', lib/'.join(sonames))}"
        )
    lines += [
        "  extraLibraries ? { },",
        f"  relinkWheel ? {scope}.callPackage ./relink/relink-wheel.nix {{ }},",
        "}:",
        "",
        "relinkWheel {",
        f"  plan = ./{package.pname}.json;",
        "  inherit extraLibraries;",
    ]
    if package.gpus:
        lines.append(f"  gpuTargets = {nix_list([nix_string(gpu) for gpu in package.gpus], '  ')};")
    names = [nix_attribute(name) for name in package.dependencies]
    if package.dependencies or package.siblings:
        quoted = any(name.startswith('"') for name in names)
        items = [f"{scope}.{name}" if quoted else name for name in names]
        lines.append("")
        lines += [
            f"  # Of the vendor alone; make a package of it in the same way and add it: {name}"
            for name in package.siblings
        ]
        lines.append(
            f"  dependencies = {'' if quoted or not items else f'with {scope}; '}{nix_list(items, '  ')};"
        )
    if package.imports:
        lines += [
            "",
            f"  pythonImportsCheck = {nix_list([nix_string(name) for name in package.imports], '  ')};",
        ]
    return "\n".join([*lines, "}", ""])


def write_package(package: Package, directory: Path) -> tuple[Path, ...]:
    """Write package.nix, the plan, and relink's Nix files below ``relink/``; returns the first two.

    :raises UsageError: the directory cannot be written to.
    """
    written = directory / "package.nix", directory / f"{package.pname}.json"
    try:
        (directory / "relink").mkdir(parents=True, exist_ok=True)
        for path, content in zip(written, (package_nix(package), plan_json(package)), strict=True):
            with atomic_file(
                path
            ) as file:  # replaces what has the name, a FIFO for example, without opening it
                file.write(content.encode())
        for name in SHIPPED:
            shutil.copyfile(shipped_directory() / name, directory / "relink" / name)
    except OSError as error:
        raise UsageError(
            f"{directory}: cannot be written to ({error.strerror}); name another by --output"
        ) from error
    return written
