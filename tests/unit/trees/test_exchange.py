"""trees.exchange: files exchanged together, and put back, from any point at which a run may have stopped."""

from __future__ import annotations

import contextlib
import json
import os
from hashlib import sha256
from pathlib import Path

import pytest

from relink.errors import UsageError
from relink.trees.exchange import commit, finish, stage, undo
from relink.trees.journal import Journal, held, place_of, read_journal


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "vendor"
    (tree / "lib").mkdir(parents=True)
    for number, name in enumerate(("a", "lib/b")):
        (tree / name).write_bytes(b"old " + name.encode())
        os.utime(tree / name, ns=(10**18 + number, 10**18 + number))
        (tree / name).chmod(0o640)
    return tree


def facts(tree: Path) -> dict[str, tuple[object, ...]]:
    files = (path for path in tree.rglob("*") if path.is_file())
    return {
        str(path.relative_to(tree)): (
            path.read_bytes(),
            path.stat().st_ino,
            path.stat().st_mtime_ns,
            path.stat().st_mode,
        )
        for path in files
    }


def new(tree: Path, *names: str) -> Journal:
    return stage(tree, {name: [b"new ", name.encode()] for name in names})


def test_exchanged_and_put_back(tree: Path) -> None:
    before = facts(tree)
    os.link(tree / "a", tree.parent / "cached")
    with held(tree):
        journal = commit(tree, new(tree, "a", "lib/b"))
    assert [(one.path, one.sha256) for one in journal.files] == [
        (name, sha256(b"new " + name.encode()).hexdigest()) for name in ("a", "lib/b")
    ]
    assert (tree / "a").read_bytes() == b"new a"
    assert (tree / "a").stat().st_mode & 0o777 == 0o640
    assert (tree.parent / "cached").read_bytes() == b"old a"
    assert (tree / "a").stat().st_ino != before["a"][1]
    with held(tree):
        assert undo(tree) == ("a", "lib/b")
    assert facts(tree) == before
    assert not place_of(tree).exists()


def test_the_first_originals_are_kept(tree: Path) -> None:
    before = facts(tree)
    with held(tree):
        commit(tree, new(tree, "a"))
        commit(tree, stage(tree, {"a": [b"newer"], "lib/b": [b"newer"]}))
        assert (tree / "a").read_bytes() == b"newer"
        commit(tree, stage(tree, {"a": [b"newest"]}, back=["lib/b"]))
        assert facts(tree)["lib/b"] == before["lib/b"]
        assert [one.path for one in read_journal(tree).files] == ["a"]
        undo(tree)
    assert facts(tree) == before


def test_what_is_there_already_is_not_exchanged(tree: Path) -> None:
    with held(tree):
        commit(tree, new(tree, "a"))
        there = facts(tree)
        assert new(tree, "a").pending == ()
        finish(tree)
        assert facts(tree) == there


def test_a_run_that_stopped_before_it_was_committing_is_taken_back(tree: Path) -> None:
    before = facts(tree)
    with held(tree):
        new(tree, "a", "lib/b")
    assert len(facts(tree)) == 4
    with held(tree):
        assert finish(tree) == "a run that had changed nothing yet was taken back"
    assert facts(tree) == before
    assert not place_of(tree).exists()


@pytest.mark.parametrize("stops", range(7))
def test_a_run_that_stopped_while_it_was_committing_is_completed(
    tree: Path, monkeypatch: pytest.MonkeyPatch, stops: int
) -> None:
    """Stopped at each of its renames and links in turn."""
    calls = iter(range(stops, -1, -1))

    class StoppedError(Exception):
        pass

    with held(tree), monkeypatch.context() as patch:
        journal = new(tree, "a", "lib/b")
        for name in ("link", "replace"):

            def call(*arguments: str, real: object = getattr(os, name), **named: bool) -> None:
                if next(calls, None) == 0:
                    raise StoppedError
                real(*arguments, **named)  # type: ignore[operator]

            patch.setattr(os, name, call)
        with contextlib.suppress(StoppedError):  # the last of them has fewer calls
            commit(tree, journal)
    with held(tree):
        finish(tree)
        state = [(tree / name).read_bytes() for name in ("a", "lib/b")]
        committed = state == [b"new a", b"new lib/b"]
        assert committed or (stops == 0 and state == [b"old a", b"old lib/b"])
        assert len(facts(tree)) == 2
        if committed:
            undo(tree)
    assert [(tree / name).read_bytes() for name in ("a", "lib/b")] == [b"old a", b"old lib/b"]


def test_on_another_file_system_originals_are_copied(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: found[:1] + found[2:] for name, found in facts(tree).items()}
    real = os.replace

    def link(*_: object, **__: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    def replace(source: Path, target: Path) -> None:
        if Path(source).parent == place_of(tree) and Path(target).parent != place_of(tree):
            raise OSError(18, "Invalid cross-device link")
        real(source, target)

    monkeypatch.setattr(os, "link", link)
    monkeypatch.setattr(os, "replace", replace)
    with held(tree):
        commit(tree, new(tree, "a", "lib/b"))
    with held(tree):
        undo(tree)
    assert {name: found[:1] + found[2:] for name, found in facts(tree).items()} == before
    assert not place_of(tree).exists()


def test_a_file_that_was_changed_since(tree: Path) -> None:
    with held(tree):
        commit(tree, new(tree, "a", "lib/b"))
        (tree / "lib/b").write_bytes(b"upgraded")
        with pytest.raises(UsageError, match="lib/b changed since relink wrote it"):
            undo(tree)
    assert (tree / "a").read_bytes() == b"new a"


def test_nothing_to_undo(tree: Path) -> None:
    with held(tree), pytest.raises(UsageError, match="nothing to undo"):
        undo(tree)
    assert not place_of(tree).exists()


def test_what_cannot_be_written_is_told(tree: Path) -> None:
    with held(tree):
        with pytest.raises(UsageError, match="cannot be written"):
            stage(tree, {"a": [b"x"], "lib/missing": [b"x"]})
        finish(tree)
    assert len(facts(tree)) == 2
    assert json.dumps(sorted(facts(tree))) == '["a", "lib/b"]'
