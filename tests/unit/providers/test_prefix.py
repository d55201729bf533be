"""providers.prefix: which directories count, what is passed over and why, what says which ROCm it is, and packages in one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from relink.elf.image import Header
from relink.loader.target import Target
from relink.providers import prefix
from relink.providers.prefix import (
    InstalledPackage,
    Provider,
    find_link_target,
    leave_out_package,
    major_minor,
    make_tree_provider,
    open_prefix,
    soname_stem,
)
from relink.system.errors import ProviderError
from relink.vendors.rocm.places import release_of
from tests.support.elf_builder import EM_386, EM_AARCH64, ET_EXEC, Library, build

HIP = "libamdhip64.so.7"


def target(sysroot: Path | str = "/", machine: int = 62) -> Target:
    return Target(
        interpreter="/lib64/ld-linux-x86-64.so.2",
        sysroot=str(sysroot),
        header=Header(64, little_endian=True, osabi=0, abi_version=0, kind=3, machine=machine),
        glibc="2.36",
        directories=("/lib",),
        subdirectories=(),
        lib="lib",
        platform="",
        cache=None,
        cache_path="/etc/ld.so.cache",
        python=None,
    )


def library(path: Path, **facts: int) -> Path:
    return Library(path.name, **facts).write(path)  # type: ignore[arg-type]


def opened(path: Path | str, sysroot: Path | str = "/", machine: int = 62) -> Provider:
    return open_prefix(str(path), target(sysroot, machine))


def below(provider: Provider) -> list[str]:
    """The directories, relative to the prefix."""
    return [os.path.relpath(directory, provider.path) for directory in provider.directories]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path.resolve()


# Directories


def test_the_directories_that_count(here: Path) -> None:
    """DIR, lib, lib64, the triplet, one level below each, and the lib of that level."""
    places = [".", "lib", "lib64", "lib/x86_64-linux-gnu"]
    places += ["hip", "hip/lib", "lib/migraphx", "lib/migraphx/lib", "lib/llvm/lib", "lib64/sub/lib"]
    places += ["lib/x86_64-linux-gnu/plugins"]
    for number, place in enumerate(places):
        library(here / place / f"lib{number}.so")
    for place in ("lib/llvm/lib/deeper", "hip/other/lib", "hip/lib/sub/lib", "lib/aarch64-linux-gnu/sub/sub"):
        library(here / place / "libno.so")
    provider = opened(here)
    assert below(provider)[:4] == places[:4]
    assert sorted(below(provider)) == sorted(places)
    assert provider.find("libno.so") is None
    assert provider.find("lib9.so") == f"{here}/lib64/sub/lib/lib9.so"
    assert (provider.kind, provider.path) == ("prefix", str(here))


def test_the_triplet_is_the_targets(here: Path) -> None:
    library(here / "lib/aarch64-linux-gnu/liba.so", machine=EM_AARCH64)
    library(here / "lib/x86_64-linux-gnu/sub/lib/libb.so")
    library(here / "lib/aarch64-linux-gnu/sub/libc.so", machine=EM_AARCH64)
    provider = opened(here, machine=EM_AARCH64)
    assert below(provider) == ["lib/aarch64-linux-gnu", "lib/aarch64-linux-gnu/sub"]


def test_a_library_in_several_directories(here: Path) -> None:
    for place in ("lib64", "lib/sub", "lib", "."):
        library(here / place / HIP)
    provider = opened(here)
    assert provider.libraries[HIP] == tuple(
        f"{here}/{place}{HIP}" for place in ("", "lib/", "lib64/", "lib/sub/")
    )
    assert provider.find(HIP) == f"{here}/{HIP}"


def test_lib64_that_is_a_link_to_lib_counts_once(here: Path) -> None:
    library(here / "lib" / HIP)
    (here / "lib64").symlink_to("lib")
    provider = opened(here)
    assert below(provider) == ["lib"]
    assert provider.libraries[HIP] == (f"{here}/lib/{HIP}",)


def test_links_that_lead_in_circles(here: Path) -> None:
    library(here / "lib" / HIP)
    (here / "lib/up").symlink_to("..")
    (here / "lib/self").symlink_to("self")
    (here / "lib/libself.so.1").symlink_to("libself.so.1")
    (here / "lib/libgone.so.1").symlink_to("nowhere")
    provider = opened(here)
    assert below(provider) == ["lib"]
    reasons = {os.path.basename(one.path): one.reason for one in provider.skipped}
    assert reasons == {
        "libself.so.1": "Too many levels of symbolic links",
        "libgone.so.1": "No such file or directory",
    }


def test_a_symlinked_prefix_is_kept_as_given(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library(here / "rocm-7.2.4/lib" / HIP)
    (here / "rocm").symlink_to("rocm-7.2.4")
    for given in (here / "rocm", f"{here}/./x/../rocm/"):
        provider = opened(given)
        assert provider.path == f"{here}/rocm"
        assert provider.find(HIP) == f"{here}/rocm/lib/{HIP}"
    monkeypatch.chdir(here)
    assert opened("rocm").find(HIP) == f"{here}/rocm/lib/{HIP}"


def test_a_linked_subdirectory(here: Path) -> None:
    library(here / "elsewhere/libx.so.1")
    library(here / "prefix/lib" / HIP)
    (here / "prefix/lib/extra").symlink_to(here / "elsewhere")
    assert opened(here / "prefix").find("libx.so.1") == f"{here}/prefix/lib/extra/libx.so.1"


def test_names_that_are_libraries(here: Path) -> None:
    names = ["libx.so", "libx.so.1", "libx.so.1.2.3", "lib-y+z.so.0d", "libx.so.1.debug"]
    others = ["x.so", "libx.a", "libx.so_old", "lib.so", "libx", "notlibx.so", "libx.SO"]
    for name in names + others:
        library(here / "lib" / name)
    assert sorted(opened(here).libraries) == sorted(names)


# What is passed over


def fifo(path: Path) -> None:
    os.mkfifo(path)


def text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


def built(**facts: int) -> Callable[[Path], object]:
    return lambda path: library(path, **facts)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (text("/* GNU ld script */ INPUT(libx.so.1)"), "a linker script, not a library"),
        (text("INPUT(-lx)"), "a linker script, not a library"),
        (text("GROUP ( libx.so.1 )"), "a linker script, not a library"),
        (text("OUTPUT_FORMAT(elf64-x86-64)"), "a linker script, not a library"),
        (text("#!/bin/sh"), "not an ELF file (no ELF magic)"),
        (text(""), "not an ELF file (file too short)"),
        (text("\x7fELF"), "not an ELF file (file too short)"),
        (built(machine=EM_AARCH64), "for another machine (aarch64, 64 bit)"),
        (built(machine=EM_386, elf_class=32), "for another machine (i386, 32 bit)"),
        (built(machine=62, elf_class=32), "for another machine (x86_64, 32 bit)"),
        (
            lambda path: path.write_bytes(big_endian()),
            "for another machine (x86_64, 64 bit, big endian)",
        ),
        (built(osabi=9), "for another system (OSABI 9)"),
        (built(kind=ET_EXEC), "not a shared library (ELF type 2)"),
        (fifo, "not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "not a regular file"),
    ],
)
def test_what_cannot_be_loaded_is_passed_over_with_the_reason(
    here: Path, make: Callable[[Path], object], reason: str
) -> None:
    library(here / "lib" / HIP)
    make(here / "lib/libx.so.1")
    provider = opened(here)
    assert [(one.path, one.reason) for one in provider.skipped] == [(f"{here}/lib/libx.so.1", reason)]
    assert list(provider.libraries) == [HIP]


def big_endian() -> bytes:
    data = bytearray(build(Library("libx.so.1")))
    data[5] = 2
    data[16:20] = bytes((0, 3, 0, 62))
    return bytes(data)


def test_gnu_osabi_is_fine(here: Path) -> None:
    library(here / "lib" / HIP, osabi=3)
    assert opened(here).find(HIP)


def test_files_that_cannot_be_read(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library(here / "lib" / HIP)
    library(here / "lib/libsecret.so.1")
    (here / "lib/sub").mkdir()
    real_open, real_scan = os.open, os.scandir

    def refuse(path: str, flags: int) -> int:
        if path.endswith("libsecret.so.1"):
            raise PermissionError(13, "Permission denied", path)
        return real_open(path, flags)

    def scan(path: str) -> object:
        if path.endswith("/sub"):
            raise PermissionError(13, "Permission denied", path)
        return real_scan(path)

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(os, "scandir", scan)
    provider = opened(here)
    assert [(one.path, one.reason) for one in provider.skipped] == [
        (f"{here}/lib/libsecret.so.1", "Permission denied")
    ]
    assert below(provider) == ["lib"]


def test_a_directory_under_a_library_s_name(here: Path) -> None:
    library(here / "lib" / HIP)
    library(here / "lib/libdir.so.1/libin.so")
    provider = opened(here)
    assert provider.skipped == ()
    assert below(provider) == ["lib", "lib/libdir.so.1"]


def test_prefixes_that_are_none(here: Path) -> None:
    (here / "loop").symlink_to("loop")
    (here / "file").touch()
    for name in ("none", "loop", "file"):
        with pytest.raises(ProviderError, match=f"^--prefix {here}/{name}: no such directory; name the dir"):
            opened(here / name)
    (here / "lib").mkdir()
    (here / "lib/libx.so").write_text("INPUT(-lx)")
    with pytest.raises(ProviderError, match="no shared library for x86_64 in it or in its lib/") as caught:
        opened(here)
    assert caught.value.issues == (f"{here}/lib/libx.so: a linker script, not a library",)


@pytest.mark.parametrize("link", [True, False])
def test_a_directory_above_several_releases_is_no_prefix(here: Path, link: bool) -> None:
    """/opt with two releases, and the link to one of them: what is taken of it would be of both."""
    for release in ("6.4.3", "7.2.4"):
        library(here / f"rocm-{release}" / "lib" / HIP)
    if link:
        (here / "rocm").symlink_to("rocm-7.2.4")
    both = " or ".join(f"--prefix {here}/rocm-{release}" for release in ("6.4.3", "7.2.4"))
    with pytest.raises(ProviderError, match=f"pass {both}$"):
        opened(here)
    (here / "hip-link").symlink_to(here / "rocm-7.2.4/lib")
    assert below(opened(here)) == ["hip-link"], "a link to anything else is followed"


def test_where_a_link_leads(here: Path) -> None:
    library(here / "opt/rocm-7.2.4/lib" / HIP)
    (here / "etc").mkdir()
    (here / "etc/rocm").symlink_to(here / "opt/rocm-7.2.4")
    (here / "opt/rocm").symlink_to(here / "etc/rocm")
    (here / "opt/loop").symlink_to("loop")
    (here / "above").symlink_to("opt")
    assert find_link_target(f"{here}/opt/rocm", "/") == f"{here}/opt/rocm-7.2.4"
    for name in ("opt/rocm-7.2.4", "none", "above/rocm-7.2.4"):
        assert find_link_target(f"{here}/{name}", "/") is None
    (here / "opt/inside").symlink_to("/opt/rocm-7.2.4")
    assert find_link_target("/opt/inside", str(here)) == "/opt/rocm-7.2.4"
    assert find_link_target("/opt/loop", str(here)) is None


# Asking a provider


def test_more_entries_than_any_prefix_has(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all directories together, whatever they are; one entry less is fine."""
    assert prefix.MOST_ENTRIES == 100_000
    for number in range(10):
        library(here / f"lib/sub{number % 3}/lib{number}.so")
        (here / f"lib/sub{number % 3}/{number}.txt").touch()
    monkeypatch.setattr(prefix, "MOST_ENTRIES", 24)  # lib, three directories, and what is in them
    assert len(opened(here).libraries) == 10
    (here / "lib/sub2/more").mkdir()
    with pytest.raises(ProviderError, match="more than 24 files and directories to look at") as caught:
        opened(here)
    assert f"--prefix {here}: " in caught.value.message
    assert f"in {here}/lib/sub2; name the directory that holds lib/" in caught.value.message


def test_holds(here: Path) -> None:
    library(here / "lib" / HIP)
    provider = opened(here)
    assert provider.holds(f"{here}/lib/anything")
    assert provider.holds(f"{here}/lib/../lib//./anything")
    assert not provider.holds(f"{here}/lib")
    assert not provider.holds(f"{here}/lib64/{HIP}")


def test_nearest(here: Path) -> None:
    for name in (
        "librocm_smi64.so.7",
        "librocm_smi64.so",
        "librocm_smi64.so.7.8",
        "librocm_smi.so.1",
        "libx.so",
    ):
        library(here / "lib" / name)
    provider = opened(here)
    assert provider.nearest("librocm_smi64.so.1") == (
        "librocm_smi64.so",
        "librocm_smi64.so.7",
        "librocm_smi64.so.7.8",
    )
    assert provider.nearest("libx.so") == ()
    assert provider.nearest("libnone.so.1") == ()


@pytest.mark.parametrize(
    ("soname", "stem"),
    [
        ("librocm_smi64.so.1", "librocm_smi64.so"),
        ("libx.so", "libx.so"),
        ("libx.solver.so.2", "libx.solver.so"),
        ("libx.so.1.so.2", "libx.so"),
        ("ld-linux-x86-64.so.2", "ld-linux-x86-64.so"),
        ("libx", "libx"),
        ("libx.sort", "libx.sort"),
        ("", ""),
        (".so", ".so"),
    ],
)
def test_stems(soname: str, stem: str) -> None:
    assert soname_stem(soname) == stem


# A sysroot


def test_a_prefix_in_a_sysroot_from_outside_and_from_inside(here: Path) -> None:
    root = here / "root"
    library(root / "opt/rocm-7/lib" / HIP)
    (root / "opt/rocm").symlink_to("/opt/rocm-7")
    for given in ("/opt/rocm", root / "opt/rocm"):
        provider = opened(given, root)
        assert provider.path == "/opt/rocm"
        assert provider.directories == ("/opt/rocm/lib",)
        assert provider.find(HIP) == f"/opt/rocm/lib/{HIP}"


def test_the_sysroot_itself_as_the_prefix(here: Path) -> None:
    library(here / "root/lib" / HIP)
    provider = opened(here / "root", here / "root")
    assert (provider.path, provider.find(HIP)) == ("/", f"/lib/{HIP}")
    library(here / "root/ed/lib" / HIP)
    library(here / "rooted/lib" / HIP)  # a name that only starts like the sysroot's is not inside of it
    with pytest.raises(ProviderError, match="no such directory"):
        opened(here / "rooted", here / "root")


def test_a_link_loop_in_a_sysroot(here: Path) -> None:
    library(here / "lib" / HIP)
    (here / "loop").symlink_to("/loop")
    (here / "lib/sub").symlink_to("/loop")
    with pytest.raises(ProviderError, match=r"^--prefix /loop: no such directory"):
        opened("/loop", here)
    assert opened("/", here).directories == ("/lib",)


def test_links_in_a_sysroot_are_followed_inside(here: Path) -> None:
    root = here / "root"
    library(root / "opt/rocm/lib/libamdhip64.so.7.2.70204")
    library(root / "usr/share/rocm/libextra.so.1")
    (root / "opt/rocm/lib" / HIP).symlink_to("/opt/rocm/lib/libamdhip64.so.7.2.70204")
    (root / "opt/rocm/lib64").symlink_to("/usr/share/rocm")
    (root / "opt/rocm/lib/sub").symlink_to("/usr/share")
    library(root / "usr/share/lib/libsub.so.1")
    (root / "opt/rocm/.info").symlink_to("/usr/share/info")
    provider = opened("/opt/rocm", root)
    assert provider.find(HIP) == f"/opt/rocm/lib/{HIP}"
    assert provider.find("libextra.so.1") == "/opt/rocm/lib64/libextra.so.1"
    assert provider.find("libsub.so.1") == "/opt/rocm/lib/sub/lib/libsub.so.1"
    rocm = release_of(provider, str(root))
    assert rocm
    assert (rocm.release, rocm.evidence) == ("7.2.4", "libamdhip64.so.7.2.70204")
    (root / "usr/share/info").mkdir()
    (root / "usr/share/info/version").write_text("7.2.5-1")
    again = release_of(opened("/opt/rocm", root), str(root))
    assert again
    assert (again.release, again.evidence) == ("7.2.5", ".info/version")


def test_a_tree_serves_itself(tmp_path: Path) -> None:
    """By the names of its files and links, those less deep first; a link that leads nowhere serves nothing."""
    (tmp_path / "lib/deep").mkdir(parents=True)
    for name in ("lib/libx.so.1.0", "lib/deep/libx.so.1", "z.so", "lib/program"):
        (tmp_path / name).touch()
    (tmp_path / "lib/libx.so.1").symlink_to("libx.so.1.0")
    (tmp_path / "lib/libgone.so").symlink_to("nowhere")
    names = (
        "lib/deep/libx.so.1",
        "lib/libgone.so",
        "lib/libx.so.1",
        "lib/libx.so.1.0",
        "lib/program",
        "z.so",
    )
    found = make_tree_provider(str(tmp_path), names)
    assert found.directories == (str(tmp_path), f"{tmp_path}/lib", f"{tmp_path}/lib/deep")
    assert found.libraries == {
        "libx.so.1": (f"{tmp_path}/lib/libx.so.1", f"{tmp_path}/lib/deep/libx.so.1"),
        "libx.so.1.0": (f"{tmp_path}/lib/libx.so.1.0",),
        "z.so": (f"{tmp_path}/z.so",),
    }


HIP_FILE, MATH_FILE = "/site/_hip/lib/libhip.so.7", "/site/math_libs/libmath.so.3"
WITH_PACKAGES = Provider(
    "site-packages",
    "/site",
    ("/site/_hip/lib", "/site/math_libs"),
    {"libhip.so.7": (HIP_FILE,), "libmath.so.3": (MATH_FILE,)},
    packages=(InstalledPackage("hip", "7.2", "_hip"), InstalledPackage("Math_libs", "2.0", "math_libs")),
)


def test_without_the_package_that_is_being_relinked() -> None:
    left = leave_out_package(WITH_PACKAGES, "math-libs")
    assert left.find("libmath.so.3") is None
    assert left.find("libhip.so.7") == HIP_FILE
    assert left.directories == ("/site/_hip/lib",)
    assert [item.name for item in left.packages] == ["hip"]
    assert leave_out_package(WITH_PACKAGES, "demo") is WITH_PACKAGES


@pytest.mark.parametrize(
    ("version", "expected"),
    [("7.2.4", "7.2"), ("10.1", "10.1"), ("7.2.0rc1", "7.2"), ("unknown", "unknown"), ("9" * 5000,) * 2],
)
def test_series(version: str, expected: str) -> None:
    assert major_minor(version) == expected
