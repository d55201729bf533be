"""Graphs of libraries that export, import and version the same few symbols in every way that can go wrong."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from pathlib import Path

from hypothesis import strategies as st

from tests.support.elf_builder import GLOBAL, WEAK, Export, Import, Library, build

FILES = ("liba.so", "libb.so", "libc1.so", "libd.so", "libe.so")
NOWHERE = "libnowhere.so"
SYMBOLS = ("x", "y", "xy", "_ZN1a1bEv")
VERSIONS = ("V_1", "V_2", "V_3")
UNIQUE = 10
_GLOB_DAT, _64, _JUMP_SLOT = 6, 1, 7
_DT_SYMTAB, _DT_RELA, _DT_FLAGS, _DT_SYMBOLIC, _DT_FLAGS_1 = 6, 7, 30, 16, 0x6FFFFFFB
NOTYPE, OBJECT, FUNC, SECTION, TLS, IFUNC = 0, 1, 2, 3, 6, 10


@dataclass(frozen=True)
class Tweak:
    """What the builder does not write and is changed afterwards, in the definition of one symbol.

    :ivar visibility: st_other; :ivar type: the low half of st_info; :ivar value: False for a value of 0.
    :ivar own: the relocation of the import of that number is turned to this definition: the object refers to itself.
    """

    name: str
    visibility: int = 0
    type: int = OBJECT
    value: bool = True
    own: int | None = None


@dataclass(frozen=True)
class Node:
    library: Library
    tweaks: tuple[Tweak, ...] = ()
    symbolic: int = 0  # DT_SYMBOLIC, or DT_FLAGS with DF_SYMBOLIC


@dataclass(frozen=True)
class Graph:
    """The first file is the program; `preloads` are loaded right behind it, `roots` are dlopened, all but the last globally."""

    nodes: tuple[tuple[str, Node], ...]
    preloads: tuple[str, ...]
    roots: tuple[str, ...]


_version = st.sampled_from((None, *VERSIONS))


@st.composite
def _nodes(
    draw: st.DrawFn, file: str, others: tuple[str, ...], versioned_files: tuple[str, ...], *, mild: bool
) -> Node:
    exports: dict[tuple[str, str | None], Export] = {}
    versioned = file in versioned_files
    for name in draw(st.lists(st.sampled_from(SYMBOLS), min_size=draw(st.integers(0, 3)), max_size=4)):
        version = draw(_version) if versioned else None
        # A unique symbol in several versions would be that which is relocated first, and that order is not simulated.
        binding = draw(st.sampled_from((GLOBAL, GLOBAL, GLOBAL, WEAK, UNIQUE if version is None else WEAK)))
        hidden = version is not None and draw(st.integers(0, 2)) == 0
        exports[name, version] = Export(name, version, hidden=hidden, binding=binding)
    imports: dict[tuple[str, str | None, str | None], Import] = {}
    # A record of a file that is missing makes the loader's dry run read outside of its tables, so there is none.
    files = st.sampled_from((*versioned_files * 8, *others, file))
    for name in draw(st.lists(st.sampled_from(SYMBOLS), min_size=draw(st.integers(0, 4)), max_size=5)):
        version = draw(_version)
        blamed = draw(files) if version else None
        binding = draw(st.sampled_from((*(WEAK,) * 40, GLOBAL) if mild else (WEAK, GLOBAL, GLOBAL)))
        relocation = draw(st.sampled_from((_GLOB_DAT, _64, _JUMP_SLOT)))
        imports[name, version, blamed] = Import(name, version, blamed, binding, relocation)
    wanted = [item.file for item in imports.values() if item.file and draw(st.integers(0, 30))]
    extra = draw(st.lists(st.sampled_from(others if mild else (*others * 3, NOWHERE)), max_size=3))
    needed = draw(st.permutations(tuple(dict.fromkeys([*extra, *wanted]))))
    pairs = [(item.file, item.version) for item in imports.values() if item.file and item.version]
    weak_versions = [pair for pair in pairs if mild or draw(st.integers(0, 4)) == 0]
    library = Library(
        soname=file,
        needed=tuple(needed),
        runpath="$ORIGIN",
        exports=tuple(exports.values()),
        imports=tuple(imports.values()),
        versions=draw(st.sampled_from((VERSIONS, VERSIONS[:2], ()))) if versioned else (),
        weak_versions=tuple(weak_versions),
        hash=draw(st.sampled_from(("gnu", "gnu", "sysv", "both", "none"))),
    )
    counts = [name for name, _ in exports]
    tables = bool(library.versions) or any(version for _, version in exports)
    # Where a record blames a library without version tables, a hidden definition in it makes the loader abort as well.
    tweaks = [
        Tweak(
            name,
            draw(st.sampled_from((0, 0, 1, 2, 3, 3) if tables else (0, 0, 3))),
            draw(st.sampled_from((NOTYPE, OBJECT, OBJECT, FUNC, SECTION, TLS, IFUNC))),
            bool(draw(st.integers(0, 5))),
            draw(st.integers(0, len(imports) - 1)) if bool(imports) and draw(st.booleans()) else None,
        )
        for name in dict.fromkeys(counts)
        if counts.count(name) == 1 and draw(st.integers(0, 2)) == 0
    ]
    symbolic = draw(st.sampled_from((0, 0, 0, 0, _DT_SYMBOLIC, _DT_FLAGS)))
    return Node(library, tuple(tweaks), symbolic)


@st.composite
def graphs(draw: st.DrawFn, *, mild: bool = False) -> Graph:
    """Draw two to five libraries.

    :param mild: what has to be loaded for good: few strong imports, no missing files, no function that the loader would call.
    """
    files = FILES[: draw(st.integers(2, len(FILES)))]
    versioned = tuple(file for file in files if draw(st.integers(0, 2)))
    nodes = []
    for file in files:
        others = tuple(other for other in files if other != file)
        nodes.append((file, draw(_nodes(file, others, versioned, mild=mild))))
    if mild:
        # Which unique symbol of a symbolic library counts depends on the order of relocation, and that, where the
        # libraries of a dlopen need each other in a circle, on the version of the loader.
        unique = any(item.binding == UNIQUE for _, node in nodes for item in node.library.exports)
        nodes = [
            (file, replace(_mild(node), symbolic=0 if unique else node.symbolic)) for file, node in nodes
        ]
    several = st.lists(st.sampled_from(files), unique=True)
    return Graph(tuple(nodes), tuple(draw(several)), tuple(draw(several)) or (files[0],))


def _mild(node: Node) -> Node:
    tweaks = tuple(
        replace(item, type=OBJECT if item.type in (IFUNC, TLS) else item.type) for item in node.tweaks
    )
    return replace(node, tweaks=tweaks)


def write(graph: Graph, world: Path) -> None:
    """Build the files of `graph` into `world`."""
    world.mkdir(parents=True, exist_ok=True)
    for file, node in graph.nodes:
        (world / file).write_bytes(image(node))


def image(node: Node) -> bytes:
    """Return the bytes of one library, tweaks and all."""
    library = replace(node.library, flags_1=1) if node.symbolic else node.library
    data = bytearray(build(library))
    dynamic = _dynamic(data)
    if node.symbolic:
        struct.pack_into("<qQ", data, dynamic[_DT_FLAGS_1][0], node.symbolic, 2)
    table = dynamic[_DT_SYMTAB][1]
    by_name = {
        name: 1 + len(library.imports) + place for place, name in enumerate(_exported(data, dynamic, library))
    }
    for tweak in node.tweaks:
        number = by_name[tweak.name]
        at = table + 24 * number
        data[at + 4] = data[at + 4] & 0xF0 | tweak.type
        data[at + 5] = tweak.visibility
        if not tweak.value:
            struct.pack_into("<Q", data, at + 8, 0)
        if tweak.own is not None:
            where = dynamic[_DT_RELA][1] + 24 * tweak.own + 12
            struct.pack_into("<I", data, where, number)
    return bytes(data)


def _dynamic(data: bytearray) -> dict[int, tuple[int, int]]:
    """Return tag → (place of the entry, value). The builder's addresses are file offsets."""
    count = struct.unpack_from("<H", data, 56)[0]
    for number in range(count):
        kind, _, offset = struct.unpack_from("<IIQ", data, 64 + 56 * number)
        if kind == 2:
            found: dict[int, tuple[int, int]] = {}
            while True:
                tag, value = struct.unpack_from("<qQ", data, offset)
                if not tag:
                    return found
                found[tag] = (offset, value)
                offset += 16
    raise AssertionError("no dynamic segment")


def _exported(data: bytearray, dynamic: dict[int, tuple[int, int]], library: Library) -> list[str]:
    """Return the names of the definitions in the order of the symbol table."""
    strings, table = dynamic[5][1], dynamic[_DT_SYMTAB][1]
    names = []
    for place in range(len(library.exports)):
        (offset,) = struct.unpack_from("<I", data, table + 24 * (1 + len(library.imports) + place))
        end = data.index(0, strings + offset)
        names.append(data[strings + offset : end].decode())
    return names
