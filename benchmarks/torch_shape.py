"""A wheel with the graph of torch's: few libraries of one gigabyte, which all other members load, on a ROCm of many libraries.

Everything is compiled here. Device code is made up: of each MiB a quarter is random, a quarter is zero, and half takes 6 bits a
byte, so that deflate has work to do. Symbols have long names, as those of C++; a part of them is weak and defined in many
members, as templates are. Everything is the same in each run.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elftools.elf.elffile import ELFFile

from benchmarks.wheel_file import WheelFile
from tests.support.cc import shared
from tests.unit.gpu.amd.build import PAGE, code_object, hip, raw

MIB: Final = 1 << 20
_LARGE: Final = ("cpu", "hip", "hip_linalg")
_WEAK: Final = 200
"""Weak definitions that each member has, and all others, too."""
_SIX_BITS: Final = bytes(value & 63 for value in range(256))
_VERSIONS: Final = "hip_4.2 { global: *; };\n"


@dataclass(frozen=True)
class Shape:
    """How large the wheel is.

    :ivar large: MiB of device code in each of the three libraries that all members load.
    :ivar small: MiB of device code in each other member.
    :ivar members: ELF files, the three included.
    :ivar symbols: definitions in each of the three; other members define a hundredth and import a twentieth of them.
    :ivar libraries: of the ROCm.
    """

    large: int = 1024
    small: int = 27
    members: int = 60
    symbols: int = 60_000
    libraries: int = 40

    @property
    def size(self) -> int:
        """MiB of device code."""
        return self.large * len(_LARGE) + self.small * (self.members - len(_LARGE))


def _name(owner: str, number: int) -> str:
    return f"_ZN2at6native{len(owner)}{owner}11kernel_implERKNS_6TensorES4_N3c1010ScalarTypeE{number}"


def _source(defined: list[str], weak: list[str], imported: list[str]) -> str:
    """C source whose one statement is assembly: a compiler would take minutes for so many functions."""
    lines = [".text"]
    lines += [f".globl {name}\\n.type {name},@function\\n{name}: ret" for name in defined]
    lines += [f".weak {name}\\n.type {name},@function\\n{name}: ret" for name in weak]
    lines += [f"call {name}@PLT" for name in imported]
    return "\n".join(f'__asm__("{line}\\n");' for line in lines)


def _fatbin(mib: int) -> str:
    section = '.section .hip_fatbin,\\"a\\",@progbits'
    return f'\n__asm__("{section}\\n.p2align 12\\n.zero {mib * MIB}\\n.previous\\n");' if mib else ""


def _filled(path: Path) -> Path:
    """Write made-up device code over the zeros of .hip_fatbin: a bundle for one GPU in each MiB."""
    with path.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".hip_fatbin")
        if section is None:
            return path
        offset, size = section["sh_offset"], section["sh_size"]
    rng = random.Random(path.name)
    bundle = raw({hip("gfx1100"): code_object("gfx1100", size=MIB - PAGE)})
    head = bundle[: bundle.index(b"\x7fELF") + 64]
    with path.open("r+b") as file:
        for at in range(offset, offset + size - MIB + 1, MIB):
            file.seek(at)
            file.write(head + rng.randbytes(MIB // 4) + rng.randbytes(MIB // 2).translate(_SIX_BITS))
    return path


def make_prefix(place: Path, shape: Shape) -> Path:
    """Compile the ROCm: each library needs the next two, so that the first brings all; the last is the HIP runtime."""
    prefix = place / "rocm"
    (prefix / "lib").mkdir(parents=True)
    (prefix / ".info").mkdir()
    (prefix / ".info" / "version").write_text("7.2.0\n")
    script = place / "versions"
    script.write_text(_VERSIONS)
    for number in reversed(range(shape.libraries)):
        after = [number + 1, number + 2]
        needed = [prefix / "lib" / _soname(other) for other in after if other < shape.libraries]
        imported = [f"roc{number + 1}_call{item}" for item in range(300) if number + 1 < shape.libraries]
        source = _source([f"roc{number}_call{item}" for item in range(1000)], [], imported)
        flags = ["-Wl,-rpath,$ORIGIN", f"-Wl,--version-script={script}"]
        shared(prefix / "lib" / _soname(number), source, needed=needed, flags=flags)
    return prefix


def _soname(number: int) -> str:
    return f"libroc{number}.so.1"


def make_wheel(wheel: Path, prefix: Path, shape: Shape, roots: int = 0) -> None:
    """Write the wheel; one of its libraries at a time is on the disk beside it.

    :param roots: so many members more, of no device code, which share everything with the others.
    """
    with tempfile.TemporaryDirectory(dir=wheel.parent) as place, WheelFile(wheel) as file:
        for name, path in _libraries(Path(place), prefix, shape, roots):
            file.add(f"demo/lib/{name}", path)
            path.unlink()


def _libraries(place: Path, prefix: Path, shape: Shape, roots: int) -> Iterator[tuple[str, Path]]:
    """Compile each library twice: small, for the others to be linked with, and at its size."""
    rocm = [prefix / "lib" / _soname(0)]
    before: list[Path] = []
    weak = [_name("shared", item) for item in range(_WEAK)]
    flags = ["-Wl,-rpath,$ORIGIN:/opt/rocm-6.0.0/lib"]
    exported: list[str] = []

    def compiled(name: str, source: str, mib: int, needed: list[Path]) -> Path:
        return _filled(shared(place / "full" / name, source + _fatbin(mib), needed=needed, flags=flags))

    for owner in _LARGE:
        name = f"libtorch_{owner}.so"
        imported = exported[:: max(1, len(exported) // (shape.symbols // 4))]
        mine = [_name(owner, item) for item in range(shape.symbols)]
        source = _source(
            mine, weak, [*imported, *(f"roc{item}_call{item}" for item in range(min(10, shape.libraries)))]
        )
        linked = [*reversed(before), *rocm]
        small = shared(place / name, source, needed=linked, flags=flags)
        yield name, compiled(name, source, shape.large, linked)
        before.append(small)
        exported += mine
    for number in range(shape.members - len(_LARGE) + roots):
        name = f"member{number}.so"
        mine = [_name(f"member{number}", item) for item in range(shape.symbols // 100)]
        imported = exported[number :: max(1, len(exported) * 20 // shape.symbols)]
        mib = shape.small if number < shape.members - len(_LARGE) else 0
        yield name, compiled(name, _source(mine, weak, imported), mib, [*reversed(before), *rocm])
