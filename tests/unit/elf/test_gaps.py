"""Gaps of a file: what is left out, and that an edit of the copy without gaps gives what an edit of the whole file gives."""

from __future__ import annotations

import mmap
import struct
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.elf import edit_checks
from relink.elf import gaps as gaps_module
from relink.elf.dynamic import Buffer
from relink.elf.edit import ElfEdit
from relink.elf.edit_checks import check_edit
from relink.elf.gaps import (
    find_gaps,
    pages_in,
    ranges_between,
    release_gaps,
    sparse,
    with_gaps,
    without_gaps,
)
from relink.elf.image import Image, Section, read_image, read_sections
from relink.loader.dryrun import dry_run
from relink.loader.target import find_target
from relink.system.errors import ElfError, PatchelfError
from tests.support.cc import cc, shared
from tests.support.edits import apply_edit, edit_without_gaps

UNIT = 1 << 16
COUNT = 20_000
EDITS_OF_MANY = [
    ElfEdit("/somewhere/else:$ORIGIN/" + "long/" * 60, "rpath", add=("libz.so.9", "liba.so.1")),
    ElfEdit(search_path=""),
    ElfEdit(replace=(("libdeep.so.1", "libdeep.so.1234567"),)),
]


def source(payload: Path, more: str = "") -> str:
    """Symbols in four sections and in none, in front of 2 MiB that no edit touches."""
    sections = [".text", ".data", ".section .rodata", '.section own,"aw"']
    lines = [f"{sections[n % 4]}\ns{n}: .byte 0" for n in range(COUNT)]
    lines += [".set number, 0x1234", '.section .hip_fatbin,"a"', f'.incbin "{payload}"', more, ".text"]
    text = "\\n".join(lines).replace('"', '\\"').replace("\n", "\\n")
    return f'extern int deep(void); int f(void) {{ return deep(); }}\n__asm__("{text}");'


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("renumber")
    (directory / "payload").write_bytes(bytes(range(256)) * (8 << 10))
    deep = shared(directory / "libdeep.so.1", "int deep(void) { return 1; }")
    flags = ["-Wl,--enable-new-dtags,-rpath,/vendor"]
    return shared(directory / "libmany.so", source(directory / "payload"), needed=[deep], flags=flags)


def read(many: Path) -> tuple[bytes, Image, tuple[range, ...]]:
    data = many.read_bytes()
    image = read_image(data, many.name)
    return data, image, find_gaps(data, image)


def symbols(data: Buffer) -> Section:
    return next(section for section in read_sections(data, "x") if section.type == 2)


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("edit", EDITS_OF_MANY)
def test_they_end_as_if_patchelf_had_seen_them(many: Path, edit: ElfEdit, tmp_path: Path) -> None:
    data, before, gaps = read(many)
    edited = edit_without_gaps(tmp_path / "hollow", edit, before, data, gaps, gaps).view
    (tmp_path / "whole").write_bytes(data)
    apply_edit(tmp_path / "whole", edit, before, data)
    whole = (tmp_path / "whole").read_bytes()
    table = symbols(whole)
    assert symbols(edited) == table
    place = slice(table.offset, table.offset + table.file_size)
    assert edited[place] == whole[place]
    # There was something to do: for symbols of sections behind those that moved, and for the sections' own.
    if edit.search_path != "":
        assert edited[place] != data[place]
    (tmp_path / "result").write_bytes(edited)
    for name in ("whole", "result"):
        said = subprocess.run(["readelf", "-sW", tmp_path / name], capture_output=True, text=True, check=True)
        assert said.stderr == ""
        assert f" s{COUNT - 1}" in said.stdout
        assert any(line.split()[-2:] == ["ABS", "number"] for line in said.stdout.splitlines())


def test_sections_whose_numbers_take_two_bytes(many: Path, tmp_path: Path) -> None:
    extra = "\n".join(f'.section extra{n},"a"\n.byte 1' for n in range(256))
    many = shared(tmp_path / "libmany.so", source(many.parent / "payload", extra))
    data, image, gaps = read(many)
    assert gaps
    assert len(read_sections(data, "x")) > 256
    edited = edit_without_gaps(tmp_path / "hollow", EDITS_OF_MANY[0], image, data, gaps, gaps)
    assert len(without_gaps(data, gaps)) <= (tmp_path / "hollow").stat().st_size
    assert edited.image.rpath == EDITS_OF_MANY[0].search_path


UNIT = 1 << 16
SIZE = 3 << 20  # bytes of payload
# In front: .hip_fatbin is in the middle of its segment, as jax has it. Behind: it ends one, as onnxruntime has it.
FRONT = """
extern int deep(void); int f(void) { return deep(); }
__asm__(".section .hip_fatbin,\\"a\\",@progbits\\n.p2align 12\\nbundle: .incbin \\"PAYLOAD\\"\\n.previous\\n");
extern const char bundle[] __attribute__((visibility("hidden")));
struct wrapper { unsigned magic, version; const void *bundle; void *reserved; };
static struct wrapper first __attribute__((section(".hipFatBinSegment"), used)) = {0x48495046, 1, bundle, 0};
static struct wrapper second __attribute__((section(".hipFatBinSegment"), used)) = {0x48495046, 1, bundle + 1048576, 0};
const char *text = "constant"; int data = 5; static char room[100]; char *rooms(void) { return room; }
"""
BEHIND = FRONT.replace('\\"a\\"', '\\"aw\\"')
EDITS = [
    ElfEdit("/somewhere/else:$ORIGIN/" + "long/" * 60, "rpath", add=("libz.so.9", "liba.so.1")),
    ElfEdit("/p", "runpath"),
    ElfEdit(search_path=""),
    ElfEdit(replace=(("libdeep.so.1", "libdeep.so.1234567"),)),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("short")
    payload = bytes((at * 7919 >> 8 ^ at) & 0xFF for at in range(1 << 16)) * (SIZE >> 16)
    (directory / "payload").write_bytes(payload)
    deep = shared(directory / "libdeep.so.1", "int deep(void) { return 1; }")
    flags = ["-Wl,--enable-new-dtags,-rpath,/vendor"]
    return {
        name: shared(
            directory / f"lib{name}.so",
            source.replace("PAYLOAD", f"{directory}/payload"),
            needed=[deep],
            flags=flags,
        )
        for name, source in (("front", FRONT), ("behind", BEHIND))
    }


@pytest.fixture(params=["front", "behind"])
def file(request: pytest.FixtureRequest, made: dict[str, Path]) -> Path:
    return made[request.param]


def section(buffer: bytes | memoryview, name: str) -> Section:
    return next(one for one in read_sections(buffer, "x") if one.name == name)


def test_the_payload_is_cut_out(file: Path) -> None:
    data = file.read_bytes()
    (gap,) = find_gaps(data, read_image(data, "x"))
    fatbin = section(data, ".hip_fatbin")
    assert fatbin.offset < gap.start < gap.stop < fatbin.offset + fatbin.file_size
    assert len(gap) % UNIT == 0
    assert len(gap) > SIZE - 2 * UNIT
    assert [len(part) for part in ranges_between((gap,), len(data))] == [gap.start, len(data) - gap.stop]


def test_out_and_back_is_the_same_file(file: Path, tmp_path: Path) -> None:
    data = file.read_bytes()
    gaps = find_gaps(data, read_image(data, "x"))
    small = without_gaps(data, gaps)
    assert len(small) == len(data) - len(gaps[0])
    (tmp_path / "small").write_bytes(small)
    said = subprocess.run(["readelf", "-SlW", tmp_path / "small"], capture_output=True, text=True, check=True)
    assert (said.stderr, ".hip_fatbin" in said.stdout) == ("", True)
    whole = with_gaps(small, gaps, data, gaps)
    assert whole == data


@pytest.mark.few(2, reason="the same of other values")
@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_of_the_hollow_copy_is_an_edit_of_the_whole(
    file: Path, edit: ElfEdit, tmp_path: Path
) -> None:
    """The same bytes but for section headers that nobody reads: where patchelf moved them twice, it left a table behind."""
    data = file.read_bytes()
    before = read_image(data, file.name)
    gaps = find_gaps(data, before)
    edited = edit_without_gaps(tmp_path / "short", edit, before, data, gaps, gaps)
    assert (tmp_path / "short").stat().st_size < len(data) - SIZE // 2
    (tmp_path / "whole").write_bytes(data)
    after = apply_edit(tmp_path / "whole", edit, before, data)
    whole = (tmp_path / "whole").read_bytes()
    assert edited.image == after
    assert len(edited.view) == len(whole)
    table = 64 * len(read_sections(whole, "x"))
    differing = [at for at in range(0, len(whole), 8) if edited.view[at : at + 8] != whole[at : at + 8]]
    assert not differing or differing[-1] - differing[0] < table
    if differing:
        in_use = [range(one.offset, one.offset + one.file_size) for one in read_sections(whole, "x")]
        in_use.append(range(struct.unpack_from("<Q", whole, 40)[0], len(whole)))
        assert not [at for at in differing for part in in_use if at in part]
    assert read_sections(edited.view, "x") == read_sections(whole, "x")


@pytest.mark.few(1, reason="the same of other values")
def test_the_loader_and_readelf_see_no_difference(file: Path, tmp_path: Path) -> None:
    data = file.read_bytes()
    before = read_image(data, file.name)
    gaps = find_gaps(data, before)
    seen = []
    for stay, name in ((gaps, "full"), ((), "holes")):
        path = tmp_path / name / "libuser.so"
        path.parent.mkdir()
        edit = ElfEdit(str(file.parent), "runpath")
        path.write_bytes(edit_without_gaps(tmp_path / "short", edit, before, data, gaps, stay).view)
        found = dry_run(find_target(), str(path))
        assert dict(found.objects)["libdeep.so.1"] == str(file.parent / "libdeep.so.1")
        said = subprocess.run(["readelf", "-aW", path], capture_output=True, text=True, check=True)
        assert said.stderr == ""
        seen.append((found.missing, found.problems, said.stdout))
    assert seen[0] == seen[1]
    assert seen[0][:2] == ((), ())


def test_a_result_with_holes_is_held_against_the_original_with_holes(file: Path, tmp_path: Path) -> None:
    """Nothing of the payload is needed; what stays of it is carried over."""
    data = file.read_bytes()
    before = read_image(data, file.name)
    gaps = find_gaps(data, before)
    memory = mmap.mmap(-1, len(data), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(data)
    at = gaps[0].start + 3 * UNIT
    stay = pages_in(gaps, [range(at + 5, at + 10), range(10)])
    release_gaps(memory, gaps, stay)
    assert stay == (range(at, at + mmap.PAGESIZE),)
    assert memory[at : at + mmap.PAGESIZE] == data[at : at + mmap.PAGESIZE]
    for gap in (range(gaps[0].start, at), range(at + mmap.PAGESIZE, gaps[0].stop)):
        assert memory[gap.start : gap.stop] == bytes(len(gap))
    assert memory[: gaps[0].start] == data[: gaps[0].start]
    assert memory[gaps[0].stop :] == data[gaps[0].stop :]
    edited = edit_without_gaps(tmp_path / "short", EDITS[0], before, memory, gaps, stay)
    assert edited.view[at : at + mmap.PAGESIZE] == data[at : at + mmap.PAGESIZE]
    assert edited.view[at - UNIT : at] == bytes(UNIT)


# What the checks see


def broken(file: Path, tmp_path: Path) -> tuple[bytes, bytearray, tuple[range, ...]]:
    data = file.read_bytes()
    before = read_image(data, file.name)
    gaps = find_gaps(data, before)
    return data, bytearray(edit_without_gaps(tmp_path / "short", EDITS[0], before, data, gaps).view), gaps


def issues(data: bytes, edited: bytearray, gaps: tuple[range, ...]) -> list[str]:
    before = read_image(data, "x")
    return check_edit(data, edited, before, read_image(edited, "x"), EDITS[0], gaps)


def test_bytes_around_a_cut_are_compared(file: Path, tmp_path: Path) -> None:
    data, edited, gaps = broken(file, tmp_path)
    assert issues(data, edited, gaps) == []
    assert "section .hip_fatbin changed its contents" in issues(data, edited, ())
    for at in (gaps[0].start - 1, gaps[0].stop):
        edited[at] ^= 1
        assert "section .hip_fatbin changed its contents" in issues(data, edited, gaps)
        edited[at] ^= 1


def test_zeros_in_place_of_a_cut_are_no_evidence() -> None:
    """Both files read as zeros there: the same offset is the same payload, another one is not."""
    file = bytes(100)
    gaps = (range(10, 20), range(40, 50))
    equal = edit_checks.equal_bytes
    assert equal(file, 5, file, 5, 90, gaps)
    assert equal(file, 20, file, 50, 20, gaps)
    assert not equal(file, 21, file, 50, 20, gaps)
    assert not equal(file, 60, file, 19, 10, gaps)
    other = bytearray(file)
    for at in range(100):
        other[at] = 1
        assert equal(file, 5, other, 5, 90, gaps) == (at in gaps[0] or at in gaps[1] or not 5 <= at < 95)
        other[at] = 0


def test_a_wrapper_into_a_cut_whose_bytes_come_from_elsewhere(file: Path, tmp_path: Path) -> None:
    data, edited, gaps = broken(file, tmp_path)
    (at,) = (
        64 + 56 * number
        for number, one in enumerate(read_image(edited, "x").segments)
        if one.type == 1 and one.offset <= gaps[0].start < one.offset + one.file_size
    )
    struct.pack_into("<Q", edited, at + 8, struct.unpack_from("<Q", edited, at + 8)[0] + 16)
    words = "section .hip_fatbin is not what is mapped at its address"
    assert any(issue.startswith(words) for issue in issues(data, edited, gaps))


def test_a_section_with_a_cut_that_moved(file: Path) -> None:
    data = file.read_bytes()
    gaps = find_gaps(data, read_image(data, "x"))
    small = without_gaps(data, gaps)
    number = [one.name for one in read_sections(data, "x")].index(".hip_fatbin")
    (table,) = struct.unpack_from("<Q", small, 40)
    for field in (16, 24, 32):
        at = table + 64 * number + field
        (value,) = struct.unpack_from("<Q", small, at)
        struct.pack_into("<Q", small, at, value + 16)
        with pytest.raises(ElfError, match="a section with a gap moved"):
            with_gaps(small, gaps, data)
        struct.pack_into("<Q", small, at, value)


@pytest.mark.parametrize(
    ("offset", "value", "words"),
    [
        (40, 1 << 40, "headers past the end"),
        (32, 1 << 40, "headers past the end"),
        (54, 57, "headers of another size"),
        (64 + 40, 1, "more bytes in the file than in memory"),
        (64 + 8, (1 << 64) - 1, "damaged headers|more bytes in the file"),
    ],
)
def test_headers_that_make_no_sense(file: Path, offset: int, value: int, words: str) -> None:
    data = file.read_bytes()
    gaps = find_gaps(data, read_image(data, "x"))
    small = without_gaps(data, gaps)
    struct.pack_into("<H" if offset == 54 else "<Q", small, offset, value)
    with pytest.raises(ElfError, match=words):
        with_gaps(small, gaps, data)


def test_a_patchelf_that_moves_the_payload_is_refused(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = file.read_bytes()
    before = read_image(data, file.name)
    monkeypatch.setattr(
        "relink.elf.patchelf.call_patchelf", lambda path, *_: [path.write_bytes(b"\x7fELF" + bytes(100))]
    )
    with pytest.raises(PatchelfError, match="does not hold up"):
        edit_without_gaps(tmp_path / "x", EDITS[0], before, data, find_gaps(data, before))


# What is not gap


def test_small_files_and_programs_are_left_whole(file: Path, tmp_path: Path) -> None:
    small = shared(tmp_path / "libsmall.so").read_bytes()
    assert find_gaps(small, read_image(small, "x")) == ()
    flags = ["-no-pie", f"-Wl,-rpath,{file.parent}"]
    source = "int main(void) { return 0; }" + BEHIND.replace("PAYLOAD", str(file.parent / "payload"))
    program = cc(source, tmp_path / "program", *flags, needed=[file.parent / "libdeep.so.1"]).read_bytes()
    assert find_gaps(program, read_image(program, "x")) == ()


@pytest.mark.parametrize("change", [{"elf_class": 32}, {"little_endian": False}, {"kind": 2}])
def test_other_kinds_of_files(file: Path, change: dict[str, int]) -> None:
    data = file.read_bytes()
    image = read_image(data, "x")
    assert find_gaps(data, replace(image, header=replace(image.header, **change))) == ()


@pytest.mark.parametrize("align", [(1 << 16) + 1, 1 << 18])
def test_alignments_that_nothing_can_follow(file: Path, align: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaps_module, "MAX_ALIGN", 1 << 17)
    data = file.read_bytes()
    image = read_image(data, "x")
    segments = (*image.segments, replace(image.segments[0], type=1, align=align))
    assert find_gaps(data, replace(image, segments=segments)) == ()


def test_a_cut_is_a_multiple_of_every_alignment(file: Path) -> None:
    data = file.read_bytes()
    image = read_image(data, "x")
    segments = (*image.segments, replace(image.segments[0], type=1, align=1 << 20))
    (gap,) = find_gaps(data, replace(image, segments=segments))
    assert len(gap) == 2 << 20


def test_nothing_is_cut_where_a_header_points(file: Path) -> None:
    """A segment that begins in the payload: an offset there would have no place in the short copy."""
    data = file.read_bytes()
    image = read_image(data, "x")
    (gap,) = find_gaps(data, image)
    for offset, size in (
        (gap.start, 1),
        (gap.stop - 1, 1),
        (gap.start - 9, 9),
        (gap.stop, 1),
        (0, gap.start + 9),
    ):
        inner = replace(image.segments[0], type=4, offset=offset, file_size=size)
        assert find_gaps(data, replace(image, segments=(*image.segments, inner))) == ()
    around = replace(image.segments[0], type=4, offset=gap.start - 9, file_size=len(gap) + 20)
    assert find_gaps(data, replace(image, segments=(*image.segments, around))) == (gap,)


def test_sections_of_names_that_patchelf_knows_stay(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = file.read_bytes()
    monkeypatch.setattr(gaps_module, "MOVABLE", frozenset({".hip_fatbin"}))
    assert find_gaps(data, read_image(data, "x")) == ()


def test_what_does_not_pay_is_not_cut(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaps_module, "MIN_TOTAL", SIZE)
    data = file.read_bytes()
    assert find_gaps(data, read_image(data, "x")) == ()


def test_a_section_past_the_end_of_the_file_is_not_cut(file: Path) -> None:
    data = bytearray(file.read_bytes())
    number = [one.name for one in read_sections(data, "x")].index(".hip_fatbin")
    (table,) = struct.unpack_from("<Q", data, 40)
    struct.pack_into("<Q", data, table + 64 * number + 24, len(data) + UNIT)
    assert find_gaps(data, read_image(data, "x")) == ()


def test_sparse_memory_reads_as_zeros() -> None:
    memory = sparse(1 << 30)
    assert len(memory) == 1 << 30
    assert memory[-4096:] == bytes(4096)
