from __future__ import annotations

from email import message_from_bytes

import pytest
from packaging.metadata import parse_email

from relink.system.errors import WheelError
from relink.wheel.metadata import (
    check_metadata,
    read_metadata,
    read_tags,
    rewrite_metadata,
    rewrite_wheel_info,
)
from relink.wheel.naming import parse_wheel_name
from tests.unit.wheel.build import METADATA, WHEEL


def test_only_the_header_version_changes() -> None:
    new = rewrite_metadata(METADATA, "1.0+rocm7.2.4")
    assert new == METADATA.replace(b"Version: 1.0\n", b"Version: 1.0+rocm7.2.4\n")
    assert new.endswith(b"\n\nVersion: 9 in the text\n")


@pytest.mark.parametrize(
    "data",
    [
        b"Name: x\r\nVersion:\t1.0 \r\nLicense: a\r\n  Version: 5\r\n\r\nbody\nVersion: 3\r\n",
        b"version: 1.0\nName: x",
        b"Name: x\nDescription: a\n        Version: 5\n\tVersion: 6\nVersion: 1.0",
        b"Name: x\nMetadata-Version: 2.1\nVersion: 1.0\nnot a header\nVersion: 7\n",
        "Name: x\nVersion: 1.0\nAuthor: \u00c4\u0085Version: 4\n\n\u2028Version: 8".encode(),
    ],
)
def test_what_readers_read_is_what_was_rewritten(data: bytes) -> None:
    assert read_metadata(data).version == "1.0"
    new = rewrite_metadata(data, "2.0+x")
    raw, _ = parse_email(new)
    assert raw["version"].strip() == "2.0+x"
    assert new.replace(b"2.0+x", b"1.0") == data.replace(b"1.0 ", b"1.0")


@pytest.mark.parametrize(
    "data",
    [
        b"Name: x\n\nVersion: 1.0\n",
        b"Name: x\nVersion: 1.0\nVersion: 1.1\n",
        b"Name: x\nVersion:\n 1.0\n",
        b"Name: x\nVersion: \n",
        b"Name: x\nVersion: 1.0\n 2\n",
        b"Name: x\n",
    ],
)
def test_version_must_be_there_once(data: bytes) -> None:
    with pytest.raises(WheelError, match="field Version"):
        read_metadata(data)
    with pytest.raises(WheelError, match="field Version"):
        rewrite_metadata(data, "2")


def test_not_utf8() -> None:
    for function in (read_metadata, read_tags):
        with pytest.raises(WheelError, match="not UTF-8"):
            function(b"Name: x\nVersion: 1\n\n\xff")
    with pytest.raises(WheelError, match="WHEEL is not UTF-8"):
        rewrite_wheel_info(b"\xff", ["a-b-c"])


def test_readers() -> None:
    metadata = read_metadata(METADATA)
    assert (metadata.name, metadata.version, metadata.requires_dist) == ("demo-pkg", "1.0", ("numpy>=1",))
    assert read_tags(WHEEL) == ("cp312-cp312-manylinux_2_34_x86_64",)
    assert read_tags(b"") == ()


@pytest.mark.parametrize("line", [": x", "From me", "From me: x\n folded", ":"])
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_lines_without_a_field_do_not_end_the_header(line: str, place: int) -> None:
    lines = ["Name: x", "Version: 1.0", "Requires-Dist: evil"]
    lines.insert(place, line)
    data = ("\n".join(lines) + "\n\nRequires-Dist: text\n").encode()
    read = message_from_bytes(data).get_all("Requires-Dist") or []
    assert read_metadata(data).requires_dist == tuple(read) == ("evil",)
    assert read_tags(b" x\nTag: a-b-c") == ("a-b-c",)


def test_check_metadata() -> None:
    assert check_metadata(read_metadata(METADATA), parse_wheel_name("Demo.Pkg-1-py3-none-any.whl")) == []
    issues = check_metadata(read_metadata(METADATA), parse_wheel_name("other-1.1-py3-none-any.whl"))
    assert len(issues) == 2
    odd = read_metadata(METADATA.replace(b": 1.0", b": one"))
    assert "'one'" in check_metadata(odd, parse_wheel_name("demo_pkg-1-py3-none-any.whl"))[0]


def test_tags_stand_where_the_first_stood() -> None:
    data = (
        b"Wheel-Version: 1.0\r\nTag: a-b-c\r\nRoot-Is-Purelib: true\r\nTag: a-b-d\r\nBuild: 1\r\n\r\nTag: x"
    )
    assert rewrite_wheel_info(data, ["p-q-r", "p-q-s"]) == (
        b"Wheel-Version: 1.0\r\nTag: p-q-r\r\nTag: p-q-s\r\nRoot-Is-Purelib: true\r\nBuild: 1\r\n\r\nTag: x"
    )


def test_tags_where_there_were_none() -> None:
    assert rewrite_wheel_info(b"Wheel-Version: 1.0\n\n", ["p-q-r"]) == b"Wheel-Version: 1.0\nTag: p-q-r\n\n"
    assert rewrite_wheel_info(b"Wheel-Version: 1.0", ["p-q-r"]) == b"Wheel-Version: 1.0\nTag: p-q-r\n"
    assert rewrite_wheel_info(b"Tag: a-b-c", ["p-q-r"]) == b"Tag: p-q-r\n"
    assert rewrite_wheel_info(b"", ["p-q-r"]) == b"Tag: p-q-r\n"


def test_there_may_be_too_many_fields_or_bytes() -> None:
    with pytest.raises(WheelError, match="more than 10000 fields"):
        read_tags(b"a:\n" * 5_000_000)
    with pytest.raises(WheelError, match="more than 10000 lines that are no field"):
        read_tags(b":\n" * 5_000_000)
    with pytest.raises(WheelError, match="WHEEL has 20000000 bytes"):
        read_tags(b"a" * 20_000_000)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_requirements_are_replaced_and_taken_out(end: str) -> None:
    before = [
        "Version: 1",
        "Requires-Dist: a == 1",
        "Requires-Dist: b",
        "Requires-Dist: c",
        "",
        "Requires-Dist: b",
        "",
    ]
    after = ["Version: 2", "Requires-Dist: a==2", "Requires-Dist: c", "", "Requires-Dist: b", ""]
    changed = rewrite_metadata(
        end.join(before).encode(), "2", requires={"a == 1": "a==2", "b": None, "d": None}
    )
    assert changed == end.join(after).encode()


def test_a_folded_requirement_is_taken_out_whole() -> None:
    data = b"Version: 1\nRequires-Dist: b\n  >2\nName: x\n\n"
    assert rewrite_metadata(data, "1", requires={"b": None}) == b"Version: 1\nName: x\n\n"
