"""Writing a package for Nix: a file with the wheel, what it is linked with, and what it depends on; the rest is relinkWheel's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from relink import __version__
from relink.report.nix.metadata import About, Source
from relink.report.nix.package import Package
from relink.system.atomic import atomic_file
from relink.system.errors import UsageError
from relink.system.text import grouped
from relink.vendors.registry import package_set

_LICENSES = {
    "Apache-2.0": "lib.licenses.asl20",
    "BSD-2-Clause": "lib.licenses.bsd2",
    "BSD-3-Clause": "lib.licenses.bsd3",
    "MIT": "lib.licenses.mit",
    "MPL-2.0": "lib.licenses.mpl20",
}

_WIDTH = 100  # columns
# Arguments that mean something else in nixpkgs, and are names on the package index, too.
_RESERVED = frozenset({"lib", "pkgs", "python", "stdenv"})


def package_nix(packages: Sequence[Package], *, lock: bool = False) -> str:
    """Return package.nix, for `python3Packages.callPackage` with relink's overlay.

    :param packages: one wheel, or those of one release for several Pythons.
    :param lock: their locks lie beside it.
    :raises UsageError: they are not of one release, or Nix cannot say a text of theirs.
    """
    _check_release(packages)
    package = packages[0]
    inputs = dict.fromkeys(name for item in packages for name, _ in item.inputs)
    sets = grouped((found, name) for name in inputs if (found := package_set(name)))
    others = [name for name in inputs if not package_set(name)]
    formals = [
        *(["lib"] if package.about.license else []),
        _fetcher(package.source),
        "relinkWheel",
        *sets,
        *dict.fromkeys(name.partition(".")[0] for name in others),
    ]
    dependencies = dict.fromkeys(name for item in packages for name in item.dependencies)
    siblings = dict.fromkeys(name for item in packages for name in item.siblings)
    # A name that Nix does not take for an argument, or that is one already, is looked up in the set of Python packages.
    plain = {
        name: nix_attribute(name) == name and name not in {*formals, *_RESERVED} for name in dependencies
    }
    asked = {name: name if plain[name] else f"python.pkgs.{nix_attribute(name)}" for name in dependencies}
    formals += [*(["python"] if not all(plain.values()) else []), *filter(plain.get, plain), *siblings]
    formals += [name for name in package.same_version if name not in formals]
    lines = [
        f"# Written by relink {__version__} from {nix_comment(', '.join(item.source.name for item in packages))}."
    ]
    if siblings:
        lines.append(f"# Of the vendor alone, `relink nix` writes it in the same way: {', '.join(siblings)}.")
    if unknown := dict.fromkeys(name for item in packages for name in item.unknown):
        lines.append(
            f"# nixpkgs has none that relink knows, so add what has it: {nix_comment(', '.join(unknown))}."
        )
    lines += [
        "{",
        *_filled([f"{name}," for name in formals], "  "),
        "}:",
        "",
        "relinkWheel {",
        *_sources(packages),
    ]
    scope = [f"with {name}; {_list([one.partition('.')[2] for one in own])}" for name, own in sets.items()]
    if scope or others:
        lines.append(f"  buildInputs = {' ++ '.join([*scope, *([_list(others)] if others else [])])};")
    rows = {
        "dependencies": [*asked.values(), *siblings],
        "sameVersion": [*package.same_version, *siblings] if package.same_version else [],
        "stub": map(nix_string, package.stub),
        "forward": map(nix_string, package.forward),
        "allowMissing": map(nix_string, package.missing),
        "gpus": map(nix_string, package.gpus),
        "pythonImportsCheck": map(nix_string, package.imports),
    }
    lines += [f"  {name} = {_list(values)};" for name, row in rows.items() if (values := list(row))]
    if lock:
        names = {item.python: f"./{_lock_name(item, packages)}" for item in packages}
        each = " ".join(f"{nix_string(python or '')} = {name};" for python, name in names.items())
        lines.append(f"  lock = {next(iter(names.values())) if len(names) == 1 else f'{{ {each} }}'};")
    return "\n".join([*lines, "", *_meta(package.about), "}", ""])


def _fetcher(source: Source) -> str:
    return "fetchPypi" if source.index else "fetchurl"


def _sources(packages: Sequence[Package]) -> list[str]:
    if len(packages) == 1:
        return [f"  src = {_fetched(packages[0].source, '  ')};"]
    rows = (f"    {nix_string(item.python or '')} = {_fetched(item.source, '    ')};" for item in packages)
    return ["  srcs = {", *rows, "  };"]


def _fetched(source: Source, indent: str) -> str:
    facts = asdict(source.index) | {"format": "wheel"} if source.index else {"url": source.url}
    if source.url is not None and not source.url.endswith(f"/{source.name}"):
        facts["name"] = source.name
    rows = [f"{name} = {nix_string(text)};" for name, text in {**facts, "hash": source.hash}.items()]
    return "\n".join([f"{_fetcher(source)} {{", *_filled(rows, f"{indent}  "), f"{indent}}}"])


def _meta(about: About) -> list[str]:
    """What nixpkgs shows; `relinkWheel` adds platforms and sourceProvenance, which are the same for all."""
    rows = {
        "description": nix_string(about.description) if about.description else None,
        "homepage": nix_string(about.homepage) if about.homepage else None,
        "changelog": nix_string(about.changelog) if about.changelog else None,
        "license": _license(about.license) if about.license else None,
        "maintainers": "[ ]",
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
    return _list([f"({name})" if " " in name else name for name in names], "    ")


def _lock_name(package: Package, packages: Sequence[Package]) -> str:
    python = f"-{package.python}" if len(packages) > 1 else ""
    return f"{package.release[0]}{python}.lock.json"


def write_package(packages: Sequence[Package], directory: Path, *, lock: bool = False) -> tuple[Path, ...]:
    """Write package.nix into a directory, and the locks where they are wanted; returns the paths.

    :raises UsageError: the wheels are not of one release, or the directory cannot be written to.
    """
    contents = {"package.nix": package_nix(packages, lock=lock)}
    if lock:
        contents |= {_lock_name(item, packages): item.lock or "" for item in packages}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            # A FIFO of that name is replaced and not opened: opening would wait for a reader.
            with atomic_file(directory / name) as file:
                file.write(content.encode())
    except OSError as error:
        raise UsageError(
            f"{directory}: cannot be written to ({error.strerror}); name another by --output"
        ) from error
    return tuple(directory / name for name in contents)


def _check_release(packages: Sequence[Package]) -> None:
    releases = {item.release for item in packages}
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


def _list(items: Sequence[str], indent: str = "  ") -> str:
    """A list of expressions: on the line of its brackets where it is short, else filled below it."""
    line = f"[ {' '.join(items)} ]"
    if len(line) <= _WIDTH - 40:
        return line
    return "\n".join(["[", *_filled(items, f"{indent}  "), f"{indent}]"])


def _filled(words: Iterable[str], indent: str) -> list[str]:
    lines = [""]
    for word in words:
        if lines[-1] and len(indent) + len(lines[-1]) + len(word) >= _WIDTH:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return [f"{indent}{line}" for line in lines]
