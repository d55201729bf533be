"""wheel.source: a wheel, a tree and an installed distribution are read by one driver, and give the same facts."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relink.indexes.install.checking import InstalledSource
from relink.planning.contents import Contents
from relink.planning.reading import read_members
from relink.runs.relink_tree import TreeSource
from relink.system.errors import MemberError, WheelError
from relink.system.spool import Spool
from relink.wheel.archive import WheelArchive
from relink.wheel.source import MemberSource, read_member, read_prefix
from tests.support.works import Works

INFO = "demo-1.0.dist-info"


@pytest.fixture
def unpacked(works: Works, tmp_path: Path) -> Path:
    with zipfile.ZipFile(works.small(tmp_path)) as archive:
        archive.extractall(tmp_path / "site")
    return tmp_path / "site"


def installed(unpacked: Path) -> InstalledSource:
    names = [path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()]
    return InstalledSource(unpacked, INFO, sorted(names))


MAKE: dict[str, Callable[[Path], MemberSource]] = {
    "wheel": lambda unpacked: WheelArchive(next(unpacked.parent.glob("*.whl"))),
    "tree": TreeSource,
    "installed": installed,
}


@pytest.fixture(params=MAKE)
def source(request: pytest.FixtureRequest, unpacked: Path) -> Iterator[MemberSource]:
    made = MAKE[request.param](unpacked)
    yield made
    made.close()


def test_a_member_is_read_whole_in_part_and_into_a_buffer(source: MemberSource, unpacked: Path) -> None:
    content = (unpacked / "demo/a.so").read_bytes()
    assert source.may_be_elf("demo/a.so")
    assert b"".join(source.chunks("demo/a.so")) == read_member(source, "demo/a.so") == content
    assert read_prefix(source, "demo/a.so", 4) == b"\x7fELF"
    assert bytes(source.read_into("demo/a.so")) == content
    assert bytes(source.read_into("demo/a.so", spool=Spool(unpacked.parent, 16, 16))) == content


def test_the_same_files_give_the_same_facts(source: MemberSource, works: Works) -> None:
    with Contents(source.path, source=source, keeps=False) as contents:
        wheel = read_members(contents)
        assert [*wheel.images] == ["demo/a.so"]
        assert wheel.images["demo/a.so"].needed[0] == "libhip.so.7"
        assert "hip" in [imported.name for imported in wheel.tables["demo/a.so"].imports]
    assert works.prefix.is_dir()


def test_a_file_that_is_gone_is_that_files_error(unpacked: Path) -> None:
    """Others of the environment are looked at all the same."""
    source = installed(unpacked)
    (unpacked / "demo/a.so").unlink()
    with pytest.raises(MemberError, match="cannot be read"):
        source.read_into("demo/a.so")
    with Contents(source.path, source=source, keeps=False) as contents:
        assert [(one.code, one.subject) for one in read_members(contents).findings] == [
            ("RLK506", "demo/a.so")
        ]
    assert installed(unpacked).absent == []
    assert InstalledSource(unpacked, INFO, ["demo/a.so"]).absent == ["demo/a.so"]


def test_a_member_that_is_none(unpacked: Path) -> None:
    with pytest.raises(WheelError, match="has no member 'x'"):
        read_member(MAKE["wheel"](unpacked), "x")
