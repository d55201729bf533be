"""Worlds of libraries to load: files, links, search paths, and what is to be loaded in them."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from relink.loader.target import Target
from tests.support.elf_builder import DF_1_NODEFLIB, DF_1_NOOPEN, DF_1_PIE, EM_AARCH64, ET_EXEC, Library

NAMES = ("liba.so", "libb.so", "libc1.so", "libd.so", "libe.so")
# `@` is the world's directory, `%` the loader's $LIB, `^` its best hardware directory.
DIRECTORIES = (
    *(
        "d0",
        "d1",
        "d2/sub",
        "d0/%",
        "d1/^",
        "d0/^",
        "d2/sub/x86_64",
        "d2/sub/tls",
        "d2/sub/glibc-hwcaps/x86-64-v9",
    ),
    *("cwd", "cwd/d1"),
)
LINKS = {"l0": "d1", "l1": "d2/sub", "abs": "@/d0", "d0/up": "..", "loop": "loop", "d1/over": "../d2/sub"}
ENTRIES = (
    *("$ORIGIN", "@/d0", "@/d1", "@/d2/sub", "$ORIGIN/../d0", "$ORIGIN/../d1", "@/l0", "@/l1", "@/abs"),
    *(
        "${ORIGIN}/../d1",
        "@/d1/",
        "@/d2//sub",
        "@/d0/up/l0",
        "$ORIGIN/$LIB",
        "@/d0/$LIB",
        "",
        "d1",
        "./d1/",
        ".",
    ),
    *(
        "@/d1/over",
        "@/d1/over/../../d0",
        "@/nonexistent",
        "$ORIGIN/../nonexistent/../d1",
        "@/loop",
        "loop",
        "@/loop/x",
    ),
    *(
        "$ORIGINX",
        "@/d0/liba.so",
        "$ORIGIN/$PLATFORM",
        "@/$LIBX",
        "/",
        "@/d0/^",
        "$ORIGIN/../..",
        "../d0",
        "@/d0/up/cwd",
        "file",
        "@/cwd/file",
    ),
)
COMMON_ENTRIES = ENTRIES[:9]
# No libc.so.6: where -z nodeflib hides it from one object, glibc's check of DT_RELR dies of the faked map (dl-version.c).
ODD_NEEDED = (
    *(
        "$ORIGIN/liba.so",
        "$ORIGIN/../d0/libd.so",
        "@/d1/libb.so",
        "@/l0/libb.so",
        "@/d0/up/d1/libb.so",
        "d1/libc1.so",
    ),
    *(
        "./liba.so",
        "<ld.so>",
        "ld-linux-x86-64.so.2",
        "libm.so.6",
        "",
        "libnowhere.so",
        "${PLATFORM}.so",
    ),
    *("$ORIGIN", "@/d2/sub/../sub/libe.so", "@/d0//libe.so", "$LIB", "libdl.so.2"),
)
KINDS = ("link", "link", "hardlink", "machine", "machine", "class", "dangling", "loop")
FATAL_KINDS = ("text", "short", "directory", "osabi", "abiversion", "pie", "exec", "empty", "truncated")
_WEIGHTED = ("library",) * 100 + KINDS + FATAL_KINDS


@dataclass(frozen=True)
class Node:
    """One file: a library, or instead of it a link, something foreign or something damaged."""

    directory: str
    name: str
    library: Library
    kind: str = "library"
    link: int = 0

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.name}"


@dataclass(frozen=True)
class Graph:
    nodes: tuple[Node, ...]
    program: str
    preloads: tuple[str, ...]
    roots: tuple[str, ...]
    library_path: tuple[str, ...]
    cwd: str


_NEEDED = st.one_of(*[st.sampled_from(NAMES)] * 9, st.sampled_from(ODD_NEEDED))
_ENTRY = st.one_of(*[st.sampled_from(COMMON_ENTRIES)] * 2, st.sampled_from(ENTRIES))
_ENTRIES = st.one_of(*[st.lists(_ENTRY, min_size=2, max_size=4)] * 4, st.lists(_ENTRY, max_size=1))


@st.composite
def _libraries(draw: st.DrawFn, name: str) -> Library:
    soname = draw(st.sampled_from((name, name, name, name, None, *NAMES)))
    search = draw(st.sampled_from(("runpath", "rpath", "runpath", "rpath", "both", "")))
    return Library(
        soname=soname,
        needed=tuple(draw(st.lists(_NEEDED, max_size=4))),
        rpath=":".join(draw(_ENTRIES)) if search in ("rpath", "both") else None,
        runpath=":".join(draw(_ENTRIES)) if search in ("runpath", "both") else None,
        flags_1=draw(st.sampled_from((*(0,) * 20, DF_1_NODEFLIB, DF_1_NOOPEN))),
    )


@st.composite
def _nodes(draw: st.DrawFn) -> Node:
    directory = draw(st.one_of(*[st.sampled_from(DIRECTORIES[:3])] * 2, st.sampled_from(DIRECTORIES)))
    name = draw(st.sampled_from(NAMES))
    kind = draw(st.sampled_from(_WEIGHTED))
    library = draw(_libraries(name)) if kind == "library" else Library(soname=name)
    return Node(directory, name, library, kind, draw(st.integers(0, 9)) if "link" in kind else 0)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Draw a world of 2 to 12 files; the first is always a library, so that there is something to load."""
    first = draw(st.sampled_from(NAMES))
    main = draw(_libraries(first))
    if not main.needed:
        main = dataclasses.replace(main, needed=(draw(st.sampled_from(NAMES)),))
    top = Node("d0", first, dataclasses.replace(main, flags_1=main.flags_1 & DF_1_NODEFLIB))
    count = draw(st.integers(2, 11))
    nodes = [top, *draw(st.lists(_nodes(), min_size=count, max_size=count, unique_by=lambda node: node.path))]
    nodes = [top, *(node for node in nodes[1:] if node.path != top.path)]
    usable = [
        f"@/{node.path}" for node in nodes if node.kind == "library" and node.library.flags_1 != DF_1_NOOPEN
    ]
    usable += [path.replace("@/d1/", "@/l0/").replace("@/d0/", "@/d1/../abs/") for path in usable]
    several = st.lists(st.sampled_from(usable), min_size=1, max_size=3)
    return Graph(
        tuple(nodes),
        draw(st.sampled_from((f"@/{top.path}", f"@/abs/{first}", f"../d0/{first}"))),
        tuple(draw(several)),
        tuple(draw(several)),
        tuple(draw(_ENTRIES)) if draw(st.integers(0, 3)) == 0 else (),
        "cwd",
    )


def fill(text: str, world: Path, target: Target) -> str:
    """Put this world and this loader into a string of a graph."""
    return (
        text.replace("@", str(world))
        .replace("%", target.lib)
        .replace("^", target.subdirectories[0])
        .replace("<ld.so>", target.interpreter)
    )


def write(graph: Graph, world: Path, target: Target) -> None:
    """Build the files of `graph`."""
    for name in DIRECTORIES:
        (world / fill(name, world, target)).mkdir(parents=True, exist_ok=True)
    for name, link in LINKS.items():
        (world / name).symlink_to(fill(link, world, target))
    (world / "cwd/file").write_text("not a directory")
    for node in graph.nodes:
        path = world / fill(node.path, world, target)
        if not os.path.lexists(path):
            _write(node, graph, path, world, target)


def _write(node: Node, graph: Graph, path: Path, world: Path, target: Target) -> None:
    other = world / fill(graph.nodes[node.link % len(graph.nodes)].path, world, target)
    library = node.library
    match node.kind:
        case "library":
            _filled(library, world, target).write(path)
        case "link":
            path.symlink_to(other if node.link % 2 else os.path.relpath(other, path.parent))
        case "hardlink":
            if other.is_file() and not other.is_symlink():
                os.link(other, path)
        case "dangling":
            path.symlink_to("nothing")
        case "loop":
            path.symlink_to(path.name)
        case "text":
            path.write_text("INPUT(libsomething.so.1) /* " + "long enough for an ELF header " * 3 + "*/")
        case "short":
            path.write_bytes(b"\x7fELF\x02\x01\x01")
        case "empty":
            path.write_bytes(b"")
        case "directory":
            path.mkdir()
        case "truncated":
            library.write(path)
            path.write_bytes(path.read_bytes()[:70])
        case _:
            dataclasses.replace(library, **_FOREIGN[node.kind]).write(path)


_FOREIGN: dict[str, dict[str, Any]] = {
    "machine": {"machine": EM_AARCH64},
    "class": {"machine": 3, "elf_class": 32},
    "osabi": {"osabi": 9},
    "abiversion": {"abi_version": 1},
    "pie": {"flags_1": DF_1_PIE},
    "exec": {"kind": ET_EXEC},
}


def _filled(library: Library, world: Path, target: Target) -> Library:
    return dataclasses.replace(
        library,
        needed=tuple(fill(name, world, target) for name in library.needed),
        rpath=None if library.rpath is None else fill(library.rpath, world, target),
        runpath=None if library.runpath is None else fill(library.runpath, world, target),
    )
