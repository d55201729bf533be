"""Whose HIP runtime takes related processors' code, by where it comes from."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import pytest

from relink.providers.nix_store import NIX_STORE
from relink.providers.prefix import Provider
from relink.vendors.rocm.extended_isa import extended_by
from tests.support.cc import shared

HASH = "0123456789abcdfghijklmnpqrsvwxyz"


def provider(path: Path, kind: str = "prefix") -> Provider:
    libraries = MappingProxyType({path.name: (str(path),)})
    return Provider(kind, str(path.parent.parent), (str(path.parent),), libraries)


@pytest.mark.parametrize(("name", "whose"), [("clr-7.2.3", "nixpkgs' HIP"), ("rocm-7.2.3", None)])
def test_of_a_store(name: str, whose: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIX_STORE_DIR", str(tmp_path))
    (tmp_path / f"{HASH}-{name}" / "lib").mkdir(parents=True)
    found = provider(tmp_path / f"{HASH}-{name}" / "lib" / "libamdhip64.so.7", NIX_STORE)
    assert extended_by([found], "libamdhip64.so.7") == whose
    assert extended_by([found], "libamdhip64.so") == whose


@pytest.mark.parametrize(
    ("directory", "build", "whose"),
    [
        ("usr/lib/x86_64-linux-gnu", "6.1.40091", "Debian's HIP before 6.4.3"),
        ("usr/lib/x86_64-linux-gnu", "6.4.43484", None),
        ("usr/lib/x86_64-linux-gnu", "5.2.21153", None),
        ("opt/rocm-6.1.0/lib", "6.1.40091", None),
    ],
)
def test_of_debian(directory: str, build: str, whose: str | None, tmp_path: Path) -> None:
    real = tmp_path / directory / f"libamdhip64.so.{build}"
    real.parent.mkdir(parents=True)
    real.touch()
    link = real.with_name("libamdhip64.so.6")
    link.symlink_to(real.name)
    assert extended_by([provider(link)], "libamdhip64.so.6") == whose


PATCHED = """
static __attribute__((noinline)) int isGfx1030EquivalentProcessor(const char *name) { return name[6] >= '0' && name[6] < '7'; }
int takes(const char *name) { return isGfx1030EquivalentProcessor(name); }
"""


@pytest.mark.parametrize(
    ("source", "flags", "patched"),
    [
        (PATCHED, (), True),
        (PATCHED, ("-Wl,--strip-all",), False),
        ("int takes(const char *name) { return 0; }", (), False),
    ],
)
def test_the_functions_of_the_patch_in_the_library_itself(
    tmp_path: Path, source: str, flags: tuple[str, ...], patched: bool
) -> None:
    """Seen in a build of one's own that keeps local symbols."""
    hip = shared(tmp_path / "lib" / "libamdhip64.so.7", source, flags=list(flags))
    function = "isGfx1030EquivalentProcessor"
    whose = f"the HIP of {tmp_path}, which has the patch's function {function}" if patched else None
    assert extended_by([provider(hip)], "libamdhip64.so.7") == whose


def test_where_no_provider_has_it(tmp_path: Path) -> None:
    assert extended_by([provider(tmp_path / "librocblas.so.5")], "libamdhip64.so.7") is None
