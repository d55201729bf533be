"""The table of architectures (``isa.toml``) as frozen objects, read once.

Installed, the table lies in ``relink/_profiles/rocm/``; in a source tree in ``profiles/rocm/`` beside the package.
"""

from __future__ import annotations

import functools
import tomllib
from typing import Any

import msgspec

from relink.system.errors import RelinkError
from relink.system.shipped_files import shipped_directory


class Processor(msgspec.Struct, frozen=True):
    """One GPU processor: its ELF machine number, the features its target id may name, and product names."""

    name: str
    mach: int
    features: tuple[str, ...] = ()
    products: tuple[str, ...] = ()


class Generic(msgspec.Struct, frozen=True):
    """One generic target and its members: processor → generic version in which it joined.

    :ivar unmapped: processors that its code is compiled for, though no released runtime takes it for them.
    """

    name: str
    mach: int
    features: tuple[str, ...]
    members: dict[str, int]
    unmapped: tuple[str, ...] = ()


class Workaround(msgspec.Struct, frozen=True):
    """A value of HSA_OVERRIDE_GFX_VERSION that makes the runtime treat `processors` as `stands_in`.

    :ivar patched: the HIP runtime of some distributions takes such code by itself.
    """

    override: str
    stands_in: str
    processors: tuple[str, ...]
    source: str
    patched: bool = False


class LibraryRole(msgspec.Struct, frozen=True):
    """What a ROCm library does on an architecture that it has no kernels for.

    :ivar stem: its file name up to ``.so``.
    :ivar missing: abort, error, or jit (it compiles them on first use).
    :ivar side: the kind of kernel files beside it (:mod:`relink.gpu.amd.side_files`), None where it uses none.
    :ivar optional: its callers can do without it.
    :ivar rebuild: the name of the project that would be rebuilt.
    """

    name: str
    stem: str
    missing: str
    side: str | None = None
    optional: bool = False
    rebuild: str = ""


class Runtime(msgspec.Struct, frozen=True):
    """From this HIP version (major, minor) on, the newest code object version that loads."""

    hip: tuple[int, int]
    code_object: int


class IsaTable(msgspec.Struct, frozen=True):
    """Everything of ``isa.toml``, with the look-ups that the rest of the package needs.

    :ivar falls_through: the HIP from which on the loader of kpack archives goes on to the next where one lacks a kernel.
    """

    processors: dict[str, Processor]
    generics: dict[str, Generic]
    workarounds: tuple[Workaround, ...]
    libraries: tuple[LibraryRole, ...]
    runtimes: tuple[Runtime, ...]
    machines: dict[int, str] = msgspec.field(default_factory=dict)
    families: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    falls_through: tuple[int, int] = (0, 0)

    def features(self, processor: str) -> tuple[str, ...] | None:
        """Return the features that `processor` (or a generic) has, None when it is unknown."""
        known = self.processors.get(processor) or self.generics.get(processor)
        return None if known is None else known.features

    def stand_in(self, processor: str) -> str | None:
        """Return the processor whose code a patched HIP runtime also takes for `processor`, or None."""
        rows = (row for row in self.workarounds if row.patched and processor in row.processors)
        return next((row.stands_in for row in rows), None)

    def families_of(self, processor: str) -> tuple[str, ...]:
        """Return the families that packages with device code of a processor may be named for, the narrowest first."""
        found = [family for family, starts in self.families.items() if processor.startswith(starts)]
        return tuple(sorted(found, key=lambda family: (len(self.families[family]), family)))

    def library(self, soname: str) -> LibraryRole | None:
        """Return the role of the library with this file name or soname (``librocblas.so.5``)."""
        stem = soname.partition(".so")[0]
        return next((role for role in self.libraries if role.stem == stem), None)


def load(data: dict[str, Any]) -> IsaTable:
    """Make a :class:`IsaTable` from the parsed TOML.

    :raises RelinkError: a key is missing or a machine number is named twice.
    """
    try:
        # Keys that are no fields say where a row is from.
        processors = {
            row["name"]: msgspec.convert(row | {"features": sorted(row.get("features", ()))}, Processor)
            for row in data["processors"]["table"]
        }
        joined = data["generics"]["joined"]
        generics = {
            row["name"]: msgspec.convert(
                row
                | {
                    "features": sorted(row.get("features", ())),
                    "members": {one: row.get("joined", {}).get(one, joined) for one in row["members"]},
                },
                Generic,
            )
            for row in data["generics"]["table"]
        }
        workarounds = msgspec.convert(
            [row | {"source": data["sources"][row["source"]]} for row in data["workarounds"]],
            tuple[Workaround, ...],
        )
        libraries = msgspec.convert(
            [{"rebuild": row["name"], **row} for row in data["libraries"]], tuple[LibraryRole, ...]
        )
        rows = {key: row for key, row in data.get("device_families", {}).items() if key != "source"}
        families = {family: tuple(starts) for family, starts in rows.items()}
        runtimes = tuple(
            Runtime((int(major), int(minor)), row["code_object"])
            for row in data["runtimes"]
            for major, minor in [row["hip"].split(".")]
        )
        major, minor = data["kpack"]["falls_through"].split(".")
        falls_through = (int(major), int(minor))
    except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise RelinkError(f"isa.toml: {error!r} is missing or malformed; reinstall relink") from error
    machines = {p.mach: p.name for p in processors.values()} | {g.mach: g.name for g in generics.values()}
    if len(machines) != len(processors) + len(generics):
        raise RelinkError("isa.toml: a machine number is named twice; reinstall relink")
    return IsaTable(processors, generics, workarounds, libraries, runtimes, machines, families, falls_through)


@functools.cache
def table() -> IsaTable:
    """Return the table shipped with relink.

    :raises RelinkError: the file is absent or damaged.
    """
    return load(tomllib.loads((shipped_directory("profiles") / "rocm/isa.toml").read_text(encoding="utf-8")))
