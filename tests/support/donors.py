"""A prefix that lacks libraries, a second one that has them, and a wheel that needs them; compiled, with ROCm's names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from relink.options import Options
from tests.support.cc import shared
from tests.support.wheels import make_wheel
from tests.support.works import TAG, VENDOR_PATH

HIP, RCCL, HELP = "libamdhip64.so.7", "librccl.so.1", "libcollect.so.1"
LICENCE = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: 2016 Somebody
License: BSD-3-clause

Files: debian/*
Copyright: 2020 Somebody else
License: GPL-2
"""


@dataclass(frozen=True)
class Donors:
    """The prefix has HIP 7 alone. The donor has librccl, which needs libcollect, and both licences but libcollect's.

    :ivar wheel: one library; it needs HIP and librccl, and ``total()`` is 7 + 30 + 400.
    """

    root: Path
    prefix: Path
    donor: Path
    wheel: Path

    def options(self, output: Path | str, **more: object) -> Options:
        chosen: dict[str, object] = {"graft_from": (str(self.donor),), **more}
        return Options(
            prefixes=(str(self.prefix),),
            output_directory=self.root / output,
            **chosen,  # type: ignore[arg-type]
        )

    def put(
        self, name: str, source: str = "", needed: Sequence[Path] = (), flags: Sequence[str] = ()
    ) -> Path:
        """Put a library into the donor, in place of what is there."""
        path = self.donor / "lib" / name
        path.unlink(missing_ok=True)
        return shared(path, source, needed=list(needed), flags=flags)


def release(prefix: Path, version: str) -> None:
    (prefix / ".info").mkdir(parents=True, exist_ok=True)
    (prefix / ".info" / "version").write_text(f"{version}-1\n")


def licence(prefix: Path, package: str, text: str = LICENCE) -> Path:
    path = prefix / "share" / "doc" / package / "copyright"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def build_donors(root: Path) -> Donors:
    prefix, donor = root / "rocm", root / "second"
    hip = shared(prefix / "lib" / HIP, "int hipOne(void){return 7;}")
    release(prefix, "7.2.4")
    release(donor, "7.2.0")
    collect = shared(donor / "lib" / HELP, "int collect(void){return 400;}")
    rccl = "extern int hipOne(void), collect(void); int ncclCount(void){return 30 + collect() + hipOne() - hipOne();}"
    library = shared(donor / "lib" / RCCL, rccl, needed=[hip, collect])
    licence(donor, "librccl1")
    user = "extern int hipOne(void), ncclCount(void); int total(void){return hipOne() + ncclCount();}"
    flags = [VENDOR_PATH, "-Wl,--allow-shlib-undefined"]
    member = shared(root / "members" / "a.so", user, needed=[hip, library], flags=flags)
    wheel = make_wheel(root, {"demo/__init__.py": b"", "demo/a.so": member}, tag=TAG)
    return Donors(root, prefix, donor, wheel)
