"""What an edit is to patchelf, and what the file is to be afterwards; that patchelf does so is in test_patchelf.py.

Version records edited in place: by hand-made files, and by real ones with patchelf and the real loader.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.elf.edit import (
    ElfEdit,
    VersionEdit,
    argument_lists,
    edit_symbols,
    find_freed_symbols,
    predict_edit,
    read_records,
    refuse_names,
    write_versions,
)
from relink.elf.image import read_image
from relink.elf.symbol_reader import read_symbols
from relink.loader.dryrun import LoaderMap, dry_run
from relink.loader.target import find_target
from relink.system.errors import EditError, ElfError
from tests.support.cc import shared
from tests.support.edits import apply_edit
from tests.support.elf_builder import Export, Import, Library, build

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


OLD, NEW = "libvendor_numa.so.1", "libnuma.so.1"
USER = Library(
    soname="libuser.so.1",
    needed=(NEW, "libother.so.1"),
    imports=(
        Import("numa_available", "VENDOR_1.0_libnuma_1.1", OLD),
        Import("numa_free", "VENDOR_1.0_libnuma_1.2", OLD),
        Import("other", "OTHER_1", "libother.so.1"),
    ),
    exports=(Export("user"),),
)
RENAMED = (
    VersionEdit(OLD, "VENDOR_1.0_libnuma_1.1", NEW, "libnuma_1.1"),
    VersionEdit(OLD, "VENDOR_1.0_libnuma_1.2", NEW, "libnuma_1.2"),
)
FREED = tuple(replace(one, version_after=one.version, weak=True, unversioned=True) for one in RENAMED)


def edited(edits: Sequence[VersionEdit], library: Library = USER) -> bytearray:
    original = build(library)
    data = bytearray(original)
    write_versions(data, original, edits)
    return data


def wants(data: bytes | bytearray) -> list[tuple[str, str | None, str | None]]:
    return [(item.name, item.version, item.file) for item in read_symbols(bytes(data)).imports]


def test_a_renamed_version_is_a_suffix_of_the_old_name() -> None:
    data = edited(RENAMED)
    assert wants(data) == [
        ("numa_available", "libnuma_1.1", NEW),
        ("numa_free", "libnuma_1.2", NEW),
        ("other", "OTHER_1", "libother.so.1"),
    ]
    assert read_symbols(bytes(data)).problems == ()  # the hashes are right
    assert len(data) == len(build(USER))


def test_weak_and_without_a_version() -> None:
    data = edited(FREED)
    table = read_symbols(bytes(data))
    assert [(need.file, [item.weak for item in need.versions]) for need in table.verneeds] == [
        (NEW, [True, True]),
        ("libother.so.1", [False]),
    ]
    assert wants(data)[:2] == [("numa_available", None, None), ("numa_free", None, None)]
    assert sorted(find_freed_symbols(build(USER), FREED)) == [1, 2]


@pytest.mark.parametrize("edits", [RENAMED, FREED, RENAMED[:1] + FREED[1:]])
def test_the_simulation_sees_what_is_written(edits: tuple[VersionEdit, ...]) -> None:
    expected = edit_symbols(read_symbols(build(USER)), {}, edits)
    assert read_symbols(bytes(edited(edits))) == expected


def test_replaced_files_are_renamed_in_the_simulation() -> None:
    table = edit_symbols(read_symbols(build(USER)), {"libother.so.1": "libother.so.2"}, ())
    assert [need.file for need in table.verneeds] == [OLD, "libother.so.2"]
    assert table.imports[2].file == "libother.so.2"


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (replace(RENAMED[0], version_after="libnuma_9"), "is no suffix of it"),
        (replace(RENAMED[0], version_after=""), "is no suffix of it"),
        (replace(RENAMED[0], version="NONE_1", version_after="NONE_1"), "names NONE_1"),
        (replace(RENAMED[0], file_after="libabsent.so"), "libabsent.so, which is not NEEDED"),
    ],
)
def test_what_cannot_be_written_is_refused(edit: VersionEdit, words: str) -> None:
    with pytest.raises(ElfError, match=words):
        edited([edit])


def test_edits_that_contradict_each_other() -> None:
    with pytest.raises(ElfError, match="two edits of version"):
        edited([RENAMED[0], FREED[0]])
    with pytest.raises(ElfError, match="cannot name two libraries"):
        edited([RENAMED[0], replace(RENAMED[1], file_after="libother.so.1")])


def test_a_definition_with_the_version_of_a_record() -> None:
    data = bytearray(build(USER))
    first = min(find_freed_symbols(data, FREED).values())
    number = data[first : first + 2]
    defined = first + 2 * len(USER.imports)
    data[defined : defined + 2] = number
    with pytest.raises(ElfError, match="a definition has the version"):
        write_versions(bytearray(data), data, FREED)


def test_damaged_records_are_not_edited() -> None:
    data = edited(())
    at = read_records(data)[0].at
    data[at] = 9
    with pytest.raises(ElfError, match="unknown layout"):
        read_records(data)


# With patchelf and the real loader


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    """A user that was linked against a vendor's copy of a library, beside the system's; the copy is gone."""
    vendor, system = tmp_path / "vendor.map", tmp_path / "system.map"
    vendor.write_text("AMD_1.0_N_1 { global: one; }; AMD_1.0_N_2 { global: two; } AMD_1.0_N_1;")
    system.write_text("N_1 { global: one; }; N_2 { global: two; } N_1;")
    source = "int one(void){return 1;} int two(void){return 2;}"
    copy = shared(tmp_path / "old/libamd.so.1", source, flags=[f"-Wl,--version-script={vendor}"])
    shared(tmp_path / "libn.so.1", source, flags=[f"-Wl,--version-script={system}"])
    shared(tmp_path / "libelse.so.1", "int other(void){return 3;}")
    user = "int one(void); int two(void); int uses(void){return one()+two();} int other(void); int o(void){return other();}"
    return shared(
        tmp_path / "libuser.so", user, needed=[copy, tmp_path / "libelse.so.1"], flags=["-Wl,-rpath,$ORIGIN"]
    )


def edit_and_ask(user: Path, edit: ElfEdit) -> LoaderMap:
    original = user.read_bytes()
    apply_edit(user, edit, read_image(original, user.name), original)
    return dry_run(find_target(), str(user))


def moves(*names: str, weak: bool = False, unversioned: bool = False) -> tuple[VersionEdit, ...]:
    olds = ("AMD_1.0_N_1", "AMD_1.0_N_2")
    return tuple(
        VersionEdit("libamd.so.1", old, "libn.so.1", name, weak, unversioned)
        for old, name in zip(olds, names or olds, strict=True)
    )


REPLACED = ElfEdit(replace=(("libamd.so.1", "libn.so.1"),))


def test_the_loader_binds_a_renamed_version(libraries: Path) -> None:
    answer = edit_and_ask(libraries, replace(REPLACED, versions=moves("N_1", "N_2")))
    assert answer.problems == ()
    assert [name for name, _ in answer.objects] == ["libn.so.1", "libelse.so.1"]


def test_the_loader_finds_no_version_without_the_edit(libraries: Path) -> None:
    answer = edit_and_ask(libraries, REPLACED)
    assert any("version `AMD_1.0_N_1' not found" in line for line in answer.problems)


def test_weak_alone_leaves_the_symbols_open(libraries: Path) -> None:
    answer = edit_and_ask(libraries, replace(REPLACED, versions=moves(weak=True)))
    assert any("undefined symbol: one, version AMD_1.0_N_1" in line for line in answer.problems)


def test_weak_and_without_a_version_binds_with_a_note(libraries: Path) -> None:
    answer = edit_and_ask(libraries, replace(REPLACED, versions=moves(weak=True, unversioned=True)))
    assert len(answer.problems) == 2
    assert all("weak version `AMD_1.0_N_" in line and "not found" in line for line in answer.problems)


def test_the_record_of_a_dropped_library_goes_to_one_that_stays(libraries: Path) -> None:
    versions = tuple(replace(one, file_after="libelse.so.1") for one in moves(weak=True))
    answer = edit_and_ask(libraries, ElfEdit(remove=("libamd.so.1",), versions=versions))
    assert not answer.died  # an assertion of ld.so without the edit
    assert [name for name, _ in answer.objects] == ["libelse.so.1"]


def test_a_record_of_what_is_not_needed_is_refused(libraries: Path) -> None:
    original = libraries.read_bytes()
    image = read_image(original, "libuser.so")
    with pytest.raises(EditError) as caught:
        apply_edit(libraries, ElfEdit(remove=("libamd.so.1",), versions=moves()), image, original)
    assert any("it is not NEEDED" in issue for issue in caught.value.issues)
    libraries.write_bytes(original)
    with pytest.raises(EditError) as caught:  # no edit of the record at all
        apply_edit(libraries, ElfEdit(remove=("libamd.so.1",)), image, original)
    assert any("names libamd.so.1, which is not NEEDED any more" in issue for issue in caught.value.issues)


@pytest.mark.parametrize("name", ["\ud800", "N_1\0"])
def test_names_of_a_saved_plan_that_no_file_can_have(libraries: Path, name: str) -> None:
    original = libraries.read_bytes()
    image = read_image(original, "libuser.so")
    with pytest.raises(EditError) as caught:
        apply_edit(libraries, replace(REPLACED, versions=moves(name, "N_2")), image, original)
    assert any("no file has a string" in issue for issue in caught.value.issues)
