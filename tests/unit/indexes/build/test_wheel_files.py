"""index.wheel_files: a wheel and what lies beside it appear together, once."""

from __future__ import annotations

import hashlib
from pathlib import Path

from relink.indexes.build.wheel_files import place_wheel
from relink.indexes.install.cache import cache_directory
from tests.support.wheels import make_wheel


def test_one_directory_for_one_content(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    wheel = make_wheel(tmp_path / "from", {"demo/x.py": b""}, tag="py3-none-any")
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    for place in (tmp_path / "one", tmp_path / "two"):
        place.mkdir()
        facts = place_wheel(wheel, files, place, {"_type": "x"})
    final = files / sha256[:2] / sha256
    assert sorted(path.name for path in final.iterdir()) == [
        wheel.name,
        f"{wheel.name}.intoto.json",
        f"{wheel.name}.metadata",
    ]
    assert (facts["sha256"], facts["size"], facts["statement"]) == (sha256, wheel.stat().st_size, True)
    assert facts["metadata"] == hashlib.sha256((final / f"{wheel.name}.metadata").read_bytes()).hexdigest()
    assert final.stat().st_mode & 0o777 == 0o755
    assert (final / wheel.name).stat().st_nlink == 1  # a file of the user's may change later: it is copied
    wheel.write_bytes(b"changed")
    assert hashlib.sha256((final / wheel.name).read_bytes()).hexdigest() == sha256


def test_what_is_damaged_is_replaced(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    wheel = make_wheel(tmp_path / "from", {"demo/x.py": b""}, tag="py3-none-any")

    def placed(number: int) -> Path:
        (tmp_path / str(number)).mkdir()
        facts = place_wheel(wheel, files, tmp_path / str(number), {"_type": "x"})
        return Path(files, facts["sha256"][:2], facts["sha256"], wheel.name)

    final = placed(0)
    for number, name in enumerate(("", ".metadata", ".intoto.json"), 1):
        path = final.with_name(f"{wheel.name}{name}")
        before = path.read_bytes()
        path.unlink()
        placed(2 * number)
        assert path.read_bytes() == before
        if name != ".intoto.json":
            path.write_bytes(b"damaged")
            placed(2 * number + 1)
            assert path.read_bytes() == before


def test_a_file_of_the_cache_is_not_there_twice(tmp_path: Path) -> None:
    wheel = make_wheel(cache_directory() / "x", {"demo/x.py": b""}, tag="py3-none-any")
    (tmp_path / "files").mkdir()
    (tmp_path / "place").mkdir()
    facts = place_wheel(wheel, tmp_path / "files", tmp_path / "place", None)
    assert wheel.stat().st_nlink == 2
    assert not facts["statement"]
