"""trees.journal: who may work on a tree, and what is read of the journal of an earlier run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from relink.errors import UsageError
from relink.trees.exchange import finish
from relink.trees.journal import held, place_of
from tests.unit.trees.test_exchange import facts


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "vendor/lib").mkdir(parents=True)
    (tmp_path / "vendor/a").write_bytes(b"old")
    return tmp_path / "vendor"


def test_one_at_a_time(tree: Path) -> None:
    program = f"from pathlib import Path\nfrom relink.trees.journal import held\nwith held(Path({str(tree)!r})): pass"
    with held(tree):
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "another relink works on it" in run.stderr


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"state": "done"}',
        '{"state": "done", "files": [{"path": "../a", "kept": "0", "sha256": ""}], "pending": []}',
        '{"state": "done", "files": [{"path": "/a", "kept": "0", "sha256": ""}], "pending": []}',
        '{"state": "done", "files": [{"path": "a", "kept": "../a", "sha256": ""}], "pending": []}',
        '{"state": "staging", "files": [], "pending": [{"path": "a", "kept": "0", "temporary": "../../x"}]}',
        '{"state": "done", "files": [{"path": 1, "kept": "0", "sha256": ""}], "pending": []}',
        '{"state": "done", "files": [{"path": "a", "kept": "0", "sha256": "", "more": 1}], "pending": []}',
    ],
)
def test_a_journal_that_is_damaged_or_not_relinks(tree: Path, text: str) -> None:
    before = facts(tree)
    place_of(tree).mkdir()
    (place_of(tree) / "journal.json").write_text(text)
    with held(tree), pytest.raises(UsageError, match=r"journal\.json"):
        finish(tree)
    assert facts(tree) == before
