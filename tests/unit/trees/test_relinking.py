"""relink DIR and relink repair --in-place, as commands and as functions."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import relink
from relink import rereading
from relink.errors import UsageError
from relink.options import Options
from relink.report.html import html_page
from relink.report.text import plan_text
from relink.trees.journal import place_of
from tests.support.cc import shared
from tests.support.works import Works
from tests.unit.trees.build import snapshot


def test_a_dry_run_and_an_error_change_nothing(tree: Path) -> None:
    before = snapshot(tree)
    assert relink.relink_tree(tree, Options(dry_run=True)).ok
    assert snapshot(tree) == before
    (tree / "core/lib/libhip.so.7").unlink()
    (tree / "core/lib/libhip.so.7.2").unlink()
    left = snapshot(tree)
    report = relink.relink_tree(tree)
    assert not report.ok
    assert report.output is None
    assert snapshot(tree) == left
    assert not place_of(tree).exists()


def test_a_run_that_takes_more_memory_than_it_may_changes_nothing(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(tree)
    monkeypatch.setattr("relink.memory.LEAST_MEMORY", 1)
    with pytest.raises(
        UsageError, match=r"--max-memory 1 is too little, \d+ MiB are needed; nothing was edited"
    ):
        relink.relink_tree(tree, Options(max_memory=1 << 20))
    assert snapshot(tree) == before
    assert relink.relink_tree(tree, Options(max_memory=1 << 40)).ok


def test_a_second_run_changes_nothing_and_another_prefix_begins_with_the_originals(
    works: Works, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    (tree / "lib").mkdir(parents=True)
    shutil.copy(works.library, tree / "lib/a.so")
    os.link(tree / "lib/a.so", tmp_path / "cache")
    first, other = tmp_path / "rocm", tmp_path / "other/rocm-7"
    for prefix in (first, other):
        shutil.copytree(works.prefix, prefix)
    relink.relink_tree(tree, Options(prefixes=[str(other)]))
    direct = (tree / "lib/a.so").read_bytes()
    relink.undo_tree(tree)
    relink.relink_tree(tree, Options(prefixes=[str(first)]))
    there = snapshot(tree)
    assert relink.relink_tree(tree, Options(prefixes=[str(first)])).ok
    assert snapshot(tree) == there
    relink.relink_tree(tree, Options(prefixes=[str(other)]))
    assert (tree / "lib/a.so").read_bytes() == direct
    relink.undo_tree(tree)
    assert (tree / "lib/a.so").read_bytes() == works.library.read_bytes()
    assert (tmp_path / "cache").stat().st_ino == (tree / "lib/a.so").stat().st_ino


@pytest.mark.slow(reason="starts pip")
def test_what_pip_has_put_into_a_directory(works: Works, tmp_path: Path) -> None:
    tree = tmp_path / "target"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "-q",
        "--disable-pip-version-check",
        "install",
        "--no-index",
        "--no-deps",
    ]
    subprocess.run([*pip, "--no-compile", "--target", tree, works.small(tmp_path / "in")], check=True)
    before = snapshot(tree)
    assert relink.relink_tree(tree, Options(prefixes=[str(works.prefix)])).ok
    (record,) = tree.glob("*.dist-info/RECORD")
    (row,) = [line for line in record.read_text().splitlines() if line.startswith("demo/a.so,")]
    data = (tree / "demo/a.so").read_bytes()
    assert row.split(",")[2] == str(len(data))
    assert relink.relink_tree(tree, Options(prefixes=[str(works.prefix)])).ok
    relink.undo_tree(tree)
    assert snapshot(tree) == before


def test_why_it_is_not_done_in_one_step(works: Works, tmp_path: Path) -> None:
    """A process that works in the tree would be left in the old directory."""
    tree = tmp_path / "tree"
    (tree / "lib").mkdir(parents=True)
    for name in "ab":
        shutil.copy(works.library, tree / f"lib/{name}.so")
    with subprocess.Popen(["sleep", "60"], cwd=tree) as process:
        # It works in the tree, and not in the smallest directory that has both files.
        report = relink.relink_tree(tree, Options(prefixes=[str(works.prefix)]))
        assert "RLK540" not in {found.code for found in report.findings}
        relink.undo_tree(tree)
        process.kill()
    with subprocess.Popen(["sleep", "60"], cwd=tree / "lib") as process:
        report = relink.relink_tree(tree, Options(prefixes=[str(works.prefix)]))
        relink.undo_tree(tree)
        process.kill()
    (found,) = [found for found in report.findings if found.code == "RLK540"]
    assert "(sleep) has its working directory in it" in found.message


def test_another_program_that_changes_a_file_meanwhile_is_not_overruled(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "tree"
    (tree / "lib").mkdir(parents=True)
    for name in "ab":
        shutil.copy(works.library, tree / f"lib/{name}.so")
    real = rereading.reread_files

    def meanwhile(*arguments: Any) -> Any:
        (tree / "lib/b.so").write_bytes(b"upgraded")
        return real(*arguments)

    monkeypatch.setattr("relink.trees.relinking.reread_files", meanwhile)
    with pytest.raises(UsageError, match=r"another program has changed lib/b\.so meanwhile"):
        relink.relink_tree(tree, Options(prefixes=[str(works.prefix)]))
    assert (tree / "lib/a.so").read_bytes() == works.library.read_bytes()
    assert (tree / "lib/b.so").read_bytes() == b"upgraded"
    assert not place_of(tree).exists()


def test_what_was_upgraded_since_is_the_vendors_new_file(works: Works, tmp_path: Path) -> None:
    tree, options = tmp_path / "tree", Options(prefixes=[str(works.prefix)])
    (tree / "lib").mkdir(parents=True)
    for name in "abc":
        shutil.copy(works.library, tree / f"lib/{name}.so")
    assert relink.relink_tree(tree, options).ok
    for name in "bc":
        (tree / f"lib/{name}.so").unlink()
    upgraded = works.library.read_bytes() + b"upgraded"
    (tree / "lib/b.so").write_bytes(upgraded)
    assert relink.relink_tree(tree, options).ok
    assert (tree / "lib/b.so").read_bytes() != upgraded
    assert not (tree / "lib/c.so").exists()
    assert relink.undo_tree(tree) == ("lib/a.so", "lib/b.so")
    assert (tree / "lib/b.so").read_bytes() == upgraded


def test_wrong_usage(tree: Path) -> None:
    with pytest.raises(UsageError, match="no such directory"):
        relink.relink_tree(tree / "README")
    with pytest.raises(UsageError, match="--stub"):
        relink.relink_tree(tree, Options(stub=["librccl.so.1"]))
    with pytest.raises(UsageError, match="nothing to undo"):
        relink.undo_tree(tree)


def test_a_file_that_cannot_be_edited_is_an_error_whatever_is_ignored(tree: Path) -> None:
    """There is no content to write, and no tree is half done: as for a wheel."""
    source = "extern int hip(void); int f(void){return hip();}"
    flags = ["-Wl,--enable-new-dtags,-rpath,/build/rocm/lib", "-Wl,--depaudit,libaud.so"]
    shared(tree / "mod/hostile.so", source, needed=[tree / "core/lib/libhip.so.7"], flags=flags)
    before = snapshot(tree)
    report = relink.relink_tree(tree, Options(ignore=("RLK6*", "RLK516", "mod/*")))
    assert {found.code for found in report.findings if found.level == "error"} == {"RLK605"}
    assert not report.ok
    assert report.output is None
    assert snapshot(tree) == before


def test_what_the_loader_refuses_is_taken_back(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check after the new files were written: nothing of them is left, and the tree is as it was."""
    before = snapshot(tree)
    monkeypatch.setattr(
        "relink.verification.read_symbols", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    with pytest.raises(KeyboardInterrupt):
        relink.relink_tree(tree)
    assert snapshot(tree) == before
    assert not place_of(tree).exists()


def test_a_link_to_a_file_that_changes_is_the_same_file(tmp_path: Path) -> None:
    """libmid is found by its link, and needs a search path itself: what is simulated is the file as it will be."""
    tree = tmp_path / "tree"
    deep = shared(tree / "deep/libdeep.so.1", "int deep(void){return 1;}")
    mid = shared(
        tree / "lib/libmid.so.1", "extern int deep(void); int mid(void){return deep();}", needed=[deep]
    )
    shared(tree / "mod/m.so", "extern int mid(void); int g(void){return mid();}", needed=[mid])
    mid.rename(tree / "lib/libmid.so.1.0")
    mid.symlink_to("libmid.so.1.0")
    report = relink.relink_tree(tree)
    assert report.ok, [found.message for found in report.findings]
    paths = {file.path: file.rpath.after for file in report.files}
    assert paths == {
        "lib/libmid.so.1.0": "$ORIGIN/../deep",
        "mod/m.so": "$ORIGIN/../lib",
        "deep/libdeep.so.1": None,
    }
    program = f"import ctypes; assert ctypes.CDLL({str(tree / 'mod/m.so')!r}).g() == 1"
    subprocess.run([sys.executable, "-c", program], check=True)
    assert hashlib.sha256((tree / "lib/libmid.so.1").read_bytes()).digest()


def test_a_tree_with_a_rocm_of_its_own_takes_no_other(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCM_PATH", str(works.prefix))
    (tmp_path / "tree/lib").mkdir(parents=True)
    shutil.copy(works.library, tmp_path / "tree/lib/a.so")
    assert len(relink.relink_tree(tmp_path / "tree", Options(dry_run=True)).providers) == 2
    shared(tmp_path / "tree/lib/libamdhip64.so.7")
    assert len(relink.relink_tree(tmp_path / "tree", Options(dry_run=True)).providers) == 1


def test_the_profile_of_what_was_installed_there(tree: Path) -> None:
    """The profile of onnxruntime-rocm says which members it preloads; a finding that rests on it names it."""
    hip = tree / "core/lib/libhip.so.7"
    place = tree / "onnxruntime/capi"
    provider = shared(place / "libonnxruntime_providers_shared.so", "int Provider_GetHost(void){return 1;}")
    source = "extern int Provider_GetHost(void), hip(void); int g(void){return Provider_GetHost()+hip();}"
    shared(place / "libonnxruntime_providers_rocm.so", source, needed=[hip])
    assert provider.exists()
    assert not relink.relink_tree(tree, Options(dry_run=True)).ok
    (tree / "onnxruntime_rocm-1.22.2.dist-info").mkdir()
    assert relink.relink_tree(tree, Options(dry_run=True)).ok


def test_the_kernels_beside_a_library_of_the_tree(tree: Path) -> None:
    """rocBLAS has no code in itself; a report says the directory, as a tree is no wheel."""
    shared(tree / "core/lib/librocblas.so.5", "int rocblas(void){return 1;}")
    kernels = tree / "core/lib/rocblas/library"
    kernels.mkdir(parents=True)
    for name in ("Kernels.so-000-gfx1100.hsaco", "TensileLibrary_gfx1100.co", "TensileLibrary_gfx1100.dat"):
        (kernels / name).write_bytes(b"kernel")
    report = relink.relink_tree(tree, Options(dry_run=True, gpus=("gfx1030",)))
    (found,) = [item for item in report.findings if item.level == "error"]
    assert (found.code, found.subject) == ("RLK401", "gfx1030")
    assert "librocblas.so.5" in found.message
    covered = relink.relink_tree(tree, Options(dry_run=True, gpus=("gfx1100",)))
    assert not [item for item in covered.findings if item.code in ("RLK401", "RLK402", "RLK404")]
    (module,) = [file for file in report.files if file.path == "mod/m.so"]
    (found_at,) = [str(entry.resolved) for entry in module.needed if entry.soname == "libhip.so.7"]
    assert os.path.normpath(found_at) == f"{os.path.realpath(tree)}/core/lib/libhip.so.7"
    shown = "\n".join(line.plain for line in plan_text(report, verbose=True))
    assert f"libhip.so.7  tree: {os.path.realpath(tree)}/mod" in shown
    assert "$WHEEL" not in shown + str(html_page(report))
