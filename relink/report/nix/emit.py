"""Writing a package for Nix as nixpkgs has those of wheels: buildPythonPackage with autoRelinkHook, in nixfmt's layout."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from relink.report.nix.metadata import OLDEST, About, Source, is_sibling
from relink.report.nix.package import Package
from relink.system.atomic import atomic_file
from relink.system.errors import UsageError
from relink.vendors.registry import component_of

# Licences of SPDX → attributes of lib.licenses, where a vendor's wheel has had them.
_LICENSES = {
    "0BSD": "bsd0",
    "AGPL-3.0-only": "agpl3Only",
    "AGPL-3.0-or-later": "agpl3Plus",
    "Apache-2.0": "asl20",
    "BSD-2-Clause": "bsd2",
    "BSD-3-Clause": "bsd3",
    "BSL-1.0": "boost",
    "CC0-1.0": "cc0",
    "GPL-2.0-only": "gpl2Only",
    "GPL-2.0-or-later": "gpl2Plus",
    "GPL-3.0-only": "gpl3Only",
    "GPL-3.0-or-later": "gpl3Plus",
    "ISC": "isc",
    "LGPL-2.1-only": "lgpl21Only",
    "LGPL-3.0-or-later": "lgpl3Plus",
    "LLVM-exception": "llvm-exception",
    "MIT": "mit",
    "MPL-2.0": "mpl20",
    "NCSA": "ncsa",
    "PSF-2.0": "psfl",
    "Unlicense": "unlicense",
    "Zlib": "zlib",
}
_WIDTH = 100  # columns, of nixfmt
# Libraries of rocm.toml whose name nixpkgs has a Python package for, too, which callPackage would take.
_SHADOWED = frozenset({"zstd"})


def package_nix(packages: Sequence[Package]) -> str:
    """Return package.nix, for `python3Packages.callPackage` with relink's overlay.

    :param packages: one wheel, or those of one release for several Pythons.
    :raises UsageError: they are not of one release, or Nix has no string with a text of theirs.
    """
    _check_release(packages)
    package, several = packages[0], len(packages) > 1
    version = f"version = {nix_string(package.release[1])};"
    inherited = "inherit version;" if several else "inherit (finalAttrs) version;"
    sources = [_source(item.source, inherited) for item in packages]
    if several:
        disabled = "!(srcs ? ${python.pythonVersion})"
        chosen = ["srcs.${python.pythonVersion}"]
    else:
        disabled, (chosen,) = _disabled(package), sources
    inputs = sorted({name.removeprefix("pkgs.") for item in packages for name, _ in item.inputs})
    unknown = _unknown(name for item in packages for name in item.unknown)
    broken = _broken(package, "version" if several else "finalAttrs.version")
    blocks = [
        [
            f"pname = {nix_string(package.release[0])};",
            inherited if several else version,
            "pyproject = false;",
        ],
        ["__structuredAttrs = true;"],
        [f"disabled = {disabled};"] if disabled else [],
        _assigned("src", chosen),
        _assigned("nativeBuildInputs", _list(["autoRelinkHook", "pypaInstallHook", "wheelUnpackHook"])),
        _assigned("buildInputs", _list([*unknown, *inputs])) if unknown or inputs else [],
        _dependencies(packages),
        *(_assigned(name, _list(map(nix_string, words))) for name, words in package.settings),
        _assigned("pythonImportsCheck", _list(map(nix_string, package.imports))) if package.imports else [],
        ["meta = {", *_indented([*_meta(package.about), *broken, "maintainers = [ ];"]), "};"],
    ]
    body = _indented([line for block in blocks if block for line in ["", *block]][1:])
    text, libraries = "\n".join(body), package.vendor.libraries
    required = {row.attribute for item in packages for row in item.dependencies if row.attribute}
    formals = [
        "lib",
        "buildPythonPackage",
        *dict.fromkeys(item.source.fetcher for item in packages if item.source.fetcher),
        "autoRelinkHook",
        "pypaInstallHook",
        *(name for name in ("pythonOlder", "pythonAtLeast") if f'{name} "' in text),
        "wheelUnpackHook",
        *(["python"] if several else []),
        *([libraries.package_set] if f"{libraries.package_set or None}." in text else []),
        *(name for name in inputs if "." not in name),
        *sorted(required.union(package.same_version)),
    ]
    head = ["{", *_indented(map(_formal, dict.fromkeys(formals))), "}:", ""]
    if several:
        rows = zip(packages, sources, strict=True)
        lines = [line for item, found in rows for line in _assigned(f'"3.{item.pythons[0]}"', found)]
        head += ["let", *_indented([version, "srcs = {", *_indented(lines), "};"]), "in"]
    if "finalAttrs" in text:
        return "\n".join([*head, "buildPythonPackage (finalAttrs: {", text, "})", ""])
    return "\n".join([*head, "buildPythonPackage {", text, "}", ""])


def _formal(name: str) -> str:
    """An argument; where it is a library that a Python package of nixpkgs is called like, callPackage has to be given it."""
    if name in _SHADOWED:
        return f"{name}, # the library: callPackage ./package.nix {{ inherit (pkgs) {name}; }}"
    return f"{name},"


def _source(source: Source, version: str) -> list[str]:
    if source.fetcher is None:
        return [source.arguments["path"]]
    rows = [f"{name} = {nix_string(text)};" for name, text in source.arguments.items()]
    if source.fetcher == "fetchPypi":
        rows.insert(1, version)
    return [f"{source.fetcher} {{", *_indented(rows), "}"]


def _disabled(package: Package) -> str:
    """For which Pythons nixpkgs has no such package: "" for all that it has."""
    least = package.pythons[0]
    if package.exact:
        return f'pythonOlder "3.{least}" || pythonAtLeast "3.{least + 1}"'
    return f'pythonOlder "3.{least}"' if least > OLDEST else ""


def _dependencies(packages: Sequence[Package]) -> list[str]:
    """The attribute: what every Python needs, then a list for each condition about Python's version."""
    admitted = sorted({minor for item in packages for minor in item.pythons})
    rows = [row for item in packages for row in item.dependencies]
    unknown = _unknown(row.name for row in rows if row.attribute is None)
    groups: dict[str, list[str]] = {"": []}
    for name in sorted({row.attribute for row in rows if row.attribute}):
        asked = {minor for row in rows if row.attribute == name for minor in row.pythons}
        group = groups.setdefault(_condition(asked, admitted), [])
        if is_sibling(name):
            group.append("# nixpkgs does not have it; relink nix writes a package of its wheel, too.")
        group.append(name)
    plain = [*unknown, *groups.pop("")]
    parts = [_list(plain)] if plain else []
    for condition, names in groups.items():
        first, *rest = _list(names)
        parts.append([f"lib.optionals ({condition}) {first}", *rest])
    if len(parts) < 2:
        return [line for part in parts for line in _assigned("dependencies", part)]
    line = f"dependencies = {' ++ '.join(part[0] for part in parts)};"
    if all(len(part) == 1 for part in parts) and len(line) + 2 <= _WIDTH:
        return [line]
    if plain:
        parts[0] = _list(plain, expanded=True)
    joined = [*parts[0], *(line for first, *rest in parts[1:] for line in (f"++ {first}", *rest))]
    joined[-1] += ";"
    return [f"dependencies = {joined[0]}", *joined[1:]] if plain else ["dependencies =", *_indented(joined)]


def _condition(asked: Collection[int], admitted: Sequence[int]) -> str:
    """Nix for Python's minor version being one of `asked`; "" for all of `admitted`, which ascend."""
    runs: list[list[int]] = []
    for before, minor in zip((None, *admitted), admitted, strict=False):
        if minor in asked:
            if runs and runs[-1][-1] == before:
                runs[-1].append(minor)
            else:
                runs.append([minor])
    bounds = []
    for run in runs:
        least = [f'pythonAtLeast "3.{run[0]}"'] if run[0] > admitted[0] else []
        end = [f'pythonOlder "3.{run[-1] + 1}"'] if run[-1] < admitted[-1] else []
        bounds.append(" && ".join(least + end))
    return " || ".join(bounds)


def _broken(package: Package, version: str) -> list[str]:
    """The attribute of `meta`: what the package set must have, each with its reason in a comment."""
    reasons: dict[str, str] = {}
    vendor, runtime = package.vendor, f"{package.vendor.libraries.runtime}.{package.major}"
    has_own = any(name.startswith(f"{vendor.libraries.package_set}.") for name, _ in package.inputs)
    if package.major is not None and has_own and (found := component_of(runtime, package.major)):
        condition = f'lib.versions.major {found[0].attribute}.version != "{package.major}"'
        reasons[condition] = f"The wheel needs {runtime}."
    attributes = {row.attribute for row in package.dependencies}
    siblings = sorted(name for name in attributes if name and is_sibling(name))
    for name in (*package.same_version, *(siblings if package.same_version else ())):
        reasons[f"{name}.version != {version}"] = f"{name} has to be of the same version."
    if "torch" in attributes and (support := vendor.libraries.package_support):
        text = f"torch has to be built for {vendor.product} (config.{support})."
        reasons[f"!(torch.{support} or false)"] = text
    if not reasons:
        return []
    comments = [f"# {text}" for text in reasons.values()]
    line = f"broken = {' || '.join(reasons)};"
    if len(line) + 4 <= _WIDTH:
        return [*comments, line]
    first, *rest = reasons
    # nixfmt moves the whole expression below the name before it breaks it.
    line = f"  {' || '.join(reasons)};"
    if len(line) + 4 <= _WIDTH:
        return [*comments, "broken =", line]
    return [*comments, "broken =", f"  {first}", *(f"  || {text}" for text in rest[:-1]), f"  || {rest[-1]};"]


def _unknown(names: Iterable[str]) -> list[str]:
    return [f"# nixpkgs is not known to have {nix_comment(name)}." for name in dict.fromkeys(names)]


def _meta(about: About) -> list[str]:
    lines = [
        f"{name} = {nix_string(text)};"
        for name, text in (
            ("description", about.description),
            ("homepage", about.homepage),
            ("changelog", about.changelog),
        )
        if text
    ]
    if about.license:
        words = [
            word for word in re.split(r"[\s()]+", about.license) if word not in ("", "AND", "OR", "WITH")
        ]
        names = [
            f"lib.licenses.{_LICENSES[word]}"
            if word in _LICENSES
            else f"(lib.getLicenseFromSpdxId {nix_string(word)})"
            for word in dict.fromkeys(words)
        ]
        lines += _assigned("license", [names[0].strip("()")] if len(names) == 1 else _list(names))
    else:
        lines.append("# METADATA names no licence that SPDX has.")
    return [
        *lines,
        "sourceProvenance = [ lib.sourceTypes.binaryNativeCode ];",
        'platforms = [ "x86_64-linux" ];',
    ]


def write_package(packages: Sequence[Package], directory: Path, *, force: bool = False) -> Path:
    """Write package.nix into a directory; returns its path.

    :param force: replace a file of that name.
    :raises UsageError: the wheels are not of one release, the directory cannot be written to, or there is a package.nix.
    """
    content, path = package_nix(packages), directory / "package.nix"
    if os.path.lexists(path) and not force:
        raise UsageError(f"{path}: is there already; name another directory by --output, or pass --force")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        # A FIFO of that name is replaced and not opened: opening would wait for a reader.
        with atomic_file(path) as file:
            file.write(content.encode())
    except OSError as error:
        raise UsageError(
            f"{directory}: cannot be written to ({error.strerror}); name another by --output"
        ) from error
    return path


def _check_release(packages: Sequence[Package]) -> None:
    releases = {item.release for item in packages}
    pythons = {item.pythons for item in packages}
    alike = {(item.major, item.settings) for item in packages}
    exact = all(item.exact for item in packages)
    if len(packages) > 1 and not (
        exact and len(releases) == len(alike) == 1 and len(pythons) == len(packages)
    ):
        names = ", ".join(item.source.name for item in packages)
        raise UsageError(
            f"{names[:400]}: one package takes the wheels of one release, one for each Python; give others another directory"
        )


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def nix_string(text: str) -> str:
    """Return a string literal that evaluates to `text`.

    :raises UsageError: Nix has no such string: it contains a NUL, or is not Unicode.
    """
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise UsageError(f"{text[:80]!a} cannot be said in Nix, whose strings are UTF-8 without NUL")
    # ``${`` begins an interpolation; nixfmt leaves a dollar sign alone that nothing follows.
    return '"' + "".join(_ESCAPES.get(character, character) for character in text).replace("$", "\\$") + '"'


def nix_comment(text: str) -> str:
    """Return `text` for a line comment: one line, nothing that is not printable."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _list(items: Iterable[str], *, expanded: bool = False) -> list[str]:
    """A list in lines: alone on its line only an item that is short and no comment."""
    rows = list(items)
    if len(rows) == 1 and not expanded and not rows[0].startswith("#") and len(rows[0]) <= _WIDTH // 2:
        return [f"[ {rows[0]} ]"]
    return ["[", *_indented(rows), "]"]


def _assigned(name: str, lines: Sequence[str]) -> list[str]:
    """An attribute whose value has these lines."""
    first, *rest = [*lines[:-1], f"{lines[-1]};"]
    return [f"{name} = {first}", *rest]


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" if line else "" for line in lines]
