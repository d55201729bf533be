"""Wheels written anew, and what everybody else says of the result."""

from __future__ import annotations

import random
import zipfile
from pathlib import Path
from typing import Any

import installer.sources
from wheel.wheelfile import WheelFile

from relink.wheel.archive import WheelArchive
from relink.wheel.changes import Changes, WriteOptions
from relink.wheel.naming import relinked_name
from relink.wheel.record import check_record, read_record
from relink.wheel.writer import WrittenWheel, write_wheel

NOISE = random.Random(2).randbytes(2_500_000)


def rewrite(wheel: Path, out: Path, *, local: str | None = "rocm7.2.4", **arguments: Any) -> WrittenWheel:
    """`arguments`: the fields of Changes and of WriteOptions."""
    out.mkdir(exist_ok=True)
    with WheelArchive(wheel) as archive:
        name = relinked_name(archive.name, local=local, platform="linux_x86_64")
        how = {name: arguments.pop(name) for name in WriteOptions.__struct_fields__ if name in arguments}
        return write_wheel(archive, out, Changes(name, **arguments), WriteOptions(**how))


def accepted(path: Path) -> None:
    """Everybody else's opinion, and our own."""
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    with WheelFile(path) as wheel:
        for name in wheel.namelist():
            wheel.read(name)
    with installer.sources.WheelFile.open(path) as source:
        source.validate_record()
    with WheelArchive(path) as ours:
        entries, issues = read_record(ours)
        assert not issues
        assert not check_record(entries, ours.members, ours.dist_info)
