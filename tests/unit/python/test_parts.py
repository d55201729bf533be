"""The part of files that no import leads to, over ELF files that a test writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.elf.image import read_image
from relink.python.parts import find_part_alone
from tests.support.elf_builder import Library, build
from tests.support.python_processes import python_of


@pytest.mark.parametrize(
    ("path", "library", "machine", "part"),
    [
        ("package/unknown.so.2", Library("unknown.so.2", ()), 62, "unknown"),
        ("package/core.cpython-311-x86_64-linux-gnu.so", Library(None, ()), 62, "unknown"),
        ("package/old.cpython-27m-x86_64-linux-gnu.so", Library(None, ()), 62, "foreign"),
        ("package/include/part.so", Library(None, ()), 62, "foreign"),
        ("package/core.so.debug", Library(None, ()), 62, "foreign"),
        ("package/bin/run", Library(None, (), interpreter="/lib64/ld-linux-x86-64.so.2"), 62, "program"),
        ("package/other_machine.so", Library(None, ()), 183, "foreign"),
    ],
)
def test_a_file_alone_has_a_part(
    tmp_path: Path, path: str, library: Library, machine: int, part: str
) -> None:
    image = read_image(build(library), path)
    assert find_part_alone(path, image, python_of(tmp_path), machine) == part
