"""What an edit is to patchelf, and what the file is to be afterwards; that patchelf does so is in test_patchelf.py."""

from __future__ import annotations

import pytest

from relink.elf.edit import ElfEdit, argument_lists, predict_edit, refuse_names
from relink.elf.image import read_image
from relink.system.errors import EditError
from tests.support.elf_builder import Library, build

IMAGE = read_image(build(Library(needed=("liba.so", "libb.so", "libc.so"), rpath="/old")), "x.so")
ALWAYS = "--no-clobber-old-sections"


def test_nothing_to_do() -> None:
    assert not ElfEdit()
    assert ElfEdit(search_path="")
    assert predict_edit(IMAGE, ElfEdit()) == IMAGE


def test_needed() -> None:
    edit = ElfEdit(
        replace=(("libb.so", "libB.so"),), remove=("liba.so",), add=("libd.so", "libB.so", "libd.so")
    )
    assert predict_edit(IMAGE, edit).needed == ("libB.so", "libc.so", "libd.so")
    (arguments,) = argument_lists(
        IMAGE, ElfEdit(**{name: getattr(edit, name) for name in ("replace", "remove")})
    )
    assert arguments == [ALWAYS, "--remove-needed", "liba.so", "--replace-needed", "libb.so", "libB.so"]
    (arguments,) = argument_lists(IMAGE, ElfEdit(add=("libd.so", "libc.so")))
    assert arguments == [ALWAYS, "--add-needed", "libd.so"], "what is needed already is not added"


@pytest.mark.parametrize(
    ("edit", "words", "rpath", "runpath"),
    [
        (ElfEdit(search_path="", search_kind="runpath"), ["--remove-rpath"], None, None),
        (ElfEdit(search_path="/n", search_kind="runpath"), ["--set-rpath", "/n"], None, "/n"),
        (ElfEdit(search_path="/n", search_kind="rpath"), ["--force-rpath", "--set-rpath", "/n"], "/n", None),
    ],
)
def test_search_paths(edit: ElfEdit, words: list[str], rpath: str | None, runpath: str | None) -> None:
    assert argument_lists(IMAGE, edit) == [[ALWAYS, *words]]
    after = predict_edit(IMAGE, edit)
    assert (after.rpath, after.runpath) == (rpath, runpath)


def test_both_search_paths_are_removed_by_a_call_of_its_own() -> None:
    image = read_image(build(Library(rpath="/old", runpath="/older")), "x.so")
    calls = argument_lists(image, ElfEdit(search_path="/n", search_kind="runpath"))
    assert calls == [[ALWAYS, "--remove-rpath"], [ALWAYS, "--set-rpath", "/n"]]


def test_names_that_patchelf_would_not_take_as_names() -> None:
    edit = ElfEdit(search_path="@/etc/passwd", add=("", "a\0b", "\ud800", "\udcff"), interpreter="@x")
    with pytest.raises(EditError) as caught:
        refuse_names(IMAGE, edit)
    assert caught.value.issues == (
        "'@/etc/passwd': patchelf would read a file of that name",
        "'@x': patchelf would read a file of that name",
        "an empty soname",
        "'a\\x00b': no file has a string of these characters",
        "'\\ud800': no file has a string of these characters",
    )
    refuse_names(IMAGE, ElfEdit(search_path="$ORIGIN/@x", add=("libx@1.so",)))
