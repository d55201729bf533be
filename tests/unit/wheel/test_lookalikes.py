"""What people pass where a wheel is expected: each is told in one sentence with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.wheel.lookalikes import not_a_wheel
from tests.support.command import Run
from tests.support.works import Works


def test_a_wheel_that_is_not_there(run: Run) -> None:
    code, _, err = run("demo-1.0-py3-none-any.whl")
    assert code == 2
    assert "demo-1.0-py3-none-any.whl cannot be opened: No such file or directory" in err


# Files that are no wheels


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("demo-1.0.tar.gz", "is a source distribution, and relink takes wheels"),
        ("demo-1.0.zip", "is a source distribution, and relink takes wheels"),
        ("demo-1.0-0.conda", "is a package of conda's"),
        ("demo_1.0_amd64.deb", "is a package of Debian's"),
    ],
)
def test_a_file_of_another_kind(run: Run, tmp_path: Path, name: str, sentence: str) -> None:
    (tmp_path / name).write_bytes(b"\x1f\x8b")
    for command in ([], ["inspect"], ["verify"]):
        code, out, err = run(*command, tmp_path / name)
        assert (code, out) == (2, "")
        assert sentence in err
        assert err.count("\n") == 1


def test_a_directory(run: Run, works: Works, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    assert "there is no wheel in it" in run(tmp_path / "d")[2]
    (tmp_path / "d" / "pyproject.toml").touch()
    assert f"build one: pip wheel --no-deps {tmp_path}/d" in run(tmp_path / "d")[2]
    wheel = works.small(tmp_path / "d")
    code, _, err = run(tmp_path / "d")
    assert code == 2
    assert f"pass those in it: {wheel}" in err


def test_what_may_be_a_wheel_is_opened(tmp_path: Path) -> None:
    (tmp_path / "store-name").touch()
    assert not_a_wheel(tmp_path / "store-name") is None
    assert not_a_wheel(tmp_path / "gone.tar.gz") is None
