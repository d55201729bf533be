"""How two wheels differ as ZIP files, whatever their members hold."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from relink.runs.comparison.container import differences
from relink.wheel.archive import WheelArchive
from tests.support.wheels import make_wheel

NOON = (2024, 5, 1, 12, 0, 0)
Change = Callable[[zipfile.ZipInfo], None]


def rewritten(
    wheel: Path,
    directory: Path,
    change: Change = lambda _: None,
    *,
    only: str = "",
    comment: bytes = b"",
    order: Callable[[list[str]], list[str]] = lambda names: names,
) -> Path:
    """Copy a wheel; `change` gets the header of each member whose name ends with `only`."""
    directory.mkdir()
    path = directory / wheel.name
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(path, "w") as sink:
        for name in order(source.namelist()):
            data, item = source.read(name), source.getinfo(name)
            if name.endswith(only):
                change(item)
            sink.writestr(item, data)
        sink.comment = comment
    return path


def said(old: Path, new: Path) -> tuple[str, ...]:
    with WheelArchive(old) as before, WheelArchive(new) as after:
        return differences(before, after, {name: name for name in before.members})


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return make_wheel(tmp_path / "old", {"demo/a.py": b"a = 1\n" * 50, "demo/b.py": b"b = 2\n"})


def set_attribute(name: str, value: object) -> Change:
    return lambda item: setattr(item, name, value)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            set_attribute("date_time", (1999, 1, 2, 3, 4, 6)),
            f"time of 1 members: demo/a.py: {(NOON, NOON)} -> {((1999, 1, 2, 3, 4, 6),) * 2}",
        ),
        (set_attribute("create_system", 0), "create_system of 1 members: demo/a.py: 3 -> 0"),
        (
            set_attribute("compress_type", zipfile.ZIP_STORED),
            "method of 1 members: demo/a.py: 8 -> 0",
        ),
        (
            set_attribute("comment", b"hid\x1b"),
            "comment of 1 members: demo/a.py: b'' -> b'hid\\x1b'",
        ),
        (
            set_attribute("extra", b"\xfe\xca\x02\x00hi"),
            "extra fields of 1 members: demo/a.py: ((b'',), (b'',)) -> (((51966, b'hi'), b''), ((51966, b'hi'), b''))",
        ),
        (
            set_attribute("internal_attr", 1),
            "attributes of 1 members: demo/a.py: (0, 0) -> (0, 1)",
        ),
        (
            set_attribute("create_version", 63),
            "ZIP versions of 1 members: demo/a.py: (20, 20, 20) -> (63, 20, 20)",
        ),
    ],
)
def test_what_a_header_says_otherwise(wheel: Path, tmp_path: Path, change: Change, line: str) -> None:
    assert said(wheel, rewritten(wheel, tmp_path / "new")) == ()
    assert said(wheel, rewritten(wheel, tmp_path / "other", change, only="a.py")) == (line,)


def test_one_line_for_many_members(wheel: Path, tmp_path: Path) -> None:
    new = rewritten(wheel, tmp_path / "new", set_attribute("create_system", 19))
    assert said(wheel, new) == ("create_system of 5 members: demo/a.py: 3 -> 19; …",)


def test_the_archive_as_a_whole(wheel: Path, tmp_path: Path) -> None:
    new = rewritten(
        wheel,
        tmp_path / "new",
        comment=b"x" * 50,
        order=lambda names: [names[1], names[0], *names[2:]],
    )
    assert said(wheel, new) == (
        "order of members: demo/b.py where demo/a.py was",
        f"comment of the archive: b'' -> {b'x' * 50!r}",
    )


def test_all_of_long_data_counts(wheel: Path, tmp_path: Path) -> None:
    """Only the beginning is shown, and what follows may be another."""
    comments = [b"x" * 999 + end for end in (b"a", b"b")]
    one, two = (rewritten(wheel, tmp_path / str(data[-1]), comment=data) for data in comments)
    assert len(said(one, two)) == 1


@pytest.mark.parametrize(
    ("at", "data", "line"),
    [
        (4, b"\x3f", "ZIP versions of 1 members: demo/a.py: (20, 20, 20) -> (20, 20, 63)"),
        (10, b"\0\0\x21\x28", f"time of 1 members: demo/a.py: {(NOON, NOON)} -> {(NOON, (2000, 1, 1, 0, 0, 0))}"),
        (6, b"\2", None),
    ],
)  # fmt: skip
def test_a_local_header_alone(wheel: Path, tmp_path: Path, at: int, data: bytes, line: str | None) -> None:
    """Readers that stream take these. A flag that says how hard the compressor tried means nothing."""
    content = bytearray(wheel.read_bytes())
    content[at : at + len(data)] = data
    new = tmp_path / "new" / wheel.name
    new.parent.mkdir()
    new.write_bytes(content)
    assert said(wheel, new) == ((line,) if line else ())
