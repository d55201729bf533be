"""rocm.installation: what says which release a prefix holds."""

from __future__ import annotations

import gzip
import os
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType

import pytest
from msgspec.structs import replace

from relink.loader.target import find_target
from relink.providers.prefix import NIX_STORE, Provider, open_prefix
from relink.vendors.protocol import Release
from relink.vendors.rocm.installation import extended_by, release_of
from tests.support import therock
from tests.support.cc import shared
from tests.unit.providers.test_prefix import HIP, library, opened


def rocm_release(release: str, evidence: str) -> Release:
    return Release(release, evidence, f"rocm{release}")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path.resolve()


Evidence = Callable[[Path], object]


def written(name: str, content: str) -> Evidence:
    def write(root: Path) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)

    return write


def named(*names: str) -> Evidence:
    """A runtime of that file name, with the usual link to it."""

    def write(root: Path) -> None:
        for name in names:
            library(root / "lib" / name)
            link = root / "lib" / ".".join(name.split(".")[:3])
            if not link.exists():
                link.symlink_to(name)

    return write


def rocm_header(numbers: str, name: str = "include/rocm-core/rocm_version.h") -> Evidence:
    parts = zip(("MAJOR", "MINOR", "PATCH"), numbers.split("."), strict=False)
    lines = [f"#define ROCM_VERSION_{part}   {number}" for part, number in parts]
    return written(name, "/* ROCM_VERSION_MAJOR */\n" + "\n".join(lines) + "\n")


def hip_header(numbers: str) -> Evidence:
    major, minor = numbers.split(".")
    content = f"#define HIP_VERSION_MAJOR {major}\n  # define HIP_VERSION_MINOR {minor}\n#define HIP_VERSION_PATCH 53211\n"
    return written("include/hip/hip_version.h", content)


def changelog(version: str, package: str = "libamdhip64-7") -> Evidence:
    name = f"share/doc/{package}/changelog.Debian.gz"
    return written(name, f"rocm-hipamd ({version}) unstable; urgency=medium\n\n  * New upstream.\n")


def manifest(key: str, release: str) -> Evidence:
    return written(MANIFEST, f'{{"the_rock_commit": "", "{key}": "{release}"}}')


AMDS = "libamdhip64.so.7.14.60850-0000000"
HIP_7_2 = "libamdhip64.so.7.2.53211, inferred from HIP 7.2"
MANIFEST = "share/therock/therock_manifest.json"
CHANGELOG = "share/doc/libamdhip64-{}/changelog.Debian.gz"


@pytest.mark.parametrize(
    ("evidence", "release", "source"),
    [
        ([written(".info/version", "7.2.4-93\n")], "7.2.4", ".info/version"),
        ([written(".info/version", "\n6.4\n")], "6.4", ".info/version"),
        ([rocm_header("7.1.1")], "7.1.1", "include/rocm-core/rocm_version.h"),
        ([rocm_header("5.7.0", "include/rocm_version.h")], "5.7.0", "include/rocm_version.h"),
        ([changelog("6.1.2-3")], "6.1.2", CHANGELOG.format(7)),
        ([changelog("1:5.7.1~rc1-2")], "5.7.1", CHANGELOG.format(7)),
        (
            [changelog("7.2.0-1", "libamdhip64-7"), changelog("10.0.1-1", "libamdhip64-10")],
            "10.0.1",
            CHANGELOG.format(10),
        ),
        (
            [changelog("9.9.9-1", "libamdhip64-dev"), changelog("5.7.1-1", "libamdhip64-5")],
            "5.7.1",
            CHANGELOG.format(5),
        ),
        ([named("libamdhip64.so.6.2.60204")], "6.2.4", "libamdhip64.so.6.2.60204"),
        ([named("libamdhip64.so.6.2.60204-a1b2c3")], "6.2.4", "libamdhip64.so.6.2.60204-a1b2c3"),
        ([named("libamdhip64.so.6.2.60104")], "6.2", "libamdhip64.so.6.2.60104, inferred from HIP 6.2"),
        ([named("libamdhip64.so.7.2.53211")], "7.2", "libamdhip64.so.7.2.53211, inferred from HIP 7.2"),
        ([named("libamdhip64.so.6.2.53211", "libamdhip64.so.7.2.53211")], "7.2", HIP_7_2),
        ([named("libamdhip64.so.7.14.60850-0000000")], "7.14", f"{AMDS}, inferred from HIP 7.14"),
        ([named("libamdhip64.so.7.15.26333")], "10.0", "libamdhip64.so.7.15.26333, inferred from HIP 7.15"),
        ([hip_header("7.16")], "10.1", "include/hip/hip_version.h, inferred from HIP 7.16"),
        ([hip_header("7.17"), named("libamdhip64.so.7.17.1")], None, None),
        ([hip_header("7.2")], "7.2", "include/hip/hip_version.h, inferred from HIP 7.2"),
        ([named("librocm-core.so.1.0.71300")], "7.13.0", "librocm-core.so.1.0.71300"),
        ([named("librocm-core.so.1.0.100100")], "10.1.0", "librocm-core.so.1.0.100100"),
        ([manifest("rocm_package_version", "7.13.0rc1")], "7.13.0", MANIFEST),
        ([manifest("rocm_version", "10.1.0"), hip_header("7.14")], "10.1.0", MANIFEST),
        # the more exact and direct one wins
        ([written(".info/version", "7.2.4"), rocm_header("7.2.3")], "7.2.4", ".info/version"),
        ([rocm_header("7.2.3"), changelog("7.2.2-1")], "7.2.3", "include/rocm-core/rocm_version.h"),
        (
            [rocm_header("7.2.3", "include/rocm_version.h"), rocm_header("7.2.9")],
            "7.2.9",
            "include/rocm-core/rocm_version.h",
        ),
        ([changelog("7.2.2-1"), named("libamdhip64.so.6.2.60204")], "7.2.2", CHANGELOG.format(7)),
        ([named("libamdhip64.so.6.2.60204"), hip_header("7.2")], "6.2.4", "libamdhip64.so.6.2.60204"),
        # what says nothing is passed over
        ([written(".info/version", "unknown"), rocm_header("7.1")], None, None),
        (
            [written(".info/version", ""), hip_header("7.1")],
            "7.1",
            "include/hip/hip_version.h, inferred from HIP 7.1",
        ),
        ([named("libamdhip64.so.7"), named("libamdhip64.so.7.2")], None, None),
        ([], None, None),
    ],
)
def test_what_says_which_release_it_is(
    here: Path, evidence: list[Evidence], release: str | None, source: str | None
) -> None:
    library(here / "lib/libother.so.1")
    for one in evidence:
        one(here)
    rocm = release_of(opened(here))
    assert (rocm and rocm.release, rocm and rocm.evidence) == (release, source)


def test_evidence_that_is_damaged_or_not_a_file_does_not_stop_or_stall(here: Path) -> None:
    library(here / "lib" / HIP)
    (here / ".info").mkdir()
    os.mkfifo(here / ".info/version")
    (here / "include/hip").mkdir(parents=True)
    (here / "include/hip/hip_version.h").symlink_to("/dev/zero")
    (here / "include/rocm_version.h").mkdir()
    documents = here / "share/doc/libamdhip64-7"
    documents.mkdir(parents=True)
    whole = gzip.compress(os.urandom(300))
    for damage in (b"", b"no gzip", whole[:20] + b"\xff" * 40 + whole[60:], whole[:-9], whole[:5]):
        (documents / "changelog.Debian.gz").write_bytes(damage)
        assert release_of(opened(here)) is None
    bomb = gzip.compress(b"rocm (7.2.4-1)" + b"\n" * (64 << 20))
    (documents / "changelog.Debian.gz").write_bytes(bomb)
    tracemalloc.start()
    rocm = release_of(opened(here))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert rocm
    assert rocm.release == "7.2.4"
    assert peak < 4 << 20


EVIDENCE = {
    ".info/version": "10.1.0",
    "include/rocm-core/rocm_version.h": "10.1.0",
    "share/therock/therock_manifest.json": "10.1.0",
    "lib/librocm-core.so.1": "10.1.0",
    "lib/libamdhip64.so.7": "10.1",
    "include/hip/hip_version.h": "10.1",
}


@pytest.fixture(scope="module")
def tarball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return therock.tarball(tmp_path_factory.mktemp("tarball") / "rocm", "10.1.0")


@pytest.mark.parametrize("kind", EVIDENCE)
def test_each_single_kind_of_evidence_tells_the_release_of_a_tarball(
    tarball: Path, tmp_path: Path, kind: str
) -> None:
    root = shutil.copytree(tarball, tmp_path / "rocm", symlinks=True)
    for other in EVIDENCE:
        path = root / other
        if other == kind:
            continue
        if path.is_symlink():  # its real name says it
            real = path.resolve()
            path.unlink()
            real.rename(path)
        else:
            path.unlink()
    found = release_of(opened(root))
    assert found is not None
    assert found.release == EVIDENCE[kind]
    inferred = kind in ("lib/libamdhip64.so.7", "include/hip/hip_version.h")
    assert ("inferred from HIP 7.16" in found.evidence) == inferred


def test_links_of_opt_rocm_are_followed_to_what_says_the_release(tmp_path: Path) -> None:
    rocm = therock.native(tmp_path / "root", "7.14.0", "10.1.0")
    seen = replace(find_target(), sysroot=str(tmp_path / "root"))

    def release(path: str) -> Release | None:
        return release_of(open_prefix(path, seen), seen.sysroot)

    assert release("/opt/rocm") == rocm_release("10.1.0", "/opt/rocm/core-10.1/.info/version")
    assert release("/opt/rocm/core-7.14") == rocm_release("7.14.0", ".info/version")
    chosen = rocm / "core-10.1"
    shutil.rmtree(chosen / ".info")
    assert release("/opt/rocm") == rocm_release("10.1.0", "include/rocm-core/rocm_version.h")
    for gone in ("include", "share"):
        shutil.rmtree(chosen / gone)
    for soname in ("librocm-core.so.1", "libamdhip64.so.7"):
        real = (chosen / "lib" / soname).resolve()
        (chosen / "lib" / soname).unlink()
        real.rename(chosen / "lib" / soname)
    assert release("/opt/rocm") == rocm_release("10.1", "core-10.1")
    chosen.rename(rocm / "other")
    information = tmp_path / "root/var/lib/dpkg/info"
    information.mkdir(parents=True)
    for package in ("amdrocm-runtime10.1", "amdrocm-base10.1", "amdrocm-blas10.1-gfx1100", "amdrocm-base"):
        (information / f"{package}.list").touch()
    assert release("/opt/rocm/other") == rocm_release("10.1", "package amdrocm-base10.1")
    (information / "amdrocm-base7.14.list").touch()
    assert release("/opt/rocm/other") is None


# Whose HIP runtime takes related processors' code, by where it comes from

HASH = "0123456789abcdfghijklmnpqrsvwxyz"


def hip_of(path: Path, kind: str = "prefix") -> Provider:
    libraries = MappingProxyType({path.name: (str(path),)})
    return Provider(kind, str(path.parent.parent), (str(path.parent),), libraries)


def test_the_name_of_a_store_path_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nixpkgs' clr has the patch's functions; another package of that name, such as AMD's own build, may not have them."""
    monkeypatch.setenv("NIX_STORE_DIR", str(tmp_path))
    (tmp_path / f"{HASH}-clr-7.2.3" / "lib").mkdir(parents=True)
    found = hip_of(tmp_path / f"{HASH}-clr-7.2.3" / "lib" / "libamdhip64.so.7", NIX_STORE)
    assert extended_by([found], "libamdhip64.so.7") is None
    Path(found.find("libamdhip64.so.7") or "").write_bytes(b"\0isGfx1030EquivalentProcessor\0")
    assert "isGfx1030EquivalentProcessor" in (extended_by([found], "libamdhip64.so.7") or "")


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
    assert extended_by([hip_of(link)], "libamdhip64.so.6") == whose


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
    assert extended_by([hip_of(hip)], "libamdhip64.so.7") == whose


def test_where_no_provider_has_it(tmp_path: Path) -> None:
    assert extended_by([hip_of(tmp_path / "librocblas.so.5")], "libamdhip64.so.7") is None
