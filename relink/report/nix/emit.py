"""Writing a package for Nix as nixpkgs has those of wheels: buildPythonPackage with autoRelinkHook, in nixfmt's layout."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from textwrap import indent

from relink.report.nix.package import NEWEST, OLDEST, Package, Source, is_sibling, nixpkgs_names
from relink.system.atomic import atomic_file
from relink.system.errors import UsageError, describe_failure
from relink.system.text import escape_untrusted
from relink.vendors.registry import find_component

_WIDTH = 100  # characters of a line, as nixfmt counts them: without its indentation


def package_nix(packages: Sequence[Package]) -> str:
    """Return package.nix, for `python3Packages.callPackage` with relink's overlay.

    :param packages: one wheel, or those of one release for several Pythons.
    :raises UsageError: they are not of one release, or Nix has no string with a text of theirs.
    """
    package, several = packages[0], len(packages) > 1
    pythons = {item.pythons for item in packages if len(item.pythons) == 1}
    releases = {(item.wheel.canonical, item.wheel.version_text, item.major) for item in packages}
    if several and (len(releases) > 1 or len(pythons) < len(packages)):
        names = ", ".join(item.wheel.filename for item in packages)
        raise UsageError(
            f"{names[:400]}: one package takes the wheels of one release, one for each Python; give others another directory"
        )
    version = f"version = {nix_string(package.wheel.version_text)};"
    inherited = "inherit version;" if several else "inherit (finalAttrs) version;"
    sources = [_source(item.source, inherited) for item in packages]
    if several:
        disabled, chosen = "!(srcs ? ${python.pythonVersion})", "srcs.${python.pythonVersion}"
    else:
        # For which Pythons nixpkgs has no such package: "" for all that it has.
        (chosen,), least, alone = sources, package.pythons[0], len(pythons)
        every = range(min(OLDEST, least - alone), NEWEST + 1)
        disabled = _condition({*every}.difference(package.pythons), every)
    inputs = sorted({name.removeprefix("pkgs.") for item in packages for name in item.inputs})
    system = [name for name in inputs if "." not in name]
    unknown = _unknown(name for item in packages for name in item.unknown)
    about = [f"pname = {nix_string(package.wheel.canonical)};", inherited if several else version]
    blocks = [
        "\n".join([*about, "pyproject = false;"]),
        "__structuredAttrs = true;",
        f"disabled = {disabled};" if disabled else "",
        f"src = {chosen};",
        _list("nativeBuildInputs = ", ["autoRelinkHook", "pypaInstallHook", "wheelUnpackHook"], ";"),
        _list("buildInputs = ", [*unknown, *inputs], ";"),
        _dependencies(packages),
        *(_list(f"{key} = ", map(nix_string, words), ";") for key, words in (package.settings or {}).items()),
        _list("pythonImportsCheck = ", map(nix_string, package.imports), ";"),
        _meta(package, "version" if several else "finalAttrs.version"),
    ]
    text, libraries = "\n\n".join(filter(None, blocks)), package.vendor.libraries
    required = {row.attribute for item in packages for row in item.dependencies if row.attribute}
    formals = [
        "lib",
        "buildPythonPackage",
        *(item.source.fetcher for item in packages if item.source.fetcher),
        "autoRelinkHook",
        "pypaInstallHook",
        *(name for name in ("pythonOlder", "pythonAtLeast") if f'{name} "' in text),
        "wheelUnpackHook",
        *(["python"] if several else []),
        *([libraries.package_set] if f"{libraries.package_set or None}." in text else []),
        *system,
        *sorted(required.union(package.same_version)),
    ]
    # callPackage would take the Python package of that name, which nixpkgs has, too.
    remarks = {
        name: f" # the library: callPackage ./package.nix {{ inherit (pkgs) {name}; }}"
        for name in {*system}.intersection(nixpkgs_names()["names"])
    }
    head = _block("{", (f"{name},{remarks.get(name, '')}" for name in dict.fromkeys(formals)), "}:\n\n")
    if several:
        rows = zip(packages, sources, strict=True)
        found = _block("srcs = {", (f'"3.{item.pythons[0]}" = {where};' for item, where in rows), "};")
        head += _block("let", [version, found], "in\n")
    opening, end = ("(finalAttrs: {", "})\n") if "finalAttrs" in text else ("{", "}\n")
    return head + _block(f"buildPythonPackage {opening}", [text], end)


def _source(source: Source, version: str) -> str:
    if source.fetcher is None:
        return source.arguments["path"]
    rows = [f"{name} = {nix_string(text)};" for name, text in source.arguments.items()]
    if source.fetcher == "fetchPypi":
        rows.insert(1, version)
    return _block(f"{source.fetcher} {{", rows, "}")


def _dependencies(packages: Sequence[Package]) -> str:
    """The attribute: what every Python needs, then a list for each condition about Python's version."""
    admitted = sorted({minor for item in packages for minor in item.pythons})
    rows = [row for item in packages for row in item.dependencies]
    plain = _unknown(row.name for row in rows if row.attribute is None)
    groups = {"": plain}
    for name in sorted({row.attribute for row in rows if row.attribute}):
        asked = {minor for row in rows if row.attribute == name for minor in row.pythons}
        condition = _condition(asked, admitted)
        group = groups.setdefault(f"lib.optionals ({condition}) " if condition else "", [])
        if is_sibling(name):
            group.append("# nixpkgs does not have it; relink nix writes a package of its wheel, too.")
        group.append(name)
    parts = [_list(head, names) for head, names in groups.items() if names]
    if plain and "\n".join(parts).count("\n") > 1:
        # nixfmt leaves a list behind the equals sign, and each item on a line of its own.
        parts[0] = _block("[", plain, "]")
    return _joined("dependencies", parts, "++")


def _joined(name: str, parts: Sequence[str], operator: str) -> str:
    """An attribute whose value is several parts: on one line, else below the name, else each below the other.

    One part alone, and a list in lines before others, stay behind the equals sign. Nothing is written for no part.
    """
    line, lines = f" {operator} ".join(parts), f"\n{operator} ".join(parts)
    flat = "\n" not in line
    if len(parts) == 1 or lines.startswith("[\n") or (flat and len(f"{name} = {line};") <= _WIDTH):
        return f"{name} = {line if flat else lines};" if parts else ""
    return _block(f"{name} =", [f"{line if flat and len(line) < _WIDTH else lines};"])


def _condition(asked: Collection[int], admitted: Sequence[int]) -> str:
    """Nix for Python's minor version being one of `asked`; "" for all of `admitted`, which ascend."""
    bounds = []
    for wanted, group in groupby(admitted, lambda minor: minor in asked):
        run = [*group]
        least = [f'pythonAtLeast "3.{run[0]}"'] if run[0] > admitted[0] else []
        end = [f'pythonOlder "3.{run[-1] + 1}"'] if run[-1] < admitted[-1] else []
        if wanted:
            bounds.append(" && ".join(least + end))
    return " || ".join(bounds)


def _unknown(names: Iterable[str]) -> list[str]:
    return [f"# nixpkgs is not known to have {escape_untrusted(name)}." for name in dict.fromkeys(names)]


def _meta(package: Package, version: str) -> str:
    """The attribute; `broken` says what the package set must have, each with its reason in a comment."""
    known = nixpkgs_names()["licenses"]
    words = re.findall(r"[^\s()]+", package.meta.get("license", ""))
    names = [f"lib.licenses.{known[word]}" for word in dict.fromkeys(words) if word in known]
    licenses = f"license = {names[0]};" if len(names) == 1 else _list("license = ", names, ";")
    reasons: dict[str, str] = {}
    vendor, runtime = package.vendor, f"{package.vendor.libraries.runtime}.{package.major}"
    has_own = any(name.startswith(f"{vendor.libraries.package_set}.") for name in package.inputs)
    if package.major is not None and has_own and (found := find_component(runtime, package.major)):
        condition = f'lib.versions.major {found[0].attribute}.version != "{package.major}"'
        reasons[condition] = f"The wheel needs {runtime}."
    attributes = {row.attribute for row in package.dependencies}
    siblings = sorted(name for name in attributes if name and is_sibling(name))
    for name in (*package.same_version, *(siblings if package.same_version else ())):
        reasons[f"{name}.version != {version}"] = f"{name} has to be of the same version."
    if "torch" in attributes and (support := vendor.libraries.package_support):
        text = f"torch has to be built for {vendor.product} (config.{support})."
        reasons[f"!(torch.{support} or false)"] = text
    lines = [
        *(f"{name} = {nix_string(text)};" for name, text in package.meta.items() if name != "license"),
        licenses or "# nixpkgs is not known to have its licence.",
        "sourceProvenance = [ lib.sourceTypes.binaryNativeCode ];",
        'platforms = [ "x86_64-linux" ];',
        *(f"# {text}" for text in reasons.values()),
        _joined("broken", [*reasons], "||"),
        "maintainers = [ ];",
    ]
    return _block("meta = {", lines, "};")


def write_package(packages: Sequence[Package], directory: Path, *, force: bool = False) -> Path:
    """Write package.nix into a directory; returns its path.

    :param force: replace a file of that name.
    :raises UsageError: the wheels are not of one release, the directory cannot be written to, or there is a package.nix.
    """
    content, path = package_nix(packages), directory / "package.nix"
    if os.path.lexists(path) and not force:
        raise UsageError(f"{path}: is there already; name another directory by --output, or pass --force")
    with describe_failure(UsageError, f"{directory}: cannot be written to", "; name another by --output"):
        directory.mkdir(parents=True, exist_ok=True)
        # A FIFO of that name is replaced and not opened: opening would wait for a reader.
        with atomic_file(path) as file:
            file.write(content.encode())
    return path


_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "$": "\\$"})


def nix_string(text: str) -> str:
    """Return a string literal that evaluates to `text`.

    :raises UsageError: Nix has no such string: it contains a NUL, or is not Unicode.
    """
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise UsageError(f"{text[:80]!a} cannot be said in Nix, whose strings are UTF-8 without NUL")
    # ``${`` begins an interpolation; nixfmt leaves a dollar sign alone that nothing follows.
    return f'"{text.translate(_ESCAPES)}"'


def _list(before: str, items: Iterable[str], end: str = "") -> str:
    """A list, nothing for an empty one; one item that is no comment stands on the line of `before` where that has room."""
    rows = list(items)
    line = f"{before}[ {' '.join(rows)} ]"
    is_short = len(rows) == 1 and not rows[0].startswith("#") and len(line) < _WIDTH
    text = line if is_short else _block(f"{before}[", rows, "]")
    return f"{text}{end}" if rows else ""


def _block(head: str, lines: Iterable[str], *end: str) -> str:
    """Lines between two others, indented; of an empty one nothing is written."""
    return "\n".join([head, indent("\n".join(filter(None, lines)), "  "), *end])
