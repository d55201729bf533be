"""trees.exchange: files exchanged together, and put back, from any point at which a run may have stopped."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from relink.errors import UsageError
from relink.trees.exchange import commit, finish, stage, undo
from relink.trees.journal import Journal, held, place_of, read_journal
from relink.trees.obstacles import exchange_names


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
        assert commit(tree, new(tree, "a", "lib/b")) is None
    assert [(one.path, one.sha256) for one in read_journal(tree).files] == [
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
    assert facts(tree) == before
    with held(tree):
        assert finish(tree) == "a run that had changed nothing yet was taken back"
    assert facts(tree) == before
    assert not place_of(tree).exists()


class StoppedError(BaseException):
    """Ends a run as a kill does."""


def stop_at(number: int, patch: pytest.MonkeyPatch) -> None:
    """Stop at one of the calls that give, take or exchange names; the probes in the journal's directory do not count."""
    calls = iter(range(number, -1, -1))

    def stopping(real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: Any, **named: Any) -> object:
            probe = re.search(r"\.relink-\d+-", " ".join(map(str, arguments)))
            if not probe and next(calls, None) == 0:
                raise StoppedError
            return real(*arguments, **named)

        return call

    for name in ("link", "replace", "unlink", "rmdir", "mkdir", "chmod", "utime"):
        patch.setattr(os, name, stopping(getattr(os, name)))
    patch.setattr("relink.trees.exchange.exchange_names", stopping(exchange_names))


@pytest.mark.few(2, reason="the other calls of the same runs")
@pytest.mark.parametrize(
    ("start", "mode"), [(at, mode) for at in range(3) for mode in ("one step", "file by file")]
)
def test_a_run_that_stops_anywhere(
    tree: Path, monkeypatch: pytest.MonkeyPatch, start: int, mode: str
) -> None:
    """Stopped at each of its calls in turn: relinks and undos. In one step, a stop never leaves a mixture."""
    one_step = mode == "one step"
    if not one_step:
        monkeypatch.setattr("relink.trees.exchange.obstacle", lambda *_: "a reason")
    before, outcomes = facts(tree), set()

    def state() -> str:
        found = [(tree / name).read_bytes()[:3] for name in ("a", "lib/b")]
        return {(b"old", b"old"): "old", (b"new", b"new"): "new"}.get((found[0], found[1]), "mixture")

    for number in range(start, 200, 3):
        ended = 0
        for action in ("relink", "undo"):
            with held(tree), monkeypatch.context() as patch, contextlib.suppress(StoppedError):
                journal = new(tree, "a", "lib/b") if action == "relink" else None
                stop_at(number, patch)
                if journal:
                    commit(tree, journal)
                else:
                    undo(tree)
                ended += 1
            stopped = state()
            with held(tree):
                finish(tree)
                finished = state()
                outcomes.add((action, stopped, finished))
                assert finished in ("old", "new")
                assert stopped in (("old", "new") if one_step else ("old", "new", "mixture"))
                if finished == "old" and action == "relink":
                    assert facts(tree) == before
                    commit(tree, new(tree, "a", "lib/b"))
                if finished == "new" and action == "undo":
                    undo(tree)
            left = sorted(os.listdir(place_of(tree))) if place_of(tree).exists() else []
            assert left == (["0", "1", "journal.json"] if action == "relink" else [])
        assert facts(tree) == before
        if ended == 2:
            break
    else:
        pytest.fail("a run of two files makes more than 200 calls")
    assert {(action, end) for action, _, end in outcomes} >= {("relink", "new"), ("undo", "old")}
    assert any(stopped == "mixture" for _, stopped, _ in outcomes) is not one_step


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
