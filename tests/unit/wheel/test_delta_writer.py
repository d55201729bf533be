"""wheel.delta_writer: the input's bytes come out of every output that says so."""

from __future__ import annotations

import random
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from relink.original import delta_of
from relink.wheel.archive import WheelArchive
from relink.wheel.changes import Addition, Changes, Replacement, WriteOptions
from relink.wheel.naming import parse_wheel_name
from relink.wheel.reverse_delta import DELTA_MEMBER
from relink.wheel.writer import write_wheel
from tests.unit.wheel.build import DIST_INFO, FILENAME, Entry, RawZip, dist_info_files, make_wheel

FILES = {f"demo_pkg/{number}.py": random.Random(number).randbytes(500 * number) for number in range(20)}


def out_of(wheel: Path, output: Path) -> bytes:
    with WheelArchive(output) as relinked:
        delta = delta_of(relinked)
    with WheelArchive(output, filename=wheel.name, delta=delta) as original:
        assert original.comes_out
        assert original.source == output
        assert original.path.name == wheel.name
        with WheelArchive(wheel) as archive:
            assert not archive.comes_out
            assert original.members == archive.members
            assert original.sha256() == archive.sha256()
        original.copy_to(output.with_name("copy"))
    return output.with_name("copy").read_bytes()


def written(wheel: Path, place: Path, changes: Mapping[str, bytes], *removals: str) -> Path:
    place.mkdir()
    name = parse_wheel_name(wheel.name.replace("-1.0-", "-1.0+x-"))
    new = {path: Replacement(data) for path, data in changes.items()}
    more = {f"{DIST_INFO.replace('-1.0', '-1.0+x')}/added": Addition(b"added" * 100)}
    with WheelArchive(wheel) as archive:
        made = Changes(name, new, more, frozenset(removals), delta=True)
        return write_wheel(archive, place, made, WriteOptions(jobs=1)).path


def test_changed_and_removed_members(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, FILES, stored=frozenset({"demo_pkg/3.py"}))
    output = written(
        wheel, tmp_path / "out", {"demo_pkg/5.py": b"other", "demo_pkg/7.py": b""}, "demo_pkg/9.py"
    )
    assert out_of(wheel, output) == wheel.read_bytes()
    with zipfile.ZipFile(output) as archive:
        info = archive.getinfo(f"{DIST_INFO.replace('-1.0', '-1.0+x')}/{DELTA_MEMBER}")
        assert archive.namelist()[-2] == info.filename
        lost = sum(len(FILES[f"demo_pkg/{number}.py"]) for number in (5, 7, 9))
        assert info.file_size < lost + 6000  # and the metadata, and the old directory
    again = written(
        wheel, tmp_path / "again", {"demo_pkg/5.py": b"other", "demo_pkg/7.py": b""}, "demo_pkg/9.py"
    )
    assert again.read_bytes() == output.read_bytes()


def test_what_relink_does_not_write_itself(tmp_path: Path) -> None:
    """Extra fields, descriptors, a gap, an archive whose members lie in another order than its directory lists them."""
    entries = [
        Entry(name.encode(), data, local_extra=b"\xfe\xca\x02\x00xx" if number % 2 else b"", extra=b"")
        for number, (name, data) in enumerate(dist_info_files(FILES).items())
    ]
    wheel = tmp_path / FILENAME
    wheel.write_bytes(RawZip(entries).build())
    try:
        WheelArchive(wheel).close()
    except Exception as error:  # noqa: BLE001
        pytest.skip(str(error))
    assert out_of(wheel, written(wheel, tmp_path / "out", {"demo_pkg/5.py": b"other"})) == wheel.read_bytes()
