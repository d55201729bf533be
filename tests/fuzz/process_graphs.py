"""Processes: what programs open by dlopen in the worlds of :mod:`tests.fuzz.graphs`, with symbols in the libraries."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from relink.loader.process import Dlopen
from tests.fuzz.graphs import DIRECTORIES, NAMES, Graph, graphs
from tests.support.elf_builder import GLOBAL, WEAK, Export, Import, Library
from tests.support.real_process import CODE

SYMBOLS = ("x", "y", "z", "w")
VERSIONS = ("V_1", "V_2")
UNIQUE = 10
STORIES = 8
PROGRAMS = ("plain", "rpath", "runpath")
_GLOB_DAT, _64, _JUMP_SLOT = 6, 1, 7
_DT_SYMBOLIC = (16, 0)


@dataclass(frozen=True)
class Story:
    """What happens in a process; `@` stands for the directory of the world.

    :ivar program: one of PROGRAMS; `preloads`: LD_PRELOAD; `library_path`: LD_LIBRARY_PATH; `events`: what it opens.
    """

    program: str
    preloads: tuple[str, ...]
    library_path: tuple[str, ...]
    events: tuple[Dlopen, ...]


@st.composite
def _with_symbols(draw: st.DrawFn, library: Library, *, unique: bool) -> Library:
    """Draw what a library exports and imports.

    :param unique: STB_GNU_UNIQUE symbols. Then no strong import fails: which of the other symbols were looked up before that
        depends on the order of the relocations, which is not simulated. For the same reason nothing is DT_SYMBOLIC.
    """
    versioned = not unique and draw(st.booleans())
    exports: dict[str, Export] = {}
    for name in draw(st.lists(st.sampled_from(SYMBOLS), max_size=4, unique=True)):
        version = draw(st.sampled_from((None, *VERSIONS))) if versioned else None
        binding = draw(st.sampled_from((GLOBAL, WEAK, UNIQUE, UNIQUE) if unique else (GLOBAL, GLOBAL, WEAK)))
        exports[name] = Export(name, version, binding=binding)
    # What it needs by a plain name has that name when its version records are checked.
    files = [name for name in library.needed if name in NAMES]
    imports = []
    for name in draw(st.lists(st.sampled_from(SYMBOLS), max_size=4, unique=True)):
        version = draw(st.sampled_from((None, *VERSIONS))) if files and not unique else None
        strong = not unique and draw(st.integers(0, 7)) == 0
        relocation = draw(st.sampled_from((_GLOB_DAT, _64, _JUMP_SLOT)))
        blamed = draw(st.sampled_from(files)) if version else None
        imports.append(Import(name, version, blamed, GLOBAL if strong else WEAK, relocation))
    pairs = [(item.file, item.version) for item in imports if item.file and item.version]
    weak = tuple(pair for pair in pairs if draw(st.booleans()))
    symbolic = not unique and draw(st.integers(0, 9)) == 0
    return replace(
        library,
        exports=tuple(exports.values()),
        imports=tuple(imports),
        versions=draw(st.sampled_from((VERSIONS, VERSIONS[:1]))) if versioned else (),
        weak_versions=weak,
        entries=(_DT_SYMBOLIC,) if symbolic else (),
        code=CODE,
    )


@st.composite
def _mended(draw: st.DrawFn, library: Library, there: frozenset[str]) -> Library:
    """Let a library need only what is there, and look in all directories, so that most of what is opened loads."""
    more = ":".join(draw(st.permutations(("@/d0", "@/d1", "@/d2/sub"))))
    kind = draw(st.sampled_from(("rpath", "runpath")))
    own = library.runpath if library.runpath is not None else library.rpath
    path = more if not own or draw(st.booleans()) else f"{own}:{more}"
    return replace(
        library,
        needed=tuple(name for name in library.needed if name in there),
        rpath=path if kind == "rpath" else None,
        runpath=path if kind == "runpath" else None,
    )


@st.composite
def process_graphs(draw: st.DrawFn) -> tuple[Graph, tuple[Story, ...]]:
    """Draw a world, and STORIES processes in it."""
    world = draw(graphs())
    unique = draw(st.integers(0, 3)) == 0
    found = [node for node in world.nodes if node.kind == "library" and node.directory in DIRECTORIES[:3]]
    there = frozenset(node.name for node in found)
    nodes = []
    for node in world.nodes:
        library = node.library
        if node.kind == "library":
            library = library if draw(st.integers(0, 9)) == 0 else draw(_mended(library, there))
            library = draw(_with_symbols(library, unique=unique))
        nodes.append(replace(node, library=library))
    paths = [f"@/{node.path}" for node in nodes]
    paths += [path.replace("@/d1/", "@/l0/").replace("@/d0/", "@/d1/../abs/") for path in paths]
    names = st.one_of(
        *[st.sampled_from([f"@/{node.path}" for node in found])] * 4,
        st.sampled_from(paths),
        *[st.sampled_from(sorted(there))] * 2,
        st.sampled_from(_ODD),
    )
    stories = tuple(draw(_stories(names, paths)) for _ in range(STORIES))
    return replace(world, nodes=tuple(nodes)), stories


@st.composite
def _stories(draw: st.DrawFn, names: st.SearchStrategy[str], paths: list[str]) -> Story:
    """Draw a process with 1 to 8 calls of dlopen; `paths`: of all files."""
    events: list[Dlopen] = []
    for _ in range(draw(st.integers(1, 8))):
        flags = os.RTLD_NOW
        for flag, of in ((os.RTLD_GLOBAL, 2), (os.RTLD_NOLOAD, 15), (os.RTLD_DEEPBIND, 9)):
            flags |= flag if draw(st.integers(0, of)) == 0 else 0
        # Only what is mapped can be a caller, and what was opened before is that if nothing was wrong.
        opened = [event.name for event in events if "/" in event.name]
        caller = draw(st.sampled_from((*("",) * 6, *opened, *opened, *paths[:1])))
        events.append(Dlopen(draw(names), flags, caller))
    preloads = draw(st.lists(st.sampled_from((*paths, *NAMES)), max_size=2)) if draw(st.booleans()) else []
    places = st.sampled_from(("@/d0", "@/d1", "@/d2/sub", "$ORIGIN/w/d0", "@/nowhere", ""))
    library_path = draw(st.lists(places, max_size=3)) if draw(st.booleans()) else []
    return Story(draw(st.sampled_from(PROGRAMS)), tuple(preloads), tuple(library_path), tuple(events))


_ODD = ("$ORIGIN/liba.so", "libm.so.6", "libnowhere.so", "@/nowhere/liba.so", "../d0/libb.so", "@/l1/libe.so")
