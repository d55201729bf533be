"""A first draft of a profile, written from the facts of one wheel; what only its Python code could confirm is commented out."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from packaging.utils import canonicalize_name

from relink.elf.image import Image
from relink.elf.symbols import SymbolTable
from relink.loader.object_graph import breadth_first
from relink.system.shipped_files import load_schema
from relink.system.text import escaped, join_truncated, spelled_in_strings

__all__ = ["reached", "starting_profile"]

_BACKEND = re.compile(r"(?<=[._-])(?:rocm|hip|cuda|xpu|cpu|gfx)[0-9a-z]*(?:\.[0-9]+)*")
_SHOWN = 40  # entries or names that are listed; what is left out is counted


def starting_profile(
    distribution: str,
    filename: str,
    members: Collection[str],
    images: Mapping[str, Image],
    tables: Mapping[str, SymbolTable],
    strings: Mapping[str, Sequence[str]],
) -> str:
    """Return a commented profile in TOML. What is a guess stands in comments: as it is returned it assumes nothing.

    :param filename: the wheel's, for the comment that says what was read.
    :param strings: by ELF member, the library names in its read-only data.
    """
    name = str(canonicalize_name(distribution))
    lines = [
        f"# A profile for {_plain(name)}, begun from {_plain(filename)}.",
        "# A profile says what cannot be seen in the ELF files. What is commented out below is a guess: look it up in the",
        "# package's Python code, then take it in or delete it. `relink profile check FILE --wheel WHEEL` reads it.",
        'schema = "relink.profile/1"',
        f"name = {_text(name)}",
        f"distributions = {_list([name])}",
        "# Where each statement can be checked: a file of the vendor's, a document, a wheel that was read.",
        f"source = {_text(f'begun from {filename}: nothing is looked up yet')}",
        "",
        "# Modules whose import shows that the package loads.",
        _commented("imports", _imports(members)),
        "",
        "# Libraries of which Python picks one at run time. Those that a prefix cannot serve are then left as they are.",
        _commented("variants", _variants(images)),
        "",
        *_preloads(images, tables),
        "",
        "# Search path entries that leave the wheel for another package. They are kept unless a prefix takes their place.",
        *(f"# {line}" for line in ("[rpath]", f"drop = {_list(_leaving(images.values()))}")),
        "",
        *_dlopens(images, strings),
        "",
        "# Two sonames that are one ABI (the symbols have to be there all the same):",
        "# [[same_abi]]",
        '# sonames = ["libfoo.so.1", "libfoo.so.2"]',
        '# why = "where the vendor says so"',
        "",
        "# What people should be told with a finding:",
        "# [[hints]]",
        '# code = "RLK101"',
        '# subject = "libfoo.so.*"',
        '# text = "What to do about it."',
    ]
    return spelled_in_strings("\n".join(lines) + "\n")


def _plain(text: str) -> str:
    """A name from the wheel for a comment: no sign of it ends the line or steers a terminal."""
    return "".join(sign if escaped(sign) == sign else "?" for sign in text)


def _text(text: str) -> str:
    return json.dumps(_plain(text), ensure_ascii=False)


def _list(items: Iterable[str]) -> str:
    return f"[{', '.join(map(_text, items))}]"


def _commented(key: str, items: Sequence[str]) -> str:
    return f"# {key} = {_list(items)}"


def _fits(kind: str, text: str) -> bool:
    """Whether the schema takes a name from the wheel as it is."""
    return (
        text.isprintable() and re.search(load_schema("profile")["$defs"][kind]["pattern"], text) is not None
    )


def _imports(members: Collection[str]) -> list[str]:
    """The packages nearest to the top of the wheel, namespace packages seen through."""
    packages = {posixpath.dirname(member) for member in members if member.endswith("/__init__.py")}
    tops = [item for item in sorted(packages) if not any(item.startswith(f"{other}/") for other in packages)]
    names = [item.replace("/", ".") for item in tops]
    return [name for name in names if _fits("module", name)][:_SHOWN]


def _variants(images: Mapping[str, Image]) -> list[str]:
    """Globs of members that differ in nothing but the name of a backend."""
    groups: dict[str, list[str]] = {}
    for member in images:
        directory, base = posixpath.split(member)
        glob = posixpath.join(directory, _BACKEND.sub("*", base))
        if glob != member and _fits("memberGlob", glob):
            groups.setdefault(glob, []).append(member)
    return [glob for glob, found in groups.items() if len(found) > 1][:_SHOWN]


def _preloads(images: Mapping[str, Image], tables: Mapping[str, SymbolTable]) -> Iterator[str]:
    yield "# Members that the package loads into the global scope before others (ctypes.CDLL(…, mode=RTLD_GLOBAL), dlopen)."
    found = dict(_suppliers(images, tables))
    for supplier, (user, names) in found.items():
        yield f"# {_plain(supplier)} exports what {_plain(user)} leaves open: {_plain(join_truncated(names))}"
    yield _commented("preload", [item for item in found if _fits("member", item)])


def _suppliers(
    images: Mapping[str, Image], tables: Mapping[str, SymbolTable]
) -> Iterator[tuple[str, tuple[str, list[str]]]]:
    """Members that export what another imports without needing them, by name; each with one that does, and the symbols."""
    near = reached(images)
    for member, table in tables.items():
        own = {symbol for item in near[member] for symbol in tables[item].exports}
        wanted = {item.name for item in table.imports if item.binding != "weak"} - own
        for other in tables:
            names = sorted(wanted & tables[other].exports.keys()) if other not in near[member] else []
            if names:
                yield other, (member, names)


def _leaving(images: Iterable[Image]) -> list[str]:
    """Globs of the ``$ORIGIN`` entries that go up, a glob for many that begin alike."""
    entries = {entry for image in images for entry in (image.search_path or "").split(":")}
    leaving = sorted(
        entry
        for entry in entries
        if re.match(r"\$(ORIGIN|\{ORIGIN\})/(\.\./)+[^.]", entry) and _fits("entryGlob", entry)
    )

    def beginning(entry: str) -> tuple[str, str]:
        ups, first = re.match(r"(\$.*?/(?:\.\./)+)([^/]*)", entry).groups()  # type: ignore[union-attr]
        return ups, first[:4]

    groups = [list(group) for _, group in groupby(leaving, beginning)]
    globs = (f"{posixpath.commonprefix(group)}*" if len(group) > 1 else group[0] for group in groups)
    return list(globs)[:_SHOWN]


def _dlopens(images: Mapping[str, Image], strings: Mapping[str, Sequence[str]]) -> Iterator[str]:
    yield "# What members load by dlopen. Their read-only data names these, which proves nothing."
    own = {image.soname or posixpath.basename(member) for member, image in images.items()}
    for member, names in strings.items():
        others = [name for name in names if name not in own and _fits("sonameGlob", name)]
        if others and _fits("memberGlob", member):
            more = f"  # and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
            yield "# [[dlopen]]"
            yield f"# member = {_text(member)}"
            yield f"# sonames = {_list(others[:_SHOWN])}{more}"
            yield '# why = "what it is for"'


def reached(images: Mapping[str, Image]) -> dict[str, set[str]]:
    """Return the members that each member reaches by NEEDED within the wheel, itself among them."""
    by_name = {image.soname or posixpath.basename(member): member for member, image in images.items()}
    needed = {
        member: [by_name[soname] for soname in image.needed if soname in by_name]
        for member, image in images.items()
    }
    return {member: set(breadth_first(needed, [member])) for member in images}
