"""Planted faults in compiled libraries: how they are compiled, traced, bound, and compared with the real loader."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.loader.binding import (
    Bindings,
    bind,
    by_symbol,
)
from relink.loader.closure import Closure
from relink.loader.search import Environment
from relink.loader.seen_files import Files
from relink.loader.tables import Tables
from tests.fuzz.real_binding import really_bind, simulated_bind
from tests.support.cc import shared
from tests.support.elf_builder import SUPPORTED, WHY_NOT

built = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)
HERE = ("-Wl,--enable-new-dtags", "-Wl,-rpath,$ORIGIN")


def compiled(
    path: Path, source: str = "", *, needed: Sequence[Path] = (), script: str = "", flags: Sequence[str] = ()
) -> Path:
    """Compile a library that finds the others beside it; `script` is a linker's version script."""
    more = list(flags)
    if script:
        mapping = path.with_suffix(".map")
        path.parent.mkdir(parents=True, exist_ok=True)
        mapping.write_text(script)
        more.append(f"-Wl,--version-script={mapping}")
    return shared(path, source, needed=needed, flags=(*HERE, *more))


def traced_and_bound(
    environment: Environment, path: Path, preloads: Sequence[Path] = (), *, assume: Sequence[str] = ()
) -> tuple[Closure, Bindings, Tables]:
    """Trace and bind; the real loader has to agree first."""
    fresh = replace(environment, files=Files())
    names = [str(item) for item in preloads]
    said, closure = simulated_bind(fresh, str(path), names, bindings=True)
    assert really_bind(fresh, str(path), names, bindings=True) == said
    tables = Tables(fresh.files, {})
    return closure, bind(closure, tables, assume=assume), tables


def supplier_of(
    closure: Closure, bindings: Bindings, path: Path, name: str, version: str | None = None
) -> str:
    """Return the file name of what a symbol of `path` binds to."""
    index = next(i for i, item in enumerate(closure.objects) if item.path == str(path))
    key = (index, name, version)
    target = by_symbol((*bindings.interposed, *bindings.bound)).get(key)
    assert target is not None
    return Path(closure.objects[target].path).name


FIVE = "".join(f"int same_{number}(void) {{ return {number}; }}" for number in range(5))
FIVE += "void _init(void) {}"  # which every library may have


def sonames(closure: Closure, indices: tuple[int, ...]) -> list[str | None]:
    return [closure.objects[index].image.soname for index in indices]
