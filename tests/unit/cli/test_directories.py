"""`relink DIR -o NEWDIR` as a command; what the copy is like is in tests/unit/trees."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support import forking
from tests.support.cc import cc, shared
from tests.support.command import Run
from tests.unit.runs.build_trees import make_vendor_tree, snapshot


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_vendor_tree(tmp_path / "vendor")


def ran(tree: Path) -> bool:
    return subprocess.run([tree / "bin/driver"], capture_output=True, check=False).stdout == b"ran\n"


def test_a_tree_that_has_all_it_needs(tree: Path, tmp_path: Path) -> None:
    before = snapshot(tree)
    assert not ran(tree)
    done = forking.run(tree, "-o", tmp_path / "new", "--report", tmp_path / "page.html")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-2] == f"{tmp_path / 'new'} is the relinked copy; {tree} is as it was."
    assert "$ORIGIN/../core/lib" in done.stdout
    assert "pip install" not in done.stdout
    assert (tmp_path / "page.html").exists()
    assert ran(tmp_path / "new")
    assert snapshot(tree) == before


def test_check_of_a_tree(run: Run, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a directory without a Python; what is printed next is typed, and mends it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tree / "core/lib"))
    before = snapshot(tree)
    code, out, _ = run("check", "vendor/tree")
    first, *lines = out.splitlines()
    assert code == 1
    assert first == (
        "vendor/tree: Does not load: 1 library is missing. LD_LIBRARY_PATH of this shell is not counted."
    )
    assert lines[:2] == ["  bin/driver: libhip.so.7 not found", "  mod/m.so: libhip.so.7 not found"]
    assert lines[-1] == "    relink vendor/tree -o tree-relinked"
    assert snapshot(tree) == before
    assert run(*lines[-1].split()[1:])[0] == 0
    monkeypatch.delenv("LD_LIBRARY_PATH")
    assert ran(tmp_path / "tree-relinked")
    assert run("check", "tree-relinked")[:2] == (0, "tree-relinked: Loads; checked by ld.so for 3 files.\n")
    assert run("check", "vendor/tree")[1].endswith("-o tree-relinked-again\n")
    monkeypatch.chdir(tree)
    assert run("check", ".")[1].endswith(f"    relink . -o {tree}-relinked\n")


def test_check_of_a_tree_for_programs(run: Run, tree: Path) -> None:
    code, out, _ = run("check", tree, "--output-format", "json")
    document = json.loads(out)
    assert (code, document["commands"]) == (1, [f"relink {tree} -o tree-relinked"])
    assert document["maps"]["bin/driver"]["missing"] == ["libhip.so.7"]
    assert {name for name, mapped in document["maps"].items() if str(tree) in str(mapped["objects"])} == {
        "mod/m.so",
        "core/lib/libhip.so.7.2",
    }


def test_a_plugin_finds_symbols_in_the_program(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    shared(tmp_path / "t/plugin.so", "int host(void); int run(void){return host();}")
    assert run("check", tmp_path / "t")[0] == 1
    cc("int host(void){return 3;} int main(void){return 0;}", tmp_path / "t/program", "-rdynamic")
    assert run("check", tmp_path / "t")[0] == 0


def test_what_cannot_be_checked(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, _, err = run("check", tmp_path / "empty")
    assert (code, "no ELF file is in it" in err) == (2, True)
    code, _, err = run("check", tmp_path / "empty", "--why", "numpy")
    assert (code, "--why is for an environment" in err) == (2, True)
    assert run("check", tmp_path / "none")[0] == 2


def test_nothing_is_said_of_a_copy_that_is_not_there(tree: Path, tmp_path: Path) -> None:
    done = forking.run(tree, "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    assert "relinked copy" not in done.stdout
    assert forking.run(tree, "-o", tmp_path / "new", "--quiet").stdout == ""


def test_memory_is_bounded_as_for_a_wheel(tree: Path, tmp_path: Path) -> None:
    refused = forking.run(tree, "-o", tmp_path / "new", "--max-memory", "255")
    assert (refused.returncode, "255" in refused.stderr) == (2, True)
    assert forking.run(tree, "-o", tmp_path / "new", "--max-memory", "300").returncode == 0
    assert ran(tmp_path / "new")


def test_what_cannot_be_asked_for(tree: Path, tmp_path: Path) -> None:
    before = snapshot(tree)
    wheel = tmp_path / "demo-1.0-py3-none-any.whl"
    new = tmp_path / "new"
    for words, reason in {
        (tree,): "its relinked copy has no name; name by --output a directory that does not exist",
        (tree, "-o", tmp_path): "is there already",
        (tree, wheel, "-o", new): "a directory is relinked alone",
        (
            tree,
            "-o",
            new,
            "--no-verify-record",
            "--compress",
            "small",
        ): "--compress, --no-verify-record: for wheels",
    }.items():
        done = forking.run(*words)
        assert (done.returncode, reason in done.stderr) == (2, True), done.stderr
    (tree / "pyproject.toml").touch()
    done = forking.run(tree, "-o", new)
    assert (done.returncode, "is a directory with sources" in done.stderr) == (2, True)
    (tree / "pyproject.toml").unlink()
    assert not new.exists()
    assert {name: facts[6] for name, facts in snapshot(tree).items()} == {
        name: facts[6] for name, facts in before.items()
    }
