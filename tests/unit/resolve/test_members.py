"""Which members need which, within a wheel."""

from __future__ import annotations

from relink.elf.image import read_image
from relink.resolve.members import reached
from tests.support.elf_builder import Library, build


def test_by_soname_by_name_and_in_a_circle() -> None:
    libraries = {
        "pkg/a.so": Library(soname="liba.so.1", needed=("libb.so", "libc.so.6")),
        "pkg/lib/libb.so": Library(needed=("libc-own.so",)),  # no soname: its name counts
        "pkg/c.so": Library(soname="libc-own.so", needed=("liba.so.1",)),
        "pkg/alone.so": Library(soname="libalone.so", needed=("a.so",)),  # the soname hides the file's name
    }
    images = {name: read_image(build(library), name) for name, library in libraries.items()}
    circle = {"pkg/a.so", "pkg/lib/libb.so", "pkg/c.so"}
    assert reached(images) == {**dict.fromkeys(sorted(circle), circle), "pkg/alone.so": {"pkg/alone.so"}}
