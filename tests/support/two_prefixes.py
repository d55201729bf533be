"""A prefix that lacks a library, a second one that has it and more, and a wheel that needs it; compiled, with ROCm's names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from relink.planning.options import Options
from tests.support.cc import shared
from tests.support.wheels import make_wheel
from tests.support.works import TAG, VENDOR_PATH

HIP, HSA, RCCL, HELP = "libamdhip64.so.7", "libhsa-runtime64.so.1", "librccl.so.1", "libcollect.so.1"
BESIDE = "-Wl,--enable-new-dtags,-rpath,$ORIGIN"
"""A RUNPATH by which a library finds what lies beside it."""
USER = "extern int hipOne(void), ncclCount(void); int total(void){return hipOne() + 1000 * ncclCount();}"
_RCCL = "extern int hipOne(void), collect(void); int ncclCount(void){return 100 * hipOne() + collect();}"


@dataclass(frozen=True)
class TwoPrefixes:
    """The first has HIP and libcollect, and each answers 1. The second has librccl, and of the others copies that answer 2.

    :ivar wheel: one library; it needs HIP and librccl, and ``total()`` is 101001 where all but librccl is of the first.
    """

    root: Path
    first: Path
    second: Path
    wheel: Path

    def options(self, output: Path | str, **more: object) -> Options:
        chosen: dict[str, object] = {"prefixes": (str(self.first), str(self.second)), **more}
        return Options(output_directory=self.root / output, **chosen)  # type: ignore[arg-type]

    def put(self, path: Path, source: str, needed: Sequence[Path] = (), flags: Sequence[str] = ()) -> Path:
        """Compile a library in place of what is there."""
        path.unlink(missing_ok=True)
        return shared(path, source, needed=list(needed), flags=flags)

    def rccl(self, *flags: str, source: str = _RCCL, needed: Sequence[str] = (HIP, HELP)) -> Path:
        """Compile the second prefix's librccl, which needs what lies beside it."""
        lib = self.second / "lib"
        return self.put(lib / RCCL, source, [lib / name for name in needed], flags)

    def wheel_of(self, needed: Sequence[Path], source: str = USER, path: str = VENDOR_PATH) -> Path:
        """Make another wheel, of one library that needs what is named, in this order."""
        member = shared(self.root / "another" / "a.so", source, needed=list(needed), flags=[path])
        return make_wheel(self.root / "another", {"demo/__init__.py": b"", "demo/a.so": member}, tag=TAG)


def build_two_prefixes(root: Path) -> TwoPrefixes:
    first, second = root / "rocm", root / "second"
    for number, prefix in enumerate((first, second), 1):
        shared(prefix / "lib" / HIP, f"int hipOne(void){{return {number};}}")
        shared(prefix / "lib" / HELP, f"int collect(void){{return {number};}}")
        (prefix / ".info").mkdir()
        (prefix / ".info/version").write_text("7.2.4-1\n")
    library = shared(second / "lib" / RCCL, _RCCL, needed=[second / "lib" / HIP, second / "lib" / HELP])
    member = shared(root / "members/a.so", USER, needed=[first / "lib" / HIP, library], flags=[VENDOR_PATH])
    wheel = make_wheel(root, {"demo/__init__.py": b"", "demo/a.so": member}, tag=TAG)
    return TwoPrefixes(root, first, second, wheel)
