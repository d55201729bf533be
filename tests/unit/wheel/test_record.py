from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest

from relink.system.errors import WheelError
from relink.wheel.archive import WheelArchive
from relink.wheel.record import (
    RecordEntry,
    RecordKind,
    check_record,
    find_signatures,
    parse_record,
    read_record,
    render_record,
    verify_member,
    verify_members,
    with_new_hashes,
)
from tests.unit.wheel.build import DIST_INFO, Entry, RawZip, good_entries, make_wheel, write_raw

DATA = b"a = 1\n"
SHA256 = hashlib.sha256(DATA).digest()
B64 = base64.urlsafe_b64encode(SHA256).rstrip(b"=").decode()


def kinds(record: bytes, tmp_path: Path) -> list[tuple[RecordKind, str]]:
    files = {
        "demo_pkg/a.py": DATA,
        "d/": b"",
        f"{DIST_INFO}/RECORD": record,
        f"{DIST_INFO}/RECORD.jws": b"{}",
    }
    with WheelArchive(make_wheel(tmp_path, files)) as archive:
        entries, issues = read_record(archive)
        own = (f"{DIST_INFO}/METADATA", f"{DIST_INFO}/WHEEL")
        found = [*issues, *check_record(entries, archive.members, archive.dist_info)]
        return [(issue.kind, issue.path) for issue in found if issue.path not in own]


GOOD = f"demo_pkg/a.py,sha256={B64},{len(DATA)}\n{DIST_INFO}/RECORD,,\n".encode()
HEX = hashlib.sha256(DATA).hexdigest()
MD5 = base64.urlsafe_b64encode(hashlib.md5(DATA, usedforsecurity=False).digest()).rstrip(b"=").decode()


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        (GOOD, None),
        (GOOD.replace(b"\n", b"\r\n"), None),
        (GOOD.replace(f"sha256={B64}".encode(), b""), RecordKind.NO_HASH),
        (GOOD.replace(f"sha256={B64}".encode(), f"md5={MD5}".encode()), RecordKind.WEAK_HASH),
        (GOOD.replace(f"sha256={B64}".encode(), f"sha256={HEX}".encode()), RecordKind.HEX_HASH),
        (GOOD.replace(b",6\n", b",7\n"), RecordKind.SIZE_MISMATCH),
        (GOOD.replace(b",6\n", b",\n"), None),
        (GOOD + GOOD.splitlines()[0], RecordKind.DUPLICATE),
    ],
)
def test_issues_of_a_member(tmp_path: Path, record: bytes, kind: RecordKind | None) -> None:
    assert kinds(record, tmp_path) == ([(kind, "demo_pkg/a.py")] if kind else [])


def test_missing_and_absent(tmp_path: Path) -> None:
    assert kinds(b"demo_pkg/b.py,,\n", tmp_path) == [
        (RecordKind.ABSENT, "demo_pkg/b.py"),
        (RecordKind.NOT_LISTED, "demo_pkg/a.py"),
    ]


def test_signatures(tmp_path: Path) -> None:
    assert kinds(GOOD + f"{DIST_INFO}/RECORD.jws,,\n".encode(), tmp_path) == [
        (RecordKind.SIGNATURE_LISTED, f"{DIST_INFO}/RECORD.jws")
    ]
    members = [f"{DIST_INFO}/RECORD.p7s", "RECORD.jws", "x/RECORD.p7s", f"{DIST_INFO}/RECORD.jws"]
    assert find_signatures(DIST_INFO, members) == (f"{DIST_INFO}/RECORD.p7s", f"{DIST_INFO}/RECORD.jws")


@pytest.mark.parametrize(
    "line",
    [
        "a",
        "a,,,",
        ",,",
        "a,sha256,1",
        "a,crc32=AAAA,1",
        f"a,sha256={B64[:-1]},1",
        f"a,sha256={B64}=x,1",
        f"a,sha512={B64},1",
        "a,sha256=\u00e9,1",
        "a,sha256=" + "/" * 43 + ",1",
        "a,,-1",
        "a,,1.0",
        "a,,1_0",
        "a,,\u0661",
        "a,," + "9" * 5000,
    ],
)
def test_malformed_lines(line: str) -> None:
    entries, issues = parse_record(f"x,,1\n{line}\n\ny,,2\n".encode())
    assert [entry.path for entry in entries] == ["x", "y"]
    assert [issue.kind for issue in issues] == [RecordKind.MALFORMED]
    assert issues[0].message.startswith("line 2: ")
    assert issues[0].level == "error"


@pytest.mark.parametrize("data", [b'x,,1\n"a,,\ny,,2\n', b'x,,1\n"a"b,,1\n', b"x,,1\n" + b"a" * 200_000])
def test_what_is_not_csv(data: bytes) -> None:
    entries, issues = parse_record(data)
    assert [entry.path for entry in entries] == ["x"]
    assert [issue.kind for issue in issues] == [RecordKind.MALFORMED]


def test_not_utf8() -> None:
    with pytest.raises(WheelError, match="RECORD is not UTF-8"):
        parse_record(b"\xff,,\n")


def test_levels(tmp_path: Path) -> None:
    with WheelArchive(make_wheel(tmp_path)) as archive:
        entries = [RecordEntry("demo_pkg/a.py", None, None, None), RecordEntry("b", None, None, None)]
        issues = check_record(entries, archive.members, archive.dist_info)
    levels = {issue.kind: issue.level for issue in issues}
    assert levels == {
        RecordKind.NO_HASH: "warning",
        RecordKind.ABSENT: "error",
        RecordKind.NOT_LISTED: "error",
    }


@pytest.mark.parametrize("algorithm", [None, "sha256", "sha512", "blake2b", "md5"])
def test_verify_member(tmp_path: Path, algorithm: str | None) -> None:
    with WheelArchive(make_wheel(tmp_path)) as archive:
        digest = hashlib.new(algorithm, DATA).digest() if algorithm else None
        entry = RecordEntry("demo_pkg/a.py", algorithm, digest, 6)
        expected = RecordEntry("demo_pkg/a.py", "sha256", SHA256, 6)
        assert verify_member(archive, entry) == expected
        if algorithm:
            with pytest.raises(WheelError, match=r"'demo_pkg/a\.py' is not the file that RECORD lists"):
                verify_member(archive, RecordEntry("demo_pkg/a.py", algorithm, bytes(len(digest or b"")), 6))


def test_verify_members_tells_all(tmp_path: Path) -> None:
    raw = RawZip([Entry(b"demo_pkg/bad", b"x", crc=1), *good_entries()])
    with WheelArchive(write_raw(tmp_path, raw)) as archive:
        entries = [
            RecordEntry("demo_pkg/bad", None, None, None),
            RecordEntry("demo_pkg/a.py", "sha256", bytes(32), None),
            *(entry for entry in read_record(archive)[0] if entry.path.endswith("METADATA")),
        ]
        with pytest.raises(WheelError) as caught:
            verify_members(archive, entries, jobs=2)
        assert len(caught.value.issues) == 2
        assert list(verify_members(archive, entries[2:])) == [f"{DIST_INFO}/METADATA"]


def test_render_is_parsed_again() -> None:
    rows = [
        RecordEntry('a,"b".py', "sha256", SHA256, 6),
        RecordEntry("\u00fc", "sha256", bytes(32), 0),
        RecordEntry("n", None, None, None),
    ]
    data = render_record(rows, "x.dist-info/RECORD")
    assert b"\r" not in data
    assert data.splitlines()[-1] == b"x.dist-info/RECORD,,"
    assert f"sha256={B64},6\n".encode() in data
    entries, issues = parse_record(data)
    assert list(entries[:-1]) == rows
    assert not issues


def test_a_size_has_19_digits_at_most() -> None:
    """Those of 2**63 - 1; a longer number is no size of a file, and could be meant to take long to read."""
    (entry,), issues = parse_record(b"a,," + b"9" * 19 + b"\n")
    assert (entry.size, issues) == (int("9" * 19), ())
    entries, (issue,) = parse_record(b"a,," + b"9" * 20 + b"\n")
    assert (entries, issue.kind) == ((), RecordKind.MALFORMED)


def test_new_hashes_of_some_files() -> None:
    r"""Every other byte stays: ends of lines, a last line without one, what is no UTF-8, quotes, a form feed in a name."""
    data = b'a.so,sha256=old,3\r\n"b,c.so",,\n"damaged\nx\x0cy.so,,\nodd\xff,,\nlast.so,md5=x,'
    row = RecordEntry("a.so", "sha256", bytes(32), 7)
    names = ("a.so", "b,c.so", "last.so", "y.so")
    new = with_new_hashes(data, dict.fromkeys(names, row))
    line = f"{row.hash_field},7".encode()
    assert new == (
        b"a.so,%b\r\n" % line
        + b'"b,c.so",%b\n' % line
        + b'"damaged\nx\x0cy.so,,\nodd\xff,,\n'
        + b"last.so,%b" % line
    )
    assert with_new_hashes(data, {}) == data


def test_a_hash_in_hexadecimal_is_compared_and_told_as_a_warning() -> None:
    """AMD's splitter of wheels writes it: RECORD is written anew, so the wheel can be used."""
    (entry,), (issue,) = parse_record(f"a.py,sha256={HEX},{len(DATA)}\n".encode())
    assert entry.digest == hashlib.sha256(DATA).digest()
    assert (issue.kind, issue.level) == (RecordKind.HEX_HASH, "warning")
    assert entry.hash_field == "sha256=" + B64
