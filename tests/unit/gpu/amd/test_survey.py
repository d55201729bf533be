"""`relink isa`: wheels, files and directories, with what belongs together; each file below a directory once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Self

import pytest

from relink.gpu.amd.file_coverage import FileCoverage, LibraryCoverage
from relink.gpu.amd.survey import group_by_runtime, survey, walk
from relink.gpu.coverage import TargetId
from relink.system.errors import UsageError, WheelError
from tests.support.cc import shared
from tests.support.wheels import make_wheel
from tests.unit.gpu.amd.build import ccob, code_object, entries_of, kpack_archive, library, raw

GFX1030, GFX1100 = TargetId("gfx1030"), TargetId("gfx1100")


def put(path: Path, data: bytes = bytes(64)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def fat(path: Path, bundle: bytes, hip: str = "") -> Path:
    """A library made by the compiler: it has .hip_fatbin, and NEEDED for a HIP runtime."""
    put(path.parent / "bundle.bin", bundle)
    stubs = path.parent.parent / "stubs"
    needed = [shared(stubs / hip, "int stub;")] if hip else []
    source = (
        '__asm__(".section .hip_fatbin,\\"a\\",@progbits\\n.p2align 12\\nrelink_fatbin:\\n'
        f'.incbin \\"{path.parent / "bundle.bin"}\\"\\n.previous");\n'
        'extern const char relink_fatbin[] __attribute__((visibility("hidden")));\n'
        '__attribute__((section(".hipFatBinSegment"), used)) static struct { unsigned magic, version; const void *p, *r; }'
        " wrapper = {0x48495046, 1, relink_fatbin, 0};\n"
    )
    made = shared(path, source, needed=needed)
    (path.parent / "bundle.bin").unlink()
    shutil.rmtree(stubs, ignore_errors=True)  # or the directory above would be a prefix that has the runtime
    return made


def test_a_wheel(tmp_path: Path) -> None:
    wheel = make_wheel(
        tmp_path,
        {
            "demo/a.so": library([raw(entries_of("gfx1030", "gfx1100"))]),
            "demo/b.so": library([ccob(raw(entries_of("gfx1030")))]),
            "demo/plain.so": library(),
            "demo/text.py": b"print()",
            "demo/k/one.co": code_object("gfx1030"),
            **{f"demo/many/{name}.hsaco": code_object(name) for name in ("gfx906", "gfx90a", "gfx1030")},
            **{f"demo/many/{name}x.hsaco": code_object(name) for name in ("gfx1100", "gfx1101")},
        },
    )
    found = survey(wheel)
    assert (found.kind, found.plain, found.read) == ("wheel", ("demo/plain.so",), 8)
    assert [item.path for item in found.items] == ["demo/a.so", "demo/b.so", "demo/k", "demo/many"]
    many = found.items[-1]
    assert isinstance(many, FileCoverage)
    assert (many.files, many in found.kernel_files) == (5, True)
    assert many.to_json()["targets"]["gfx1101"] == 1
    assert many.level(GFX1030).state == "full"
    assert many.level(TargetId("gfx1200")).state == "none"
    assert found.covers(GFX1030)
    assert not found.covers(GFX1100)


@pytest.mark.parametrize(
    "names",
    [
        ("hsa/gfx942/pa.co", "hsa/gfx950/pa.co"),
        ("k/pa_gfx942.co", "k/pa_gfx950.co"),
        ("aot/one/k.hsaco", "aot/two/k.hsaco", "aot/three/k.hsaco", "hsa/a.co", "hsa/b.co"),
    ],
)
def test_kernel_files_for_different_gpus_are_a_choice(tmp_path: Path, names: tuple[str, ...]) -> None:
    targets = ["gfx942", *["gfx940"] * (len(names) - 1)]
    members = {f"demo/{name}": code_object(one) for name, one in zip(names, targets, strict=True)}
    found = survey(make_wheel(tmp_path, members))
    assert not found.known
    assert [found.covers(TargetId(name)) for name in ("gfx942", "gfx940", "gfx1100")] == [True, True, False]
    for name, content in members.items():
        (tmp_path / "gfx1100" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "gfx1100" / name).write_bytes(content)
    found = survey(tmp_path / "gfx1100")
    assert [found.covers(TargetId(name)) for name in ("gfx942", "gfx940", "gfx1100")] == [True, True, False]


def test_variants_of_a_wheel_are_a_choice(tmp_path: Path) -> None:
    wheel = make_wheel(
        tmp_path,
        {
            "demo/lib_rocm6.so": library([raw(entries_of("gfx1030"))]),
            "demo/lib_rocm7.so": library([raw(entries_of("gfx1030", "gfx1100"))]),
        },
    )
    assert not survey(wheel).covers(GFX1100)
    found = survey(wheel, variants=["demo/lib_*.so"])
    assert [group.name for group in found.groups] == ["demo/lib_rocm6.so", "demo/lib_rocm7.so"]
    assert found.covers(GFX1100)
    assert not found.covers(TargetId("gfx906"))


def test_no_wheel(tmp_path: Path) -> None:
    with pytest.raises(WheelError):
        survey(put(tmp_path / "demo-1-py3-none-any.whl", b"PK"))
    with pytest.raises(UsageError, match="no such file"):
        survey(tmp_path / "absent")


@pytest.mark.parametrize(
    ("name", "data", "container"),
    [
        ("a.so", library([raw(entries_of("gfx1030"))]), "raw"),
        ("a.co", code_object("gfx1030"), "code-object"),
        ("a.hsaco", ccob(raw(entries_of("gfx1030"))), "ccob-v3"),
        ("a.kpack", kpack_archive({"lib/a.so#0": ["gfx1030"]}), "kpack"),
    ],
)
def test_one_file_of_each_kind(tmp_path: Path, name: str, data: bytes, container: str) -> None:
    found = survey(put(tmp_path / name, data))
    (item,) = found.items
    assert isinstance(item, FileCoverage)
    assert (found.kind, item.container, found.problems) == ("file", container, ())
    assert found.covers(GFX1030)
    assert not found.covers(GFX1100)


def test_a_file_that_holds_nothing(tmp_path: Path) -> None:
    found = survey(put(tmp_path / "notes.txt", b"hello" * 40))
    assert "neither ELF nor a container" in found.problems[0]
    assert not found.known


def prefix(root: Path) -> Path:
    libs = root / "lib"
    fat(libs / "librocblas.so.5", raw(entries_of("gfx1030", "gfx1100")), "libamdhip64.so.7")
    fat(libs / "librocblas.so.4", raw(entries_of("gfx1030")), "libamdhip64.so.6")
    for version, names in (("5", ("gfx1030", "gfx1100")), ("4.1", ("gfx1030",))):
        for name in names:
            kernels = libs / "rocblas" / version / "library"
            put(kernels / f"TensileLibrary_lazy_{name}.dat", bytes(100))
            put(kernels / f"TensileLibrary_Type_SS_{name}.co", ccob(raw(entries_of(name))))
    put(libs / "libMIOpen.so.1", library())
    put(root / "share" / "doc" / "readme", b"x" * 200)
    (libs / "librocblas.so").symlink_to("librocblas.so.5")
    (root / "lib64").symlink_to("lib")
    return root


def test_a_prefix(tmp_path: Path) -> None:
    found = survey(prefix(tmp_path / "rocm"))
    names = [os.path.basename(item.path) for item in found.items]
    assert names == ["libMIOpen.so.1", "librocblas.so.4", "librocblas.so.5"]
    assert all(isinstance(item, LibraryCoverage) for item in found.items)
    assert (found.problems, found.side, found.read) == ((), (), 6)
    assert [group.name for group in found.groups] == ["libamdhip64.so.7", "libamdhip64.so.6"]
    assert [group.together.targets for group in found.groups] == [("gfx1030", "gfx1100"), ("gfx1030",)]
    assert found.covers(GFX1100)
    assert found.to_json([GFX1100])["gpus"][0]["covered"] is True


def test_a_prefix_of_links_as_nix_makes_them(tmp_path: Path) -> None:
    store = tmp_path / "store" / f"{'0' * 32}-rocm-7.2"
    prefix(store)
    merged = tmp_path / "merged"
    (merged / "lib").mkdir(parents=True)
    for entry in (store / "lib").iterdir():
        (merged / "lib" / entry.name).symlink_to(entry)
    (merged / "lib" / "loop").symlink_to(merged)
    (merged / "lib" / "gone.so").symlink_to(tmp_path / "absent")
    found = survey(merged)
    assert len(found.items) == 3
    assert found.groups[0].together.targets == ("gfx1030", "gfx1100")
    assert found.problems == ()


def test_kernel_files_that_do_not_hold_what_their_names_say(tmp_path: Path) -> None:
    root = prefix(tmp_path / "rocm")
    put(root / "lib/rocblas/5/library/TensileLibrary_Type_SS_gfx1100.co", ccob(raw(entries_of("gfx906"))))
    (problem,) = survey(root).problems
    assert "named for gfx1100, none holds code for it" in problem


def test_kernel_files_without_their_library(tmp_path: Path) -> None:
    kernels = tmp_path / "lib" / "hipblaslt" / "library"
    put(kernels / "TensileLibrary_SS_gfx1030.co", code_object("gfx1030"))
    put(kernels / "TensileLibrary_lazy_gfx1030.dat", bytes(100))
    found = survey(tmp_path)
    assert [side["kind"] for side in found.side] == ["hipblaslt"]


def test_what_cannot_be_opened_is_a_problem(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root can read everything")
    path = put(tmp_path / "lib" / "liba.so", library([raw(entries_of("gfx1030"))]))
    path.chmod(0)
    assert "cannot be read" in survey(tmp_path).problems[0]


def test_ten_is_newer_than_seven() -> None:
    found = group_by_runtime([("libamdhip64.so.7", "a"), ("", "free"), ("libamdhip64.so.10", "b")])
    assert [*found.items()] == [("libamdhip64.so.10", ("b", "free")), ("libamdhip64.so.7", ("a", "free"))]
    assert group_by_runtime([("", "free")]) == {"": ("free",)}


HASH = "0123456789abcdfghijklmnpqrsvwxyz"


def found(top: Path) -> tuple[list[str], list[str]]:
    problems: list[str] = []
    return [str(Path(path).relative_to(top)) for path in walk(top, problems)], problems


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / "top").mkdir()
    return tmp_path.resolve() / "top"


def test_directories_in_order_and_each_file_once(top: Path) -> None:
    put(top / "b" / "two")
    put(top / "a" / "one")
    put(top / "file")
    os.link(top / "file", top / "same")
    (top / "a" / "again").symlink_to("../b/two")
    (top / "a" / "0-first").symlink_to("one")
    (top / "b" / "circle").symlink_to("..")
    assert found(top) == (["file", "a/one", "a/again"], [])
    (top / "a" / "again").unlink()
    assert found(top) == (["file", "a/one", "b/two"], [])


def test_what_is_too_small_and_what_is_no_file(top: Path) -> None:
    put(top / "small", bytes(63))
    put(top / "large")
    os.mkfifo(top / "fifo")
    (top / "dangling").symlink_to("nowhere")
    assert found(top) == (["large"], [])


def test_a_link_out_to_a_file_is_followed_and_one_to_a_directory_is_not(top: Path) -> None:
    put(top.parent / "other" / "file")
    (top / "file").symlink_to("../other/file")
    for number in range(6):
        (top / f"link{number}").symlink_to("../other")
    (top / "status").symlink_to("/proc/self/status")
    files, (problem,) = found(top)
    assert files == ["file"]
    assert f"{top}/link0 to {top.parent}/other, " in problem
    assert "and 3 more; name their targets to look at them" in problem


def test_links_into_the_items_of_a_store_are_followed(top: Path) -> None:
    item = top.parent / f"{HASH}-clr-7.2.3"
    put(item / "lib" / "libx.so")
    (top / "lib").symlink_to(item / "lib")
    assert found(top) == (["lib/libx.so"], [])


def test_depth_has_a_limit(top: Path) -> None:
    deepest = top.joinpath(*["d"] * 100)
    put(deepest / "in")
    put(deepest / "d" / "out")
    files, (problem,) = found(top)
    assert [Path(path).name for path in files] == ["in"]
    assert problem == f"{deepest}/d: more than 100 directories deep, not looked at"


def test_the_number_of_files_has_a_limit(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        """One of more files than a test can make."""

        name, path = "x", "/x"

        def is_symlink(self) -> bool:
            return False

        def is_dir(self) -> bool:
            return False

        is_file = is_dir

    class Listing(list[Entry]):
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(os, "scandir", lambda _: Listing([Entry()] * 1_000_002))
    assert found(top) == ([], [f"{top}: more than 1000000 files; the rest was not looked at"])


def test_time_has_a_limit(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(top / "a" / "file")
    put(top / "file")
    clock = iter([0.0, 1.0, 301.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    assert found(top) == (["file"], [f"{top}: takes more than 300 s; the rest was not looked at"])
