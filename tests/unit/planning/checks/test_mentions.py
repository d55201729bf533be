"""checks.mentions: what of a copy leads to the original."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.planning.checks.mentions import mentions
from tests.support.elf_builder import Library, build


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("tree/lib", "new/lib", "new/bin"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path / "tree", tmp_path / "new"


def named(original: Path, copy: Path, *more: str) -> dict[str, str]:
    """What of each file leads to the original."""
    found = [*mentions(copy, copy, (str(original), *more))]
    assert {one.code for one in found} <= {"RLK544"}
    assert all(one.message.endswith(f" leads to {original}") for one in found)
    return {one.subject: one.message.removeprefix("its ").partition(" leads to ")[0] for one in found}


def test_each_kind_of_file(places: tuple[Path, Path]) -> None:
    tree, new = places
    (new / "lib/a.so").write_bytes(build(Library("a.so", runpath=f"$ORIGIN:{tree}/lib")))
    (new / "lib/b.so").write_bytes(build(Library("b.so", needed=(f"{tree}/lib/x.so",))))
    (new / "bin/s").write_text(f"#!{tree}/bin/python3\n")
    (new / "bin/t").write_text(f"#!/bin/sh\n'''exec' {tree}/bin/python3 \"$0\"\n")
    (new / "lib/l").symlink_to(f"{tree}/lib/x")
    (new / "lib/r").symlink_to("../../tree/lib")
    (new / "p.pth").write_text(f"{tree}\n")
    (new / "q.pth").write_text("# words\nimport os\n../tree/lib\n")
    (new / "h.pc").write_text(f"prefix={tree}\n")
    assert named(tree, new) == {
        "lib/a.so": "search path",
        "lib/b.so": "NEEDED or interpreter",
        "bin/s": "text",
        "bin/t": "text",
        "lib/l": "target",
        "lib/r": "target",
        "p.pth": "text",
        "q.pth": "path",
        "h.pc": "text",
    }


def test_what_stays_in_the_copy_or_leads_elsewhere(places: tuple[Path, Path]) -> None:
    tree, new = places
    runpath = f"$ORIGIN/../lib:${{ORIGIN}}:/opt/rocm/lib:{tree}.2/lib:"
    (new / "lib/a.so").write_bytes(build(Library("a.so", runpath=runpath, needed=("libc.so.6",))))
    (new / "lib/damaged.so").write_bytes(b"\x7fELF" + str(tree).encode())
    (new / "lib/l").symlink_to("../bin/s")
    (new / "bin/s").write_text("#!/usr/bin/env python3\n")
    (new / "bin/empty").write_text("#!")
    (new / "p.pth").write_text("lib\n../elsewhere\n")
    (new / "h.pc").write_text(f"prefix=${{pcfiledir}}/../..\nother={tree}-2\n")
    (new / "notes").write_text(f"built in {tree}\n")
    assert named(tree, new) == {}


def test_by_a_link_and_by_another_name(places: tuple[Path, Path]) -> None:
    tree, new = places
    (tree.parent / "rocm").symlink_to(tree)
    (new / "lib/a.so").write_bytes(build(Library("a.so", runpath=f"{tree.parent}/rocm/lib")))
    assert named(tree, new) == {"lib/a.so": "search path"}
    (new / "lib/a.so").write_bytes(build(Library("a.so")))
    (new / "h.pc").write_text(f"prefix={tree.parent}/rocm\n")
    assert named(tree, new) == {}
    assert named(tree, new, f"{tree.parent}/rocm") == {"h.pc": "text"}
