"""How two wheels differ as ZIP files, whatever their members hold."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from relink.comparison import diff
from relink.comparison.container import differences, entries
from relink.wheel.archive import WheelArchive
from tests.support.wheels import make_wheel
from tests.unit.comparison.pairs import INFO

Change = Callable[[zipfile.ZipInfo], None]


def rewritten(
    wheel: Path,
    directory: Path,
    change: Change = lambda _: None,
    *,
    only: str = "",
    comment: bytes = b"",
    order: Callable[[list[str]], list[str]] = lambda names: names,
    record: Callable[[bytes], bytes] = lambda data: data,
) -> Path:
    """Copy a wheel; `change` gets the header of each member whose name ends with `only`."""
    directory.mkdir()
    path = directory / wheel.name
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(path, "w") as sink:
        for name in order(source.namelist()):
            data, item = source.read(name), source.getinfo(name)
            if name.endswith("/RECORD"):
                data = record(data)
            if name.endswith(only):
                change(item)
            sink.writestr(item, data)
        sink.comment = comment
    return path


def said(old: Path, new: Path) -> tuple[str, ...]:
    with WheelArchive(old) as before, WheelArchive(new) as after:
        return differences(before, after, {name: name for name in before.members}, ())


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
            "time of 1 members: demo/a.py: 2024-05-01 12:00:00 -> 1999-01-02 03:04:06",
        ),
        (set_attribute("create_system", 0), "create_system of 1 members: demo/a.py: Unix -> DOS"),
        (set_attribute("create_system", 7), "create_system of 1 members: demo/a.py: Unix -> 7"),
        (
            set_attribute("compress_type", zipfile.ZIP_STORED),
            "method of 1 members: demo/a.py: deflated -> stored",
        ),
        (
            set_attribute("comment", b"hid\x1b"),
            "comment of 1 members: demo/a.py: none -> 4 bytes b'hid\\x1b'",
        ),
        (
            set_attribute("extra", b"\xfe\xca\x02\x00hi"),
            "extra fields of 1 members: demo/a.py: none -> 0xcafe (2 bytes), local 0xcafe (2 bytes)",
        ),
        (
            set_attribute("internal_attr", 1),
            "attributes of 1 members: demo/a.py: 0x0000, internal 0x0000 -> 0x0000, internal 0x0001",
        ),
        (set_attribute("create_version", 63), "ZIP versions of 1 members: demo/a.py: 20, 20 -> 63, 20"),
    ],
)
def test_what_a_header_says_otherwise(wheel: Path, tmp_path: Path, change: Change, line: str) -> None:
    assert said(wheel, rewritten(wheel, tmp_path / "new")) == ()
    assert said(wheel, rewritten(wheel, tmp_path / "other", change, only="a.py")) == (line,)


def test_one_line_for_many_members(wheel: Path, tmp_path: Path) -> None:
    new = rewritten(wheel, tmp_path / "new", set_attribute("create_system", 19))
    assert said(wheel, new) == ("create_system of 5 members: demo/a.py: Unix -> macOS; …",)


def test_the_archive_as_a_whole(wheel: Path, tmp_path: Path) -> None:
    new = rewritten(
        wheel,
        tmp_path / "new",
        comment=b"x" * 50,
        order=lambda names: [names[1], names[0], *names[2:]],
        record=lambda data: data.replace(b"\n", b"\r\n"),
    )
    assert said(wheel, new) == (
        "order of members: demo/b.py where demo/a.py was",
        f"comment of the archive: none -> 50 bytes {b'x' * 40!r}",
        r"line ends of RECORD: \n -> \r\n",
    )
    with WheelArchive(new) as archive:
        found, comment = entries(archive)
    assert ([*found][:2], comment) == (["demo/b.py", "demo/a.py"], b"x" * 50)


def test_the_order_of_records_lines(wheel: Path, tmp_path: Path) -> None:
    new = rewritten(
        wheel,
        tmp_path / "new",
        record=lambda data: b"".join(data.splitlines(keepends=True)[i] for i in (1, 0, 2, 3, 4)),
    )
    assert said(wheel, new) == ("order of RECORD's lines",)


@pytest.mark.few(2, reason="other differences of the same kinds")
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"comment": b"hidden"}, "the archive has a comment, 6 bytes b'hidden'"),
        (
            {"change": set_attribute("comment", b"x"), "only": "plain.so"},
            "demo/plain.so: comment 1 bytes b'x', relink writes none",
        ),
        (
            {"change": set_attribute("create_system", 0), "only": "relink.json"},
            f"{INFO}/relink.json: create_system DOS, relink writes Unix",
        ),
        (
            {"change": set_attribute("date_time", (1999, 1, 2, 3, 4, 6)), "only": "relink.json"},
            "members that relink writes have several times: 1999-01-02 03:04:06, ",
        ),
        (
            {"order": lambda names: [names[1], names[0], *names[2:]]},
            "order of members: relink does not write ",
        ),
        (
            {"record": lambda data: data.replace(b"\n", b"\r\n")},
            f"{INFO}/RECORD: its lines are not in the order of the members, or not written as relink writes them",
        ),
    ],
)
def test_what_relink_does_not_write(
    pair: tuple[Path, Path], tmp_path: Path, arguments: dict[str, Callable[..., object]], sentence: str
) -> None:
    """A relinked wheel with the contents of the plan is not relink's where its container is another."""
    new = rewritten(pair[1], tmp_path / "new", **arguments)  # type: ignore[arg-type]
    found = diff(pair[0], new)
    assert [text for text in found.unexplained if text.startswith(sentence)]
