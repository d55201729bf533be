"""original: a wheel that is relinked for A and then for B is, to the byte, the vendor's wheel relinked for B."""

from __future__ import annotations

import os
import random
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

import relink
from relink import Options
from relink.original import open_contents
from relink.report.model import Report
from relink.wheel.reverse_delta import DELTA_MEMBER
from tests.support.cc import shared
from tests.support.donors import HIP, RCCL, build_donors
from tests.support.wheels import repacked
from tests.support.works import Works

BUILD = "-Wl,--enable-new-dtags,-rpath,/build/rocm/lib:$ORIGIN"


@pytest.fixture(scope="module")
def prefixes(works: Works, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two prefixes of two releases; the second has its libraries in other directories, and a deep one that is not found."""
    root = tmp_path_factory.mktemp("prefixes")
    for name, release in (("a", "7.2.4"), ("b", "7.1.0")):
        shutil.copytree(works.prefix, root / name)
        (root / name / ".info/version").write_text(f"{release}-1\n")
    (root / "b/lib/deeper").mkdir()
    (root / "b/lib/libdeep.so.1").rename(root / "b/lib/deeper/libdeep.so.1")
    return {name: root / name for name in "ab"}


def made(wheel: Path | str, prefix: Path, output: Path, **more: object) -> Path:
    report = report_of(wheel, prefix, output, **more)
    assert report.ok, [found.message for found in report.findings]
    return Path(report.path or "")


def report_of(wheel: Path | str, prefix: Path, output: Path, **more: object) -> Report:
    return relink.relink(wheel, Options(prefixes=(str(prefix),), output_directory=output, **more))  # type: ignore[arg-type]


def round_trip(wheel: Path, prefixes: Mapping[str, Path], place: Path, **more: object) -> None:
    """A to B is B; A to B to A is A; A to A is A, and nothing is done for it."""
    a, b = prefixes["a"], prefixes["b"]
    to_a, to_b = made(wheel, a, place / "to-a", **more), made(wheel, b, place / "to-b", **more)
    assert to_a.read_bytes() != to_b.read_bytes()
    over = made(to_a, b, place / "over", **more)
    assert (over.name, over.read_bytes()) == (to_b.name, to_b.read_bytes())
    back = made(over, a, place / "back", **more)
    assert (back.name, back.read_bytes()) == (to_a.name, to_a.read_bytes())
    same = report_of(to_a, a, place / "same", **more)
    assert not any(file.changed for file in same.files)
    assert Path(same.path or "").read_bytes() == to_a.read_bytes()


def test_a_library_a_program_and_the_data_directory(
    works: Works, prefixes: Mapping[str, Path], tmp_path: Path
) -> None:
    """Search paths, added NEEDED, a program interpreter, a platlib that the version renames."""
    files: dict[str, bytes | Path] = {
        "demo/__init__.py": b"x = 1\n" * 100,
        "demo/a.so": works.library,
        "demo/plain.so": works.plain,
        "demo-1.0.data/platlib/demo/b.so": works.library,
        "demo-1.0.data/scripts/demo-prog": works.program,
    }
    round_trip(works.wheel(tmp_path, files), prefixes, tmp_path)


@pytest.mark.slow(reason="the same with other options")
@pytest.mark.parametrize("options", [{"keep_version": True}, {"compress": "small", "epoch": 10**9}])
def test_options_of_the_output(
    works: Works, prefixes: Mapping[str, Path], tmp_path: Path, options: Mapping[str, object]
) -> None:
    round_trip(works.small(tmp_path), prefixes, tmp_path, **options)


@pytest.mark.slow(reason="deflates forty MiB, and relinks it seven times")
def test_a_large_library_keeps_its_blocks(works: Works, prefixes: Mapping[str, Path], tmp_path: Path) -> None:
    """Its delta has no more than what lies around the code; here twelve MiB of numbers before and behind the dynamic section."""
    data = tmp_path / "numbers"
    data.write_text(
        "".join(f"{number:x}" for number in random.Random(1).choices(range(1 << 28), k=1_000_000))
    )
    source = (
        f'asm(".section .rodata\\n.globl big\\nbig: .incbin \\"{data}\\"\\n'
        f'.data\\n.globl more\\nmore: .incbin \\"{data}\\"\\n.text");\n'
        "extern int hip(void); int g(void){return hip();}"
    )
    member = shared(tmp_path / "big.so", source, needed=[works.prefix / "lib/libhip.so.7"], flags=[BUILD])
    wheel = works.wheel(tmp_path, {"demo/__init__.py": b"", "demo/big.so": member})
    with zipfile.ZipFile(made(wheel, prefixes["a"], tmp_path / "out")) as archive:
        (size,) = (info.file_size for info in archive.infolist() if info.filename.endswith(DELTA_MEMBER))
    assert size < wheel.stat().st_size // 4
    round_trip(wheel, prefixes, tmp_path)


@pytest.mark.slow(reason="five relinks with stubs")
def test_stubs_come_and_go(tmp_path: Path) -> None:
    donors = build_donors(tmp_path)
    shutil.copytree(donors.prefix, tmp_path / "elsewhere")
    prefixes = {"a": donors.prefix, "b": tmp_path / "elsewhere"}
    round_trip(donors.wheel, prefixes, tmp_path / "trips", stub=(RCCL,))


@pytest.mark.slow(reason="six relinks with grafts")
def test_grafts_come_and_go(tmp_path: Path) -> None:
    donors = build_donors(tmp_path)
    second = tmp_path / "complete"
    shutil.copytree(donors.donor, second)
    shutil.copy(donors.prefix / "lib" / HIP, second / "lib" / HIP)

    def grafted(wheel: Path, place: str) -> Path:
        return Path(relink.relink(wheel, donors.options(place)).path or "")

    to_a, to_b = grafted(donors.wheel, "a"), made(donors.wheel, second, tmp_path / "b")
    over = made(to_a, second, tmp_path / "over")
    assert over.read_bytes() == to_b.read_bytes() != to_a.read_bytes()
    assert grafted(over, "back").read_bytes() == to_a.read_bytes() == grafted(to_a, "same").read_bytes()


def test_a_plan_is_made_and_applied(works: Works, prefixes: Mapping[str, Path], tmp_path: Path) -> None:
    wheel = works.small(tmp_path)
    to_a, to_b = made(wheel, prefixes["a"], tmp_path / "to-a"), made(wheel, prefixes["b"], tmp_path / "to-b")
    plan = relink.plan(to_a, Options(prefixes=(str(prefixes["b"]),)))
    assert plan.wheel.path == wheel.name
    report = relink.apply(plan, wheel=to_a, output_directory=tmp_path / "over")
    assert Path(report.path or "").read_bytes() == to_b.read_bytes()
    again = relink.plan(to_a, Options(prefixes=(str(prefixes["a"]),)))
    assert again.empty
    assert again.wheel.path == to_a.name
    same = relink.apply(again, wheel=to_a, output_directory=tmp_path / "same")
    assert Path(same.path or "").read_bytes() == to_a.read_bytes()


def test_a_wheel_that_needs_nothing_there_comes_out_as_the_vendors(
    works: Works, prefixes: Mapping[str, Path], tmp_path: Path
) -> None:
    library = shared(
        tmp_path / "a.so",
        "extern int hip(void); int g(void){return hip();}",
        needed=[prefixes["a"] / "lib/libhip.so.7"],
        flags=[
            f"-Wl,--enable-new-dtags,-rpath,{prefixes['a']}/lib",
            "-Wl,--no-as-needed",
            f"-L{prefixes['a']}/lib",
            "-l:libdeep.so.1",
        ],
    )
    wheel = works.wheel(tmp_path, {"demo/__init__.py": b"", "demo/a.so": library})
    direct = made(wheel, prefixes["a"], tmp_path / "direct")
    assert direct.read_bytes() == wheel.read_bytes()
    over = made(made(wheel, prefixes["b"], tmp_path / "to-b"), prefixes["a"], tmp_path / "over")
    assert (over.name, over.read_bytes()) == (wheel.name, wheel.read_bytes())


def test_one_that_was_repacked_is_relinked_as_it_is(
    works: Works, prefixes: Mapping[str, Path], tmp_path: Path
) -> None:
    to_a = made(works.small(tmp_path), prefixes["a"], tmp_path / "to-a")
    report = report_of(repacked(to_a, tmp_path / "other"), prefixes["b"], tmp_path / "out")
    (found,) = (found for found in report.findings if found.code == "RLK541")
    assert "is not as relink writes it" in found.message
    with zipfile.ZipFile(report.path or "") as archive:  # its delta would lead to what was repacked
        assert not any(name.endswith(DELTA_MEMBER) for name in archive.namelist())


def test_a_delta_counts_only_with_the_plan(works: Works, tmp_path: Path) -> None:
    """What a vendor's wheel calls so is a file like any other."""
    wheel = works.wheel(tmp_path, {"demo/a.so": works.library, "demo-1.0.dist-info/relink.delta": b"theirs"})
    with open_contents(wheel) as contents:
        assert not contents.archive.comes_out
        assert contents.findings == ()


def test_nothing_stays_open(works: Works, prefixes: Mapping[str, Path], tmp_path: Path) -> None:
    to_a = made(works.small(tmp_path), prefixes["a"], tmp_path / "to-a")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        report_of(to_a, prefixes["a"], tmp_path, dry_run=True)
        report_of(to_a, prefixes["b"], tmp_path, dry_run=True)
    assert len(os.listdir("/proc/self/fd")) == before
