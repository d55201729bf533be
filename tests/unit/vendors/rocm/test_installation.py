"""rocm.installation: what says which release a prefix holds."""

from __future__ import annotations

import gzip
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from relink.vendors.rocm.installation import release_of
from tests.unit.providers.test_prefix import HIP, library, opened


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
        ([named("libamdhip64.so.6.2.60104")], "6.2", "libamdhip64.so.6.2.60104"),
        ([named("libamdhip64.so.7.2.53211")], "7.2", "libamdhip64.so.7.2.53211"),
        ([named("libamdhip64.so.6.2.60204", "libamdhip64.so.7.2.53211")], "7.2", "libamdhip64.so.7.2.53211"),
        ([hip_header("7.2")], "7.2", "include/hip/hip_version.h"),
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
        ([written(".info/version", ""), hip_header("7.1")], "7.1", "include/hip/hip_version.h"),
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
