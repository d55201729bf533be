"""relink.relink_tree: a relinked copy of a tree. What trees in place could be made to do is here by the attacks' names."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import relink
from relink.planning.options import Options
from relink.report.html import html_page
from relink.report.text import plan_text
from relink.runs.relink_tree import TreeCopy, TreeSource, find_references
from relink.system import atomic
from relink.system.errors import RelinkError, UsageError, WheelError
from relink.system.findings.model import Finding
from relink.system.spool import fill, take
from relink.wheel.deflate.ranges import ENDS
from relink.wheel.limits import WheelLimits
from tests.support import forking
from tests.support.cc import cc, shared
from tests.support.elf_builder import Library, build
from tests.support.works import Works
from tests.unit.gpu.amd.build import code_object
from tests.unit.runs.build_trees import BUILD, HOLE, add_rarities, kept, snapshot

SLOW = pytest.mark.slow(reason="a whole run; the other trees are relinked always")

JOURNALS = ("committing", "exchanging", "done")


@pytest.fixture
def new(tree: Path) -> Path:
    return tree.with_name("new")


def ran(tree: Path) -> bool:
    return subprocess.run([tree / "bin/driver"], capture_output=True, check=False).stdout == b"ran\n"


def changed(tree: Path, new: Path) -> set[str]:
    before, after = kept(tree), kept(new)
    assert before.keys() == after.keys()
    return {name for name in before if before[name] != after[name]}


def test_a_copy_that_works_without_the_tree_and_in_its_place(tree: Path, new: Path) -> None:
    before = snapshot(tree)
    assert not ran(tree)
    report = relink.relink_tree(tree, Options(output_directory=new))
    assert (report.ok, report.path, report.verified) == (True, str(new), 3)
    assert snapshot(tree) == before
    assert changed(tree, new) == {"mod/m.so", "bin/driver"}
    assert os.listdir(tree.parent) == sorted(["tree", "new"]) or set(os.listdir(tree.parent)) == {
        "tree",
        "new",
    }
    shutil.rmtree(tree)
    assert ran(new)
    new.rename(tree)
    assert ran(tree)


@SLOW
def test_a_tarball_with_all_that_it_can_have(tree: Path, new: Path) -> None:
    """As make_vendor_tree, with links, set-id bits, holes, read-only directories and a FIFO; its times are old ones."""
    before = snapshot(add_rarities(tree))
    report = relink.relink_tree(tree, Options(output_directory=new))
    assert report.ok
    assert {(found.code, found.subject) for found in report.findings if found.level == "warning"} == {
        ("RLK540", "deep/pipe"),
        ("RLK545", "bin/tool"),
        ("RLK545", "deep"),
    }
    assert snapshot(tree) == before
    same = {name: facts[:2] for name, facts in kept(tree).items()}
    assert {name: facts[:2] for name, facts in kept(new).items()} == same
    linked = {"mod/m.so", "mod/again.so", "deep/er/other.so"}
    assert changed(tree, new) == {"bin/driver", "d-1.dist-info/RECORD", *linked}
    # Two directories deep the way to the library is another one, so that name is a file of its own.
    assert (new / "mod/m.so").samefile(new / "mod/again.so")
    assert not (new / "mod/m.so").samefile(new / "deep/er/other.so")
    shutil.rmtree(tree)
    assert ran(new)


UNPRIVILEGED = """
import os, sys
from pathlib import Path
from relink import Options, relink_tree
assert not os.access(sys.argv[1], os.W_OK), "the test needs a user whom modes stop"
sys.exit(not relink_tree(sys.argv[2], Options(output_directory=Path(sys.argv[3]))).ok)
"""


@SLOW
def test_read_only_directories_stop_no_user(tree: Path, new: Path) -> None:
    """The top of the tree is read-only, too: a user whom modes stop can rename its copy, and remove a copy that is not wanted."""
    drop = (
        ["setpriv", "--inh-caps=-all", "--bounding-set=-dac_override,-dac_read_search"]
        if os.geteuid() == 0
        else []
    )
    if drop and shutil.which("setpriv") is None:
        pytest.skip("setpriv takes root its rights; it is not here")
    add_rarities(tree)
    for folder in (tree, *(path for path in tree.rglob("*") if path.is_dir() and not path.is_symlink())):
        folder.chmod(0o555)
    command = [*drop, sys.executable, "-c", UNPRIVILEGED, *map(str, (tree, tree, new))]
    subprocess.run(command, check=True)
    assert {name: facts[0] for name, facts in kept(new).items()} == {
        name: facts[0] for name, facts in kept(tree).items()
    }
    (tree / "bin").chmod(0o755)
    (tree / "bin/driver").chmod(0o4000)
    refused = subprocess.run([*command[:-1], f"{new}-2"], capture_output=True, check=False)
    assert refused.returncode
    assert b"cannot be read (Permission denied)" in refused.stderr
    assert sorted(os.listdir(tree.parent)) == ["new", "tree"]


@SLOW
def test_a_search_path_that_names_the_tree(tree: Path, new: Path) -> None:
    """By its name, by a link to it, and by a way out of it and back: the copy finds its own directories instead."""
    (tree.parent / "rocm").symlink_to(tree)
    (tree / "core/lib/libhip.so.7").unlink()
    (tree / "core/lib/libhip.so.7.2").rename(tree / "core/lib/libhip.so.7")
    source = "extern int hip(void); int g(void){return hip()+1;}"
    ways = {"a": f"{tree}/core/lib", "b": f"{tree.parent}/rocm/core/lib", "c": "$ORIGIN/../../tree/core/lib"}
    for name, way in ways.items():
        flags = [f"-Wl,--enable-new-dtags,-rpath,{way}"]
        shared(tree / f"mod/{name}.so", source, needed=[tree / "core/lib/libhip.so.7"], flags=flags)
    report = relink.relink_tree(tree, Options(output_directory=new))
    paths = {file.path: file.rpath.after for file in report.files if file.path.startswith("mod/")}
    assert set(paths.values()) == {"$ORIGIN/../core/lib"}
    assert not [found for found in report.findings if found.code == "RLK544"]
    assert "since the copy has a place of its own" in " ".join(found.message for found in report.findings)
    shutil.rmtree(tree)
    for name in ways:
        program = f"import ctypes; assert ctypes.CDLL({str(new / f'mod/{name}.so')!r}).g() == 42"
        subprocess.run([sys.executable, "-c", program], check=True)


def test_what_still_names_the_tree_is_listed(tree: Path, new: Path) -> None:
    (tree / "bin/tool").write_text(f"#!{tree}/bin/driver\n")
    (tree / "lib/pkgconfig").mkdir(parents=True)
    (tree / "lib/pkgconfig/hip.pc").write_text(f"prefix={tree}\n")
    report = relink.relink_tree(tree, Options(output_directory=new))
    assert {found.subject for found in report.findings if found.code == "RLK544"} == {
        "bin/tool",
        "lib/pkgconfig/hip.pc",
    }
    assert report.ok


def test_a_dry_run_and_an_error_write_nothing(tree: Path, new: Path) -> None:
    before = snapshot(tree.parent)
    assert relink.relink_tree(tree, Options(dry_run=True)).ok
    assert snapshot(tree.parent) == before
    for name in ("libhip.so.7", "libhip.so.7.2"):
        (tree / "core/lib" / name).unlink()
    before = snapshot(tree.parent)
    report = relink.relink_tree(tree, Options(output_directory=new))
    assert (report.ok, report.output) == (False, None)
    assert snapshot(tree) == {
        name.removeprefix("tree/").replace("tree", ".", 1): facts
        for name, facts in before.items()
        if name.startswith("tree")
    }
    assert not new.exists()


def test_a_tree_that_loads_as_it_is_is_copied(tree: Path, new: Path) -> None:
    other = tree.with_name("other")
    relink.relink_tree(tree, Options(output_directory=new))
    report = relink.relink_tree(new, Options(output_directory=other))
    assert not [file for file in report.files if file.changed]
    assert kept(other) == kept(new)
    assert report.output is not None
    assert report.output.sha256 == report.wheel.sha256


@SLOW
def test_a_run_that_takes_more_memory_than_it_may_writes_nothing(
    tree: Path, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = snapshot(tree)
    monkeypatch.setattr("relink.planning.contents.LEAST_MEMORY", 1)
    with pytest.raises(
        UsageError, match=r"--max-memory 1 is too little, \d+ MiB are needed; nothing was edited"
    ):
        relink.relink_tree(tree, Options(max_memory=1 << 20, output_directory=new))
    assert snapshot(tree) == before
    assert not new.exists()
    assert relink.relink_tree(tree, Options(max_memory=1 << 40, output_directory=new)).ok


@pytest.mark.slow(reason="starts pip")
def test_what_pip_has_put_into_a_directory(works: Works, tmp_path: Path) -> None:
    tree, new = tmp_path / "target", tmp_path / "new"
    command = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "install", "--no-index"]
    wheel = works.small(tmp_path / "in")
    subprocess.run([*command, "--no-deps", "--no-compile", "--target", tree, wheel], check=True)
    assert relink.relink_tree(tree, works.options(new)).ok
    (record,) = new.glob("*.dist-info/RECORD")
    (row,) = [line for line in record.read_text().splitlines() if line.startswith("demo/a.so,")]
    assert row.split(",")[2] == str((new / "demo/a.so").stat().st_size)
    assert changed(tree, new) == {"demo/a.so", f"{record.parent.name}/RECORD"}


# Where the copy may be, and what is no tree


def test_wrong_usage(tree: Path, new: Path) -> None:
    before = snapshot(tree.parent)
    (tree.parent / "link").symlink_to("nowhere")
    (tree.parent / "inside").symlink_to("tree/mod")
    for place, reason in {
        Path(): "its relinked copy has no name",
        tree: "is there already",
        tree.parent / "link": "is there already",
        tree / "mod/new": "which is never changed",
        tree.parent / "inside/new": "which is never changed",
        tree.parent / "nowhere/new": "no such directory",
    }.items():
        with pytest.raises(UsageError, match=reason):
            relink.relink_tree(tree, Options(output_directory=place))
    for name in ("link", "inside"):
        (tree.parent / name).unlink()
    with pytest.raises(UsageError, match="no such directory"):
        relink.relink_tree(tree / "README", Options(output_directory=new))
    wheels_only = {
        "local_version": "x",
        "requires": True,
        "compress": "fast",
        "sysroot": "/",
    }
    for name, value in (wheels_only | {"verify_record": False}).items():
        with pytest.raises(UsageError, match=f"{name.replace('_', '-')}: for wheels; leave that out"):
            relink.relink_tree(tree, Options(output_directory=new, **{name: value}))  # type: ignore[arg-type]
    (tree / "pyvenv.cfg").touch()
    with pytest.raises(UsageError, match="is a virtual environment, and its scripts name it"):
        relink.relink_tree(tree, Options(output_directory=new))
    (tree / "pyvenv.cfg").unlink()
    assert {name: facts[6] for name, facts in snapshot(tree.parent).items()} == {
        name: facts[6] for name, facts in before.items()
    }


def test_a_directory_that_cannot_be_written_to(
    tree: Path, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full when most of the copy is written: there is no copy, and nothing is left beside it."""

    def full(*_: object) -> None:
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("relink.runs.relink_tree.copy_content", full)
    before = snapshot(tree)
    with pytest.raises(UsageError, match=r"new: cannot be written \(Permission denied\)"):
        relink.relink_tree(tree, Options(output_directory=new))
    assert os.listdir(tree.parent) == ["tree"]
    assert snapshot(tree) == before


def with_stub(tree: Path, new: Path) -> relink.Report:
    """A member of a package that needs a library which nobody has."""
    lost = shared(tree.parent / "made/librccl.so.1", "int ncclInit(void){return 1;}")
    shared(tree / "mod/s.so", "extern int ncclInit(void); int s(void){return ncclInit();}", needed=[lost])
    options = Options(output_directory=new, stub=("librccl.so.1",))
    return relink.relink_tree(tree, options)


@SLOW
def test_a_stub_lies_where_that_of_the_wheel_does_and_is_in_record(tree: Path, new: Path) -> None:
    add_rarities(tree)
    report = with_stub(tree, new)
    assert report.ok, report.findings
    stub = new / "d.libs/relink-stubs/librccl.so.1"
    digest = base64.urlsafe_b64encode(hashlib.sha256(stub.read_bytes()).digest()).decode().rstrip("=")
    row = f"d.libs/relink-stubs/librccl.so.1,sha256={digest},{stub.stat().st_size}"
    assert row in (new / "d-1.dist-info/RECORD").read_text().splitlines()
    assert ran(new)


@SLOW
def test_no_link_of_the_tree_leads_a_stub_elsewhere(tree: Path, new: Path) -> None:
    """A tarball that has a link where the directory of stubs would be."""
    add_rarities(tree)
    outside = tree.parent / "outside"
    outside.mkdir()
    (tree / "d.libs").symlink_to(outside)
    with pytest.raises(UsageError, match="relink writes a stub there"):
        with_stub(tree, new)
    assert not list(outside.iterdir())
    assert not new.exists()


# The attacks on trees in place


def plant_journal(tree: Path, **facts: object) -> Path:
    """What a tarball can have beside its tree: an earlier release took it for its own, and did what it says."""
    place = tree.with_name(".tree.relink")
    place.mkdir()
    (place / "0.new").write_text("evil")
    (place / "0").write_text("evil")
    (place / "copy").mkdir()
    pending = [{"path": "out/victim", "kept": "0", "temporary": "0.new", "sha256": "x", "seen": ""}]
    back = [{"path": "out/gone", "kept": "1", "temporary": None, "sha256": "", "seen": ""}]
    files = [{"path": "out/victim", "kept": "0", "sha256": "x"}]
    document = {"files": files, "pending": pending + back, "copy": 1, **facts}
    (place / "journal.json").write_text(json.dumps(document))
    return place


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("state", JOURNALS)
def test_tree_journal(tree: Path, new: Path, state: str) -> None:
    """A journal in a downloaded archive wrote and deleted through the tree's own symbolic links: nothing reads it any more."""
    outside = tree.with_name("outside")
    outside.mkdir()
    for name in ("victim", "gone"):
        (outside / name).write_text("mine")
    (tree / "out").symlink_to("../outside")
    place = plant_journal(tree, state=state)
    before = [snapshot(at) for at in (outside, place, tree)]
    assert relink.relink_tree(tree, Options(output_directory=new)).ok
    assert [snapshot(at) for at in (outside, place, tree)] == before


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("state", JOURNALS)
def test_tree_journal_other(tree: Path, new: Path, state: str) -> None:
    """In a directory that everybody may write, as /tmp, another user's journal beside a private tree."""
    tree.parent.chmod(0o1777)
    tree.chmod(0o700)
    place = plant_journal(tree, state=state, pending=[], files=[])
    (place / "journal.json").write_text(
        (place / "journal.json")
        .read_text()
        .replace('"pending": []', '"pending": [{"path": "README", "kept": "0", "temporary": "0.new"}]')
    )
    if os.geteuid() == 0:
        for path in (place, *place.iterdir()):
            os.chown(path, 65534, 65534)
    before = [snapshot(at) for at in (place, tree)]
    assert relink.relink_tree(tree, Options(output_directory=new)).ok
    assert [snapshot(at) for at in (place, tree)] == before
    assert (new / "README").read_text() == "words"


@pytest.mark.few(2, reason="nothing reads the other texts either")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 100_000,
        "{}",
        '{"state": "committing", "files": [], "pending": [], "copy": null}',
        "1e400",
        "\udce9",
    ],
)
def test_journal_traceback(tree: Path, new: Path, text: str) -> None:
    (plant_journal(tree) / "journal.json").write_text(text, errors="surrogateescape")
    done = forking.run(tree, "-o", new)
    assert (done.returncode, done.stderr) == (0, "")
    assert ran(new)


def test_tree_beside_lost(tree: Path, new: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's own directories of such names stay, and so does what other processes make in the tree and beside it meanwhile."""
    for name in (".tree.relink", ".new.relink"):
        tree.with_name(name).mkdir()
        (tree.with_name(name) / "notes").write_text("mine")
    real = atomic.publish_directory

    def meanwhile(staged: Path, final: Path, *, sync: bool) -> None:
        (tree / "mod/made").write_text("by another process")
        (tree / "README").unlink()
        (tree / "README").write_text("upgraded")
        real(staged, final, sync=sync)

    monkeypatch.setattr("relink.runs.relink_tree.publish_directory", meanwhile)
    assert relink.relink_tree(tree, Options(output_directory=new)).ok
    assert (tree / "mod/made").read_text() == "by another process"
    assert (tree / "README").read_text() == "upgraded"
    assert (new / "README").read_text() == "words"
    for name in (".tree.relink", ".new.relink"):
        assert (tree.with_name(name) / "notes").read_text() == "mine"


def make_directory(new: Path) -> None:
    new.mkdir()


def make_full_directory(new: Path) -> None:
    new.mkdir()
    (new / "precious").write_text("mine")


def make_file(new: Path) -> None:
    new.write_text("mine")


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("make", [make_directory, make_full_directory, make_file])
def test_tree_beside_lost_to_the_copy(
    tree: Path, new: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None]
) -> None:
    """Another process takes the copy's name while the copy is written."""
    real = atomic.publish_directory

    def meanwhile(staged: Path, final: Path, *, sync: bool) -> None:
        make(final)
        before = snapshot(final)
        with pytest.raises(FileExistsError):
            real(staged, final, sync=sync)
        assert snapshot(final) == before
        raise FileExistsError(errno.EEXIST, "File exists")

    monkeypatch.setattr("relink.runs.relink_tree.publish_directory", meanwhile)
    with pytest.raises(UsageError, match=r"new: cannot be written \(File exists\); name another"):
        relink.relink_tree(tree, Options(output_directory=new))
    assert sorted(os.listdir(tree.parent)) == ["new", "tree"]


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount, or make a file immutable")
@pytest.mark.parametrize("way", ["immutable", "mount"])
def test_tree_half_state(tree: Path, new: Path, way: str) -> None:
    """An immutable file or a bind mount stopped the exchange of files half way; a copy needs neither to be written."""
    module = str(tree / "mod/m.so")
    command = ["chattr", "+i", module] if way == "immutable" else ["mount", "--bind", module, module]
    undo = ["chattr", "-i", module] if way == "immutable" else ["umount", module]
    if (
        shutil.which(command[0]) is None
        or subprocess.run(command, capture_output=True, check=False).returncode
    ):
        pytest.skip(f"{command[0]} does not work here")
    try:
        before = snapshot(tree)
        assert relink.relink_tree(tree, Options(output_directory=new)).ok
        assert snapshot(tree) == before
    finally:
        subprocess.run(undo, check=True)
    assert ran(new)
    shutil.rmtree(new)


# As for wheels


def test_a_file_that_cannot_be_edited_is_an_error_whatever_is_ignored(tree: Path, new: Path) -> None:
    """There is no content to write, and no tree is half done: as for a wheel."""
    source = "extern int hip(void); int f(void){return hip();}"
    flags = ["-Wl,--enable-new-dtags,-rpath,/build/rocm/lib", "-Wl,--depaudit,libaud.so"]
    shared(tree / "mod/hostile.so", source, needed=[tree / "core/lib/libhip.so.7"], flags=flags)
    report = relink.relink_tree(tree, Options(output_directory=new, ignore=("RLK6*", "RLK516", "mod/*")))
    assert {found.code for found in report.findings if found.level == "error"} == {"RLK605"}
    assert (report.ok, report.output) == (False, None)
    assert os.listdir(tree.parent) == ["tree"]


def test_what_is_interrupted_leaves_nothing(tree: Path, new: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("relink.runs.relink_tree.find_references", interrupted)
    before = snapshot(tree)
    with pytest.raises(KeyboardInterrupt):
        relink.relink_tree(tree, Options(output_directory=new))
    assert snapshot(tree) == before
    assert os.listdir(tree.parent) == ["tree"]


def test_a_link_to_a_file_that_changes_is_the_same_file(tmp_path: Path) -> None:
    """libmid is found by its link, and needs a search path itself: what is simulated is the file as it will be."""
    tree, new = tmp_path / "tree", tmp_path / "new"
    deep = shared(tree / "deep/libdeep.so.1", "int deep(void){return 1;}")
    source = "extern int deep(void); int mid(void){return deep();}"
    mid = shared(tree / "lib/libmid.so.1", source, needed=[deep])
    shared(tree / "mod/m.so", "extern int mid(void); int g(void){return mid();}", needed=[mid])
    mid.rename(tree / "lib/libmid.so.1.0")
    mid.symlink_to("libmid.so.1.0")
    report = relink.relink_tree(tree, Options(output_directory=new))
    assert report.ok, [found.message for found in report.findings]
    paths = {file.path: file.rpath.after for file in report.files}
    assert paths == {
        "lib/libmid.so.1.0": "$ORIGIN/../deep",
        "mod/m.so": "$ORIGIN/../lib",
        "deep/libdeep.so.1": None,
    }
    program = f"import ctypes; assert ctypes.CDLL({str(new / 'mod/m.so')!r}).g() == 1"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_tree_with_a_rocm_of_its_own_takes_no_other(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCM_PATH", str(works.prefix))
    (tmp_path / "tree/lib").mkdir(parents=True)
    shutil.copy(works.library, tmp_path / "tree/lib/a.so")
    assert len(relink.relink_tree(tmp_path / "tree", Options(dry_run=True)).providers) == 2
    shared(tmp_path / "tree/lib/libamdhip64.so.7")
    assert len(relink.relink_tree(tmp_path / "tree", Options(dry_run=True)).providers) == 1


@pytest.mark.parametrize("own", [None, "libamdhip64.so.7", "libhsa-runtime64.so.1"])
def test_the_runtime_of_a_prefix(tmp_path: Path, own: str | None) -> None:
    """A process has one release of it: the first prefix serves it to a tree that has none, and no prefix to one that has any."""
    tree, prefix = tmp_path / "tree", tmp_path / "rocm"
    hip = shared(prefix / "lib/libamdhip64.so.7", "int hip(void){return 1;}")
    hsa = shared(prefix / "lib/libhsa-runtime64.so.1", "int hsa(void){return 1;}")
    source = "extern int hip(void), hsa(void); int g(void){return hip()+hsa();}"
    shared(tree / "mod/m.so", source, needed=[hip, hsa])
    if own is not None:
        (tree / "lib").mkdir()
        shutil.copy(prefix / "lib" / own, tree / "lib" / own)
    report = relink.relink_tree(tree, Options(dry_run=True, prefixes=[str(prefix)]))
    missing = {"libamdhip64.so.7", "libhsa-runtime64.so.1"} - {own} if own else set()
    assert {found.subject for found in report.findings if found.code == "RLK101"} == missing


def test_the_options_that_lead_out_of_a_refusal(works: Works, tmp_path: Path) -> None:
    """As for a wheel: they are tried, and named."""
    (tmp_path / "tree").mkdir()
    shutil.copy(works.lost, tmp_path / "tree/lost.so")
    missing = "libnowhere.so.1"
    report = relink.relink_tree(tmp_path / "tree", works.options(tmp_path / "new"))
    assert not report.ok
    report = relink.relink_tree(
        tmp_path / "tree",
        works.options(tmp_path / "new", allow_missing=(missing,), assume_symbols=("nowhere",)),
    )
    assert report.ok
    assert (tmp_path / "new/lost.so").exists()


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


def test_an_interpreter_of_the_tree_is_the_targets(tree: Path, new: Path) -> None:
    hip = tree / "core/lib/libhip.so.7"
    main = "extern int hip(void); int main(void){return hip()!=41;}"
    cc(main, tree / "bin/own", BUILD, f"-Wl,--dynamic-linker,{tree}/lib/ld.so", needed=[hip])
    report = relink.relink_tree(tree, Options(output_directory=new))
    assert not [found for found in report.findings if found.code == "RLK544"]
    shutil.rmtree(tree)
    subprocess.run([new / "bin/own"], check=True)


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
    shown = "\n".join(line.plain for line in plan_text(report))
    assert f"libhip.so.7  tree: {os.path.realpath(tree)}/mod" in shown
    assert "$WHEEL" not in shown + str(html_page(report))


AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


def copied(tree: Path, new: dict[str, bytes] | None = None) -> tuple[Path, list[Finding]]:
    place = tree.with_name("copy")
    place.mkdir()
    findings = [
        *TreeCopy(TreeSource(tree), place, {name: [data] for name, data in (new or {}).items()}).write()
    ]
    return place, findings


def test_all_of_a_tree(tree: Path) -> None:
    """Modes, times, links, hard links and holes; and the tree is as it was, to the last time."""
    add_rarities(tree)
    before = snapshot(tree)
    place, findings = copied(tree)
    assert snapshot(tree) == before
    assert kept(place) == kept(tree)
    names = ("mod/m.so", "mod/again.so", "deep/er/other.so")
    assert len({(place / name).stat().st_ino for name in names}) == 1
    assert (place / "README").samefile(place / "READTHIS")
    assert not (place / "README").samefile(tree / "README")
    assert (place / "sparse").stat().st_size == HOLE + 3
    assert (place / "sparse").stat().st_blocks == (tree / "sparse").stat().st_blocks < HOLE >> 10
    assert {(found.code, found.subject) for found in findings} == {
        ("RLK540", "deep/pipe"),
        ("RLK545", "deep"),
        ("RLK545", "bin/tool"),
    }


def test_what_is_no_file_is_left_out(tree: Path) -> None:
    add_rarities(tree)
    place, findings = copied(tree)
    assert not os.path.lexists(place / "deep/pipe")
    (found,) = [found for found in findings if found.code == "RLK540"]
    assert found.subject == "deep/pipe"


@pytest.mark.parametrize("others", [False, pytest.param(True, marks=AS_ROOT)])
def test_tree_setuid(tree: Path, *, others: bool) -> None:
    """A set-user-id program, also another user's, is not written anew as yours with its bit."""
    (tree / "bin/driver").chmod(0o6755)
    if others:
        os.chown(tree / "bin/driver", 65534, 65534)
        (tree / "bin/driver").chmod(0o6755)
    for new in (None, {"bin/driver": b"edited"}):
        place, findings = copied(tree, new)
        status = (place / "bin/driver").stat()
        assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_nlink) == (0o755, os.geteuid(), 1)
        (found,) = [found for found in findings if found.code == "RLK545"]
        assert found.subject == "bin/driver"
        shutil.rmtree(place)
    assert stat.S_IMODE((tree / "bin/driver").stat().st_mode) == 0o6755


@AS_ROOT
def test_files_of_others(tree: Path) -> None:
    os.chown(tree / "README", 65534, 65534)
    place, findings = copied(tree)
    assert ((place / "README").stat().st_uid, (place / "README").stat().st_nlink) == (0, 1)
    (found,) = findings
    assert (found.code, found.message) == (
        "RLK543",
        "files of other users, which belong to you in the copy: README",
    )


@AS_ROOT
def test_capabilities_are_left_out(tree: Path) -> None:
    """security.capability (capabilities(7), revision 2): a program with it has rights without being set-user-id."""
    try:
        os.setxattr(
            tree / "bin/driver",
            "security.capability",
            bytes.fromhex("0100000200200000000000000000000000000000"),
        )
    except OSError as error:
        pytest.skip(f"capabilities cannot be set here: {error.strerror}")
    place, findings = copied(tree)
    assert "security.capability" not in os.listxattr(place / "bin/driver")
    assert not (place / "bin/driver").samefile(tree / "bin/driver")
    assert [found.code for found in findings] == ["RLK545"]


def test_hard_links_that_are_edited_alike_stay_one_file(tree: Path) -> None:
    add_rarities(tree)
    place, _ = copied(tree, {"mod/m.so": b"one", "mod/again.so": b"one", "deep/er/other.so": b"other"})
    assert (place / "mod/m.so").samefile(place / "mod/again.so")
    assert (place / "deep/er/other.so").read_bytes() == b"other"


def test_records_list_the_new_files(tree: Path) -> None:
    """Of a dist-info at any depth; all other lines stay to the byte, and so does a RECORD of other files."""
    site = tree / "lib/python3/site-packages"
    for place in (tree / "a-1.dist-info", site / "b-1.dist-info", site / "c-1.dist-info"):
        place.mkdir(parents=True)
    (tree / "a-1.dist-info/RECORD").write_bytes(b'mod/m.so,sha256=old,3\r\n"mod/m.so",,\nodd\xff,x\x0cy,\n')
    (site / "b-1.dist-info/RECORD").write_bytes(b"../../../bin/driver,,\nx.py,,")
    (site / "c-1.dist-info/RECORD").write_bytes(b"x.py,,\n")
    copy, _ = copied(tree, {"mod/m.so": b"abc", "bin/driver": b""})

    def fields(data: bytes) -> bytes:
        return b"sha256=" + base64.urlsafe_b64encode(sha256(data).digest()).rstrip(b"=") + b",%d" % len(data)

    line = b"mod/m.so," + fields(b"abc")
    assert (copy / "a-1.dist-info/RECORD").read_bytes() == b"%b\r\n%b\nodd\xff,x\x0cy,\n" % (line, line)
    below = copy / "lib/python3/site-packages"
    assert (below / "b-1.dist-info/RECORD").read_bytes() == b"../../../bin/driver,%b\nx.py,," % fields(b"")
    assert (below / "c-1.dist-info/RECORD").read_bytes() == b"x.py,,\n"


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_record_may_end_without_a_line_feed(tree: Path, end: bytes) -> None:
    record = tree / "demo-1.dist-info/RECORD"
    record.parent.mkdir()
    record.write_bytes(b"demo-1.dist-info/RECORD,," + end)
    copy = tree.parent / "copy"
    copy.mkdir()
    list(TreeCopy(TreeSource(tree), copy, {}, {"demo.libs/relink-stubs/libx.so": b"x"}).write())
    lines = (copy / "demo-1.dist-info/RECORD").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "demo-1.dist-info/RECORD",
        "demo.libs/relink-stubs/libx.so",
    ]


@pytest.mark.parametrize("absolute", [False, True])
def test_tree_record_link(tree: Path, *, absolute: bool) -> None:
    """A *.dist-info that is a symbolic link out of the tree: the RECORD there is neither lost nor written, nor taken along."""
    outside = tree.parent / "outside"
    outside.mkdir()
    (outside / "RECORD").write_text("mod/m.so,sha256=old,3\n")
    (tree / "d-1.dist-info").symlink_to(outside if absolute else "../outside")
    (tree / "e-1.dist-info").mkdir()
    (tree / "e-1.dist-info/RECORD").symlink_to("../../outside/RECORD")
    before = snapshot(outside)
    place, _ = copied(tree, {"mod/m.so": b"edited"})
    assert snapshot(outside) == before
    assert (place / "d-1.dist-info").is_symlink()
    assert (place / "e-1.dist-info/RECORD").is_symlink()


def test_a_file_that_is_written_to_meanwhile(tree: Path) -> None:
    archive = TreeSource(tree)
    (tree / "README").write_text("other words")
    (tree.parent / "copy").mkdir()
    with pytest.raises(WheelError, match="README has changed while it was read"):
        list(TreeCopy(archive, tree.parent / "copy", {}).write())


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("tree/lib", "new/lib", "new/bin"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path / "tree", tmp_path / "new"


def named(original: Path, copy: Path, *more: str) -> dict[str, str]:
    """What of each file leads to the original."""
    found = [*find_references(copy, copy, (str(original), *more))]
    assert {one.code for one in found} <= {"RLK544"}
    assert all(one.message.endswith(f" leads to {original}") for one in found)
    return {one.subject: one.message.removeprefix("its ").partition(" leads to ")[0] for one in found}


def test_each_kind_of_file(places: tuple[Path, Path]) -> None:
    tree, new = places
    (new / "lib/a.so").write_bytes(build(Library("a.so", runpath=f"$ORIGIN:{tree}/lib")))
    (new / "lib/b.so").write_bytes(build(Library("b.so", needed=(f"{tree}/lib/x.so",))))
    (new / "bin/s").write_text(f"#!{tree}/bin/python3\n")
    (new / "bin/t").write_text(f"#!/bin/sh\n'''exec' {tree}/bin/python3 \"$0\"\n")
    (new / "lib/l").symlink_to(f"{tree}/lib/x")
    (new / "lib/r").symlink_to("../../tree/lib")
    (new / "p.pth").write_text(f"{tree}\n")
    (new / "q.pth").write_text("# words\nimport os\n../tree/lib\n")
    (new / "i.pth").write_text(
        "importance/../../tree/lib\n"
    )  # a path, to site.py too: no space comes after import
    (new / "h.pc").write_text(f"prefix={tree}\n")
    assert named(tree, new) == {
        "lib/a.so": "search path",
        "lib/b.so": "NEEDED or interpreter",
        "bin/s": "text",
        "bin/t": "text",
        "lib/l": "target",
        "lib/r": "target",
        "p.pth": "text",
        "q.pth": "path",
        "i.pth": "path",
        "h.pc": "text",
    }


def test_what_stays_in_the_copy_or_leads_elsewhere(places: tuple[Path, Path]) -> None:
    tree, new = places
    runpath = f"$ORIGIN/../lib:${{ORIGIN}}:/opt/rocm/lib:{tree}.2/lib:"
    (new / "lib/a.so").write_bytes(build(Library("a.so", runpath=runpath, needed=("libc.so.6",))))
    (new / "lib/damaged.so").write_bytes(b"\x7fELF" + str(tree).encode())
    (new / "lib/l").symlink_to("../bin/s")
    (new / "bin/s").write_text("#!/usr/bin/env python3\n")
    (new / "bin/empty").write_text("#!")
    (new / "p.pth").write_text("lib\n../elsewhere\n")
    (new / "h.pc").write_text(f"prefix=${{pcfiledir}}/../..\nother={tree}-2\n")
    (new / "notes").write_text(f"built in {tree}\n")
    assert named(tree, new) == {}


def test_by_a_link_and_by_another_name(places: tuple[Path, Path]) -> None:
    tree, new = places
    (tree.parent / "rocm").symlink_to(tree)
    (new / "lib/a.so").write_bytes(build(Library("a.so", runpath=f"{tree.parent}/rocm/lib")))
    assert named(tree, new) == {"lib/a.so": "search path"}
    (new / "lib/a.so").write_bytes(build(Library("a.so")))
    (new / "h.pc").write_text(f"prefix={tree.parent}/rocm\n")
    assert named(tree, new) == {}
    assert named(tree, new, f"{tree.parent}/rocm") == {"h.pc": "text"}


ELF = build(Library("libx.so.1"))


def tree_of(root: Path) -> Path:
    (root / "t/lib").mkdir(parents=True)
    (root / "t/lib/libx.so.1.0").write_bytes(ELF)
    (root / "t/lib/libx.so.1").symlink_to("libx.so.1.0")
    (root / "t/z.so").write_bytes(ELF + b"more")
    (root / "t/text").write_text("text")
    (root / "t/kernels.hsaco").write_bytes(code_object())
    os.mkfifo(root / "t/pipe")
    (root / "t/up").symlink_to("..")
    return root / "t"


def test_members_are_the_elf_files(tmp_path: Path) -> None:
    archive = TreeSource(tree_of(tmp_path))
    assert {name: member.size for name, member in archive.members.items()} == {
        "z.so": len(ELF) + 4,
        "lib/libx.so.1.0": len(ELF),
    }
    assert archive.links == {"lib/libx.so.1": "libx.so.1.0", "up": ".."}
    assert set(archive.entries) == {
        "",
        "lib",
        "pipe",
        "text",
        "kernels.hsaco",
        *archive.members,
        *archive.links,
    }
    assert bytes(archive.read_into("z.so")) == ELF + b"more"
    assert archive.sha256() == TreeSource(tmp_path / "t").sha256()


def test_a_large_file_is_read_where_it_is_asked_for(tmp_path: Path) -> None:
    tree, data = tree_of(tmp_path), ELF + os.urandom(9 << 20)
    (tree / "large.so").write_bytes(data)
    archive = TreeSource(tree)
    content, _ = archive.read_lazily("large.so")
    assert content[:ENDS] == data[:ENDS]
    assert content[-ENDS:] == data[-ENDS:]
    assert not any(content[ENDS : 7 << 20])
    assert take(content, 5 << 20, (6 << 20) + 9) == data[5 << 20 : (6 << 20) + 9]
    assert not any(content[ENDS : 5 << 20])
    fill(content, 0, len(content))
    assert bytes(content) == data
    content, _ = archive.read_lazily("large.so")
    (tree / "large.so").write_bytes(data)  # as it was, at another time
    with pytest.raises(WheelError, match="has changed while it was read"):
        fill(content, ENDS, 4 << 20)


@pytest.mark.few(1, reason="the same of other values")
def test_a_file_that_there_is_no_room_for_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OverflowError("memory mapped size must be positive")

    monkeypatch.setattr("relink.wheel.deflate.ranges.LazyMemory", refuse)
    with pytest.raises(RelinkError, match=r"'z\.so' has \d+ bytes, more than there is room for"):
        TreeSource(tree_of(tmp_path)).read_lazily("z.so")


@pytest.mark.parametrize("in_store", [False, True])
def test_what_is_in_the_store_is_synced_by_nix(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_store: bool
) -> None:
    item = tmp_path / "0123456789abcdfghijklmnpqrsvwxyz-package"
    item.mkdir()
    monkeypatch.setenv("NIX_STORE_DIR", str(tmp_path if in_store else tmp_path / "store"))
    synced: list[Path] = []
    monkeypatch.setattr(atomic, "sync_file_system", synced.append)
    assert relink.relink_tree(tree, Options(output_directory=item / "new")).ok
    assert bool(synced) is not in_store


def test_what_changes_while_it_is_read(tmp_path: Path) -> None:
    archive = TreeSource(tree_of(tmp_path))
    (tmp_path / "t/z.so").write_bytes(ELF)
    with pytest.raises(WheelError, match="has changed while it was read"):
        archive.read_into("z.so")
    (tmp_path / "t/z.so").write_bytes(ELF * 3)
    with pytest.raises(WheelError, match="has changed while it was read"):
        archive.read_into("z.so")
    (tmp_path / "t/z.so").unlink()
    with pytest.raises(WheelError, match="cannot be read"):
        archive.read_into("z.so")


def test_a_directory_that_becomes_a_link_meanwhile_leads_nowhere(tmp_path: Path) -> None:
    archive = TreeSource(tree_of(tmp_path))
    (tmp_path / "t/lib").rename(tmp_path / "outside")
    (tmp_path / "t/lib").symlink_to("../outside")
    with pytest.raises(WheelError, match="lies outside of"):
        archive.open_file("lib/libx.so.1.0")


def test_limits_and_nothing_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="more than 2 files"):
        TreeSource(tree_of(tmp_path), limits=WheelLimits(members=2))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no ELF file is in it"):
        TreeSource(tmp_path / "empty")
