"""A wheel as an archive: read with suspicion, written with care; knows no ELF.

>>> with WheelArchive("x-1.0-cp312-cp312-manylinux_2_34_x86_64.whl") as archive:  # doctest: +SKIP
...     name = relinked(archive.name, local="rocm7.2.4", platform="linux_x86_64")
...     write_wheel(archive, Path("out"), name=name, replacements={"x/x.so": Replacement(Path("patched.so"))})
"""

from relink.wheel.archive import WheelArchive
from relink.wheel.atomic import atomic_file, remove_stale, working_directory
from relink.wheel.limits import Limits
from relink.wheel.metadata import (
    Metadata,
    WheelInfo,
    check_metadata,
    read_metadata,
    read_wheel_info,
    rewrite_metadata,
    rewrite_wheel_info,
)
from relink.wheel.naming import WheelName, parse_wheel_name, relinked, renamed_directory
from relink.wheel.record import (
    RecordEntry,
    RecordIssue,
    RecordKind,
    check_record,
    parse_record,
    read_record,
    render_record,
    signatures,
    verify_member,
    verify_members,
)
from relink.wheel.stream import MemberStream
from relink.wheel.writer import Addition, Replacement, WrittenWheel, output_path, write_wheel
from relink.wheel.zipformat import Member

__all__ = [
    "Addition",
    "Limits",
    "Member",
    "MemberStream",
    "Metadata",
    "RecordEntry",
    "RecordIssue",
    "RecordKind",
    "Replacement",
    "WheelArchive",
    "WheelInfo",
    "WheelName",
    "WrittenWheel",
    "atomic_file",
    "check_metadata",
    "check_record",
    "output_path",
    "parse_record",
    "parse_wheel_name",
    "read_metadata",
    "read_record",
    "read_wheel_info",
    "relinked",
    "remove_stale",
    "renamed_directory",
    "render_record",
    "rewrite_metadata",
    "rewrite_wheel_info",
    "signatures",
    "verify_member",
    "verify_members",
    "working_directory",
    "write_wheel",
]
