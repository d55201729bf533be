"""trees.records: RECORD says what is there after files were exchanged."""

from __future__ import annotations

import base64
from hashlib import sha256
from pathlib import Path

from relink.trees.records import Hashes, new_records


def test_only_the_lines_of_changed_files_change(tmp_path: Path) -> None:
    info = tmp_path / "x-1.dist-info"
    info.mkdir()
    text = (
        'x/a.so,sha256=old,3\r\n"x/b,c.so",sha256=old,4\nx/other.py,sha256=same,5\nx-1.dist-info/RECORD,,\n'
    )
    (info / "RECORD").write_bytes(text.encode())
    hashes = Hashes()
    assert b"".join(map(bytes, hashes.of("x/a.so", [b"ab", b"c"]))) == b"abc"
    list(hashes.of("x/b,c.so", [b""]))
    (name, pieces), *more = new_records(tmp_path, {}, {"x/a.so", "x/b,c.so"}, hashes).items()
    assert not more
    assert name == "x-1.dist-info/RECORD"

    def line(data: bytes) -> str:
        return f"sha256={base64.urlsafe_b64encode(sha256(data).digest()).rstrip(b'=').decode()},{len(data)}"

    assert b"".join(pieces).decode() == (
        f'x/a.so,{line(b"abc")}\r\n"x/b,c.so",{line(b"")}\nx/other.py,sha256=same,5\nx-1.dist-info/RECORD,,\n'
    )


def test_a_record_of_others_and_one_that_cannot_be_read(tmp_path: Path) -> None:
    for name, data in (("a-1.dist-info", b"y.so,,\n"), ("b-1.dist-info", b"\xff,x.so\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "RECORD").write_bytes(data)
    assert new_records(tmp_path, {}, {"x.so"}, Hashes()) == {}


def test_the_original_is_taken_where_there_is_one(tmp_path: Path) -> None:
    (tmp_path / "a-1.dist-info").mkdir()
    (tmp_path / "a-1.dist-info/RECORD").write_bytes(b"x.so,changed,\n")
    (tmp_path / "kept").write_bytes(b"x.so,,\nonly here,,\n")
    hashes = Hashes()
    list(hashes.of("x.so", [b"x"]))
    found = new_records(tmp_path, {"a-1.dist-info/RECORD": tmp_path / "kept"}, {"x.so"}, hashes)
    assert b"only here" in b"".join(found["a-1.dist-info/RECORD"])
