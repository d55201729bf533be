"""Writing a package for Nix: package.nix in the style of RFC 166, the plan as JSON, and what the two need beside them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from relink import __version__
from relink.report.nix.attributes import EXTRA
from relink.report.nix.model import About, Package, plan_json
from relink.system.atomic import atomic_file
from relink.system.errors import UsageError
from relink.system.shipped_files import shipped_directory
from relink.system.text import join_truncated

__all__ = [
    "SHIPPED",
    "nix_attribute",
    "nix_comment",
    "nix_list",
    "nix_string",
    "package_nix",
    "plan_name",
    "write_package",
    "write_plans",
]

_LICENSES = {
    "Apache-2.0": "lib.licenses.asl20",
    "BSD-2-Clause": "lib.licenses.bsd2",
    "BSD-3-Clause": "lib.licenses.bsd3",
    "MIT": "lib.licenses.mit",
    "MPL-2.0": "lib.licenses.mpl20",
}

SHIPPED = ("relink-wheel.nix", "resolve.nix", "isa.nix", "isa.json", "relink.sh", "shadows.sh")
"""The files of nix/ that a package needs."""


def package_nix(packages: Sequence[Package], *, vendor: bool = True) -> str:
    """Return package.nix: what a user may want to change; the rest is in the plans, of which there is one for each Python.

    :param vendor: relink's functions lie beside it; else the package set has `relinkWheel` by relink's overlay.
    """
    package = packages[0]
    stubs = dict.fromkeys(stub.soname for item in packages for stub in item.stubs)
    lines = [
        f"# Written by relink {__version__} from {nix_comment(', '.join(item.source.name for item in packages))}.",
        f"# {'The plan beside it is' if len(packages) == 1 else 'The plans beside it are'} data; `relink nix` makes all anew.",
        *(
            []
            if package.proved
            else ["# No library of a store was at hand when it was made: the build's dry run is the proof."]
        ),
        *(
            [f"# {nix_comment(', '.join(stubs))}: where nobody has it, a stub whose functions refuse."]
            if stubs
            else []
        ),
        "{",
        *(["  lib,"] if package.about.license else []),
        *(
            ["  callPackage,", "  relinkWheel ? callPackage ./relink/relink-wheel.nix { },"]
            if vendor
            else ["  relinkWheel,"]
        ),
    ]
    lacking: dict[str, tuple[str, ...]] = {}
    for item in packages:
        lacking |= {
            name.partition(".")[2]: sonames for name, sonames in item.libraries if name.startswith(EXTRA)
        }
    for name, sonames in lacking.items():
        known = f"{nix_comment(name)}, with lib/{nix_comment(', lib/'.join(sonames))}"
        lines.append(f"  # nixpkgs has none that relink knows: {known}")
    lines.append("  extraLibraries ? { },")
    if package.gpus:
        lines.append(f"  gpuTargets ? {nix_list([nix_string(gpu) for gpu in package.gpus], '  ')},")
    dependencies = dict.fromkeys(name for item in packages for name in item.dependencies)
    siblings = dict.fromkeys(name for item in packages for name in item.siblings)
    quoted = any(nix_attribute(name).startswith('"') for name in dependencies)
    named = [name for name in dependencies if not nix_attribute(name).startswith('"')]
    versions = [name for name in package.same_version if name not in dependencies]
    arguments = [*named, *versions, *(["python"] if quoted else [])]
    if arguments:
        lines += ["", "  # dependencies", *(f"  {name}," for name in arguments)]
    if siblings:
        lines += ["", "  # of the vendor alone: `relink nix` makes a package of it in the same way"]
        lines += [f"  {name}," for name in siblings]
    lines += ["}:", "", "relinkWheel {", *_plans(packages)]
    lines.append(f"  inherit extraLibraries{' gpuTargets' if package.gpus else ''};")
    items = [name if name in named else f"python.pkgs.{nix_attribute(name)}" for name in dependencies]
    if items or siblings:
        lines += ["", f"  dependencies = {nix_list([*items, *siblings], '  ')};"]
    if package.same_version:
        lines += ["", f"  sameVersion = {nix_list([*package.same_version, *siblings], '  ')};"]
    if package.imports:
        lines += [
            "",
            f"  pythonImportsCheck = {nix_list([nix_string(name) for name in package.imports], '  ')};",
        ]
    return "\n".join([*lines, "", *_meta(package.about), "}", ""])


def _meta(about: About) -> list[str]:
    """What nixpkgs shows; `relinkWheel` adds platforms and sourceProvenance, which are the same for all."""
    rows = {
        "description": nix_string(about.description) if about.description else None,
        "homepage": nix_string(about.homepage) if about.homepage else None,
        "changelog": nix_string(about.changelog) if about.changelog else None,
        "license": _license(about.license) if about.license else None,
        "maintainers": "[ ]",
        "mainProgram": nix_string(about.program) if about.program else None,
    }
    return ["  meta = {", *(f"    {name} = {value};" for name, value in rows.items() if value), "  };"]


def _license(expression: str) -> str:
    """The licences of an SPDX expression by the names that nixpkgs has for them."""
    words = [word for word in re.split(r"[\s()]+", expression) if word not in ("", "AND", "OR", "WITH")]
    names = [
        _LICENSES.get(word) or f"lib.getLicenseFromSpdxId {nix_string(word)}" for word in dict.fromkeys(words)
    ]
    if len(names) == 1:
        return names[0]
    return nix_list([f"({name})" if " " in name else name for name in names], "    ")


def _plans(packages: Sequence[Package]) -> list[str]:
    if len(packages) == 1:
        return [f"  plan = ./{plan_name(packages)[0]};"]
    rows = zip(packages, plan_name(packages), strict=True)
    return [
        "  plans = {",
        *(f"    {nix_string(item.python or '')} = ./{name};" for item, name in rows),
        "  };",
    ]


def plan_name(packages: Sequence[Package]) -> list[str]:
    """Return the file name of each plan: with the Python where there are several."""
    if len(packages) == 1:
        return [f"{packages[0].pname}.json"]
    return [_plan_file(item, item.pname) for item in packages]


def write_package(packages: Sequence[Package], directory: Path, *, vendor: bool = True) -> tuple[Path, ...]:
    """Write package.nix, the plans, and relink's Nix files below ``relink/``; returns all but the last.

    :param packages: one wheel, or those of one release for several Pythons.
    :param vendor: False leaves relink's files out: the flake has them.
    :raises UsageError: the wheels are not of one release, or the directory cannot be written to.
    """
    _check_release(packages)
    written = directory / "package.nix", *(directory / name for name in plan_name(packages))
    contents = package_nix(packages, vendor=vendor), *(plan_json(item) for item in packages)
    try:
        (directory / "relink" if vendor else directory).mkdir(parents=True, exist_ok=True)
        for path, content in zip(written, contents, strict=True):
            with atomic_file(
                path
            ) as file:  # replaces what has the name, a FIFO for example, without opening it
                file.write(content.encode())
        for name in SHIPPED if vendor else ():
            shutil.copyfile(shipped_directory("nix") / name, directory / "relink" / name)
    except OSError as error:
        raise UsageError(
            f"{directory}: cannot be written to ({error.strerror}); name another by --output"
        ) from error
    return written


def write_plans(packages: Sequence[Package], directory: Path) -> tuple[Path, ...]:
    """Write the plans alone, one file for each wheel, for `relink.lib.uvOverlay` to find by their hashes.

    :raises UsageError: two are of one release for one Python, or the directory cannot be written to.
    """
    names = [_plan_file(package, package.pname) for package in packages]
    names = [
        name if names.count(name) == 1 else _plan_file(package, f"{package.pname}-{package.version}")
        for name, package in zip(names, packages, strict=True)
    ]
    if len(set(names)) < len(names):
        raise UsageError(f"{join_truncated(names)}: two wheels of one release for one Python; leave one out")
    written = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, package in zip(names, packages, strict=True):
            path = directory / name
            with atomic_file(path) as file:
                file.write(plan_json(package).encode())
            written.append(path)
    except OSError as error:
        raise UsageError(
            f"{directory}: cannot be written to ({error.strerror}); name another by --output"
        ) from error
    return tuple(written)


def _plan_file(package: Package, name: str) -> str:
    python = f"-cp{package.python.replace('.', '')}" if package.python else ""
    return f"{name}{python}.json"


def _check_release(packages: Sequence[Package]) -> None:
    releases = {(item.pname, item.version) for item in packages}
    pythons = [item.python for item in packages]
    if len(releases) > 1 or (len(packages) > 1 and (None in pythons or len(set(pythons)) < len(pythons))):
        names = ", ".join(item.source.name for item in packages)
        raise UsageError(
            f"{names[:400]}: one package takes the wheels of one release, one for each Python; give others another directory"
        )


_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_'-]*\Z")
_KEYWORDS = frozenset(
    [
        "if",
        "then",
        "else",
        "assert",
        "with",
        "let",
        "in",
        "rec",
        "inherit",
        "or",
        "true",
        "false",
        "null",
        "import",
    ]
)
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def nix_string(text: str) -> str:
    """Return a string literal that evaluates to `text`.

    :raises UsageError: Nix has no such string: it contains a NUL, or is not Unicode.
    """
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise UsageError(f"{text[:80]!a} cannot be said in Nix, whose strings are UTF-8 without NUL")
    # ``${`` begins an interpolation; ``\\$`` is a dollar sign, whether a brace follows or not.
    return '"' + "".join(_ESCAPES.get(character, character) for character in text).replace("$", "\\$") + '"'


def nix_attribute(name: str) -> str:
    """Return `name` as it stands in an attribute set: as it is where Nix takes it for an identifier, else quoted."""
    return name if _IDENTIFIER.match(name) and name not in _KEYWORDS else nix_string(name)


def nix_comment(text: str) -> str:
    """Return `text` for a line comment: one line, nothing that is not printable."""
    return "".join(character if character.isprintable() else "?" for character in text)


def nix_list(items: list[str], indent: str) -> str:
    """Return a list of expressions in the style of RFC 166: one item on the line of the brackets, several below each other."""
    if not items:
        return "[ ]"
    if len(items) == 1:
        return f"[ {items[0]} ]"
    return "[\n" + "".join(f"{indent}  {item}\n" for item in items) + f"{indent}]"
