"""Large members: they are edited without what the edit does not touch, and the wheel is the same as if they had not been.

Files that could act in a dry run: never given to the real loader, and said so; the others are asked about.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import os
import random
import re
import shutil
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from relink.elf.image import read_image
from relink.elf.source import BufferSource
from relink.gpu.amd.device_code import DeviceCode, read_device_code
from relink.library import apply, relink, relink_tree, verify
from relink.loader.dryrun import LoaderMap, dry_runs
from relink.loader.scan import scan
from relink.loader.scan_relocations import Refusal
from relink.loader.target import Target, find_target
from relink.make import editing
from relink.planning import contents as ahead
from relink.planning.model import Plan
from relink.planning.options import Options
from relink.report.summary import verdict
from relink.runs.questions import VerifiedWheel, verify_wheel
from relink.system.errors import EditError, RelinkError, UsageError, WheelError
from relink.system.findings.model import Finding
from relink.system.progress import RunBudget
from relink.system.sandbox.start import Sandbox
from relink.wheel.archive import WheelArchive
from relink.wheel.deflate import splice
from relink.wheel.deflate.stream import Checkpoint
from tests.support.cc import shared
from tests.support.edits import apply_edit
from tests.support.elf_attacks import FAR, audited, jumping, moved, rewritten
from tests.support.elf_builder import SUPPORTED, WHY_NOT, Export
from tests.support.works import OUTPUT, VENDOR_PATH, Works, open_wheel
from tests.unit.gpu.amd.build import entries_of, raw

SLOW = pytest.mark.slow(
    reason="large members; test_the_result_is_that_of_patchelf_on_the_whole_file edits one"
)


@pytest.fixture(autouse=True, params=[16 << 20, 1 << 20], ids=["anew", "taken over"])
def least(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Deflated anew, as so little is, or taken over, as more would be."""
    size: int = request.param
    monkeypatch.setattr(splice, "LEAST", size)
    monkeypatch.setattr(ahead, "REUSE", 1 << 20)
    return size


SIZE = 3 << 20
HALF = SIZE // 2
SOURCE = """
extern int hip(void); int g(void) { return hip() + 1; }
__asm__(".section .hip_fatbin,\\"aw\\",@progbits\\n.p2align 12\\nbundle: .incbin \\"PAYLOAD\\"\\n.previous\\n");
extern const char bundle[] __attribute__((visibility("hidden")));
struct wrapper { unsigned magic, version; const void *bundle; void *reserved; };
static struct wrapper first __attribute__((section(".hipFatBinSegment"), used)) = {0x48495046, 1, bundle, 0};
static struct wrapper second __attribute__((section(".hipFatBinSegment"), used)) = {0x48495046, 1, bundle + 1572864, 0};
"""


@pytest.fixture(scope="module")
def fat(works: Works, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with two bundles in 3 MiB of device code."""
    directory = tmp_path_factory.mktemp("fat")
    noise = random.Random(3).randbytes(HALF - (1 << 16))
    one = raw(
        {name: code + noise * (not name.startswith("host")) for name, code in entries_of("gfx1030").items()}
    )
    payload = one.ljust(HALF, b"\0") * 2
    (directory / "payload").write_bytes(payload)
    hip = works.prefix / "lib" / "libhip.so.7"
    source = SOURCE.replace("PAYLOAD", f"{directory}/payload")
    return shared(directory / "fat.so", source, needed=[hip], flags=[VENDOR_PATH])


@pytest.fixture
def vendor(fat: Path, works: Works, tmp_path: Path) -> Path:
    return works.wheel(tmp_path, {"demo/__init__.py": b"", "demo/fat.so": fat})


@pytest.mark.few(1, reason="the same of streams written in another way")
def test_the_result_is_that_of_patchelf_on_the_whole_file(
    vendor: Path, fat: Path, works: Works, tmp_path: Path
) -> None:
    report = relink(vendor, works.options(tmp_path / "out"))
    assert report.ok, report.findings
    (planned,) = (file for file in report.files if file.changed)
    with WheelArchive(tmp_path / "out" / OUTPUT) as archive:
        written = bytes(archive.read_into("demo/fat.so"))
    whole = tmp_path / "whole.so"
    whole.write_bytes(fat.read_bytes())
    original = fat.read_bytes()
    apply_edit(whole, planned.edit, read_image(original, "x"), original)
    assert written == whole.read_bytes()
    verified = verify_wheel(tmp_path / "out" / OUTPUT, works.options(tmp_path)).findings
    assert not [found for found in verified if found.level == "error"]


hooks: list[Callable[[str, tuple[Any, ...]], None]] = []  # an audit hook cannot be taken away again


@pytest.fixture(scope="module")
def audit_hook() -> None:
    def call(event: str, arguments: tuple[Any, ...]) -> None:
        for hook in hooks:
            hook(event, arguments)

    sys.addaudithook(call)


@SLOW
@pytest.mark.usefixtures("audit_hook")
def test_nothing_large_touches_the_disk(
    vendor: Path, works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    most = 0

    def watch(event: str, _arguments: tuple[Any, ...]) -> None:
        nonlocal most
        if event in ("subprocess.Popen", "shutil.rmtree", "os.rename"):
            with suppress(FileNotFoundError):  # another thread removes what it has done with
                places = [*(tmp_path / "tmp").rglob("*"), *(tmp_path / "out").rglob("*.elf")]
                most = max([most, *(place.stat().st_blocks * 512 for place in places if place.is_file())])

    hooks.append(watch)
    try:
        assert relink(vendor, works.options(tmp_path / "out")).ok
    finally:
        hooks.remove(watch)
    assert 0 < most < SIZE // 4


@pytest.mark.few(1, reason="the same of streams written in another way")
def test_what_is_held_of_a_large_member(works: Works, fat: Path, tmp_path: Path) -> None:
    """What lies outside of its gaps, and what readers of device code have read."""
    original = fat.read_bytes()
    with ExitStack() as stack:
        wheel = open_wheel(works.wheel(tmp_path, {"demo/fat.so": fat}), stack)
        held = wheel.contents.loaded["demo/fat.so"]
        wheel.contents.spans("demo/fat.so")
        assert sum(map(len, held.gaps)) > SIZE - (1 << 18)
        gone = bytearray(original)
        for gap in held.gaps:
            gone[gap.start : gap.stop] = bytes(len(gap))
        for part in held.kept_ranges:
            gone[part.start : part.stop] = original[part.start : part.stop]
        assert held.view == gone
        code = wheel.codes["demo/fat.so"]
        assert isinstance(code, DeviceCode)
        assert len(code.bundles) == 2
        assert read_device_code(BufferSource(held.view), "demo/fat.so") == code


def test_small_members_are_not_held(works: Works, tmp_path: Path) -> None:
    with ExitStack() as stack:
        assert open_wheel(works.wheel(tmp_path), stack).contents.loaded == {}


@pytest.fixture
def unwilling(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise EditError("it does not hold up", ["a section with a gap moved"])

    monkeypatch.setattr(editing, "short_edit", fail)


@SLOW
@pytest.mark.usefixtures("unwilling")
def test_where_that_fails_the_whole_file_is_edited(
    vendor: Path, works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "RLK510" not in [found.code for found in relink(vendor, works.options(tmp_path / "a")).findings]
    monkeypatch.setattr(editing, "REPORTED_FROM", SIZE)
    report = relink(vendor, works.options(tmp_path / "b"))
    (found,) = (found for found in report.findings if found.code == "RLK510")
    assert (found.level, found.subject) == ("info", "demo/fat.so")
    assert "a section with a gap moved" in found.message
    assert (tmp_path / "a" / OUTPUT).read_bytes() == (tmp_path / "b" / OUTPUT).read_bytes()


@SLOW
@pytest.mark.parametrize("share", [8, 0.5])
def test_two_large_members(
    works: Works, fat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """Both are inflated a second time when they are written: bit by bit, or at once where others are far larger."""
    monkeypatch.setattr(ahead, "SHARE", share)
    real, reading = WheelArchive.read_into, Mock()

    def read_into(archive: WheelArchive, name: str, *told: Any, **how: Any) -> memoryview:
        reading(name)
        return real(archive, name, *told, **how)

    monkeypatch.setattr(WheelArchive, "read_into", read_into)
    larger = tmp_path / "larger.so"
    larger.write_bytes(fat.read_bytes() + bytes(10))
    vendor = works.wheel(tmp_path, {"demo/fat.so": fat, "demo/larger.so": larger})
    report = relink(vendor, works.options(tmp_path / "out"))
    assert report.ok, report.findings
    assert [file.path for file in report.files if file.changed] == ["demo/fat.so", "demo/larger.so"]
    with WheelArchive(tmp_path / "out" / OUTPUT) as archive:
        first, second = (bytes(archive.read_into(file.path)) for file in report.files)
    assert first[HALF:SIZE] == second[HALF:SIZE] == fat.read_bytes()[HALF:SIZE]
    assert reading.call_count == (2 if share == 8 else 4)


@SLOW
def test_one_large_member_after_the_other(
    works: Works, fat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its memory has gone back before the next one is read."""
    larger = tmp_path / "larger.so"
    larger.write_bytes(fat.read_bytes() + bytes(10))
    vendor = works.wheel(tmp_path, {"demo/fat.so": fat, "demo/larger.so": larger})
    order = []
    real, reading = splice.find_spans, WheelArchive.read_lazily

    def find_spans(*of: Any) -> tuple[splice.Span, ...]:
        time.sleep(0.2)
        order.append("found")
        return real(*of)

    def read_lazily(archive: WheelArchive, name: str, *how: Any) -> tuple[memoryview, list[Checkpoint]]:
        order.append(name)
        return reading(archive, name, *how)

    monkeypatch.setattr(splice, "find_spans", find_spans)
    monkeypatch.setattr(WheelArchive, "read_lazily", read_lazily)
    relink(vendor, works.options(tmp_path / "out", verify=False))
    assert order == ["demo/fat.so", "found", "demo/larger.so", "found"]


def raw_middle(wheel: Path) -> bytes:
    """Some deflated bytes out of the middle of the large member."""
    with WheelArchive(wheel) as archive:
        data = b"".join(archive.raw("demo/fat.so"))
    return data[len(data) // 2 :][:1000]


@SLOW
def test_what_is_taken_over_is_what_is_read_back(
    vendor: Path, works: Works, tmp_path: Path, least: int
) -> None:
    assert relink(vendor, works.options(tmp_path / "out")).ok
    output = tmp_path / "out" / OUTPUT
    with WheelArchive(output) as archive:
        data = b"".join(archive.raw("demo/fat.so"))
    assert (raw_middle(vendor) in data) == (least == 1 << 20)
    again = tmp_path / "again"
    relink(vendor, works.options(again, verify=False, jobs=3))
    assert (again / OUTPUT).read_bytes() == output.read_bytes()


@SLOW
def test_content_that_changed_in_a_stretch_is_deflated_anew(
    vendor: Path, works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks are looked for across small gaps between gaps, where an edit may change something after all."""
    monkeypatch.setattr(splice, "LEAST", 1 << 20)
    monkeypatch.setattr(ahead, "join_gaps", lambda gaps, _: [range(gaps[-1].stop)])
    assert relink(vendor, works.options(tmp_path / "out")).ok
    with WheelArchive(tmp_path / "out" / OUTPUT) as archive:
        assert raw_middle(vendor) not in b"".join(archive.raw("demo/fat.so"))
        assert sum(map(len, archive.chunks("demo/fat.so"))) > SIZE


def other_bytes(span: splice.Span) -> splice.Span:
    """What is read a second time is something else."""
    read = span.read
    seen: set[int] = set()

    def twice(offset: int, length: int) -> bytes:
        data = read(offset, length)
        if offset in seen:
            return bytes(len(data))
        seen.add(offset)
        return data

    return replace(span, read=twice)


@pytest.mark.few(1, reason="the same of streams written in another way")
def test_what_was_taken_over_wrongly_is_not_let_out(
    vendor: Path, works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(splice, "LEAST", 1 << 20)
    real = splice.find_spans
    monkeypatch.setattr(splice, "find_spans", lambda *of: tuple(other_bytes(span) for span in real(*of)))
    with pytest.raises(RelinkError, match=r"demo/fat\.so.*the disk does not give back"):
        relink(vendor, works.options(tmp_path / "out", verify=False))
    assert not (tmp_path / "out").exists()


@pytest.mark.few(1, reason="the same of streams written in another way")
@pytest.mark.parametrize("whole", [False, True])
def test_a_file_that_record_does_not_list_is_refused(
    fat: Path, works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    honest = works.wheel(tmp_path, {"demo/fat.so": fat})
    vendor = tmp_path / "vendor" / honest.name
    vendor.parent.mkdir()
    with zipfile.ZipFile(honest) as source, zipfile.ZipFile(vendor, "w", zipfile.ZIP_DEFLATED) as sink:
        for entry in source.infolist():
            data = source.read(entry)
            if entry.filename.endswith("/RECORD"):
                data = re.sub(rb"(?<=demo/fat.so,sha256=).{4}", b"AAAA", data)
            sink.writestr(entry, data)
    if whole:
        monkeypatch.setattr("relink.planning.reading.find_gaps", lambda *_: ())
    with pytest.raises(WheelError) as caught:
        relink(vendor, works.options(tmp_path / "out", force=True))
    assert "'demo/fat.so' is not the file that RECORD lists (sha256=" in str(caught.value)
    assert not (tmp_path / "out").exists()
    relink(vendor, works.options(tmp_path / "out", force=True, verify_record=False))
    assert os.listdir(tmp_path / "out") == [OUTPUT]


@pytest.mark.few(1, reason="the same of streams written in another way")
@pytest.mark.parametrize("linked", [True, False])
def test_code_for_other_gpus_leaves_the_wheel(works: Works, tmp_path: Path, linked: bool) -> None:
    noise = random.Random(3).randbytes(HALF // 4)
    entries = {name: code + noise for name, code in entries_of("gfx90a", "gfx1030").items()}
    (tmp_path / "payload").write_bytes(raw(entries).ljust(HALF, b"\0") * 2)
    source = SOURCE.replace("PAYLOAD", f"{tmp_path}/payload")
    needed = [works.prefix / "lib" / "libhip.so.7"]
    if not linked:
        source, needed = source.replace("hip() + 1", "1"), []
    fat = shared(tmp_path / "fat.so", source, needed=needed, flags=[VENDOR_PATH] * linked)
    user = shared(
        tmp_path / "user.so",
        "extern int hip(void); int u(void) { return hip(); }",
        needed=[works.prefix / "lib" / "libhip.so.7"],
        flags=[VENDOR_PATH],
    )
    vendor = works.wheel(tmp_path, {"demo/__init__.py": b"", "demo/fat.so": fat, "demo/user.so": user})
    made = Options(prefixes=[str(works.prefix)], output_directory=tmp_path / "plain", gpus=["gfx1030"])
    plain = relink(vendor, made)
    report = relink(
        vendor, dataclasses.replace(made, only_gpus=["gfx1030"], output_directory=tmp_path / "only")
    )
    assert plain.output
    assert report.output
    with zipfile.ZipFile(plain.output.path) as old, zipfile.ZipFile(report.output.path) as new:
        before, after = (archive.read("demo/fat.so") for archive in (old, new))
        assert new.getinfo("demo/fat.so").compress_size < 0.6 * old.getinfo("demo/fat.so").compress_size
    ranges = {(one.offset, one.size): one for one in report.plan.removed_code}
    assert [one.entry[-6:] for one in ranges.values()] == ["", "gfx90a"] * 2
    masked = [bytearray(before), bytearray(after)]
    for (offset, size), one in ranges.items():
        digest = hashlib.sha256(before[offset : offset + size]).hexdigest()
        assert digest == one.sha256
        for content in masked:
            content[offset : offset + size] = bytes(size)
    assert masked[0] == masked[1]
    assert report.plan.output.partition("-cp")[0].endswith(".gfx1030")
    kept = dataclasses.replace(made, only_gpus=["gfx1200"], gpus=(), allow_isa_gap=True)
    kept = dataclasses.replace(kept, output_directory=tmp_path / "none")
    report = relink(vendor, kept)
    assert [one.level for one in report.findings if one.code == "RLK430"] == ["warning"]
    assert report.output
    assert (report.plan.removed_code, report.plan.only_gpus) == ((), ())
    assert report.plan.output == plain.plan.output


@SLOW
def test_a_tree_shrinks_to_holes_and_its_record_fits(works: Works, tmp_path: Path) -> None:
    noise = random.Random(3).randbytes(3 << 20)
    entries = {name: code + noise for name, code in entries_of("gfx90a", "gfx1030").items()}
    (tmp_path / "payload").write_bytes(raw(entries).ljust(8 << 20, b"\0") * 2)
    fat = shared(
        tmp_path / "fat.so",
        SOURCE.replace("PAYLOAD", f"{tmp_path}/payload")
        .replace(str(HALF), str(8 << 20))
        .replace("hip() + 1", "1"),
    )
    vendor = works.wheel(
        tmp_path,
        {
            "demo/fat.so": fat,
            "demo/rocblas/library/T_gfx1030.dat": b"x",
            "demo/rocblas/library/T_gfx90a.dat": b"y",
        },
    )
    tree, new = tmp_path / "tree", tmp_path / "new"
    with zipfile.ZipFile(vendor) as archive:
        archive.extractall(tree)
    report = relink_tree(tree, Options(output_directory=new, only_gpus=["gfx1030"]))
    assert report.output
    before, after = (tree / "demo/fat.so").read_bytes(), (new / "demo/fat.so").read_bytes()
    assert len(after) == len(before)
    assert (after.count(noise), before.count(noise)) == (2, 4)
    assert (new / "demo/fat.so").stat().st_blocks << 9 < len(before) - (4 << 20)
    assert [path.name for path in (new / "demo/rocblas/library").iterdir()] == ["T_gfx1030.dat"]
    (record,) = new.glob("*.dist-info/RECORD")
    rows = record.read_text()
    assert "T_gfx90a.dat" not in rows
    digest = base64.urlsafe_b64encode(hashlib.sha256(after).digest()).rstrip(b"=").decode()
    assert f"demo/fat.so,sha256={digest},{len(after)}" in rows


@SLOW
def test_a_wheel_shrinks_without_a_prefix_and_names_what_it_came_from(works: Works, tmp_path: Path) -> None:
    """There is no ROCm to link it to: the code goes out all the same, and for another GPU the vendor's wheel is named."""
    noise = random.Random(3).randbytes(HALF // 4)
    entries = {name: code + noise for name, code in entries_of("gfx90a", "gfx1030").items()}
    (tmp_path / "payload").write_bytes(raw(entries).ljust(HALF, b"\0") * 2)
    fat = shared(
        tmp_path / "fat.so",
        SOURCE.replace("PAYLOAD", f"{tmp_path}/payload"),
        needed=[works.prefix / "lib" / "libhip.so.7"],
    )
    vendor = works.wheel(
        tmp_path,
        {
            "demo/__init__.py": b"",
            "demo/fat.so": fat,
            "demo/rocblas/library/T_gfx1030.dat": b"x",
            "demo/rocblas/library/T_gfx90a.dat": b"y",
        },
    )
    report = relink(vendor, Options(output_directory=tmp_path / "only", only_gpus=["gfx1030"]))
    assert report.output
    assert report.plan.removed == ("demo/rocblas/library/T_gfx90a.dat",)
    assert report.plan.files == ()
    assert "+gfx1030-" in report.plan.output
    told = verdict(report).text
    assert told.startswith("How its files load was not looked at")
    assert "Code for other GPUs than gfx1030 is taken out" in told
    # There is no runtime to say anything of.
    assert {one.code for one in report.plan.findings} & {"RLK405", "RLK406"} == set()
    with zipfile.ZipFile(report.output.path) as new:
        (metadata,) = (name for name in new.namelist() if name.endswith("/METADATA"))
        assert b"\nSupported-Platform: gfx1030\n" in new.read(metadata)
        (record,) = (name for name in new.namelist() if name.endswith("/RECORD"))
        assert b"T_gfx1030.dat" in new.read(record)
        assert b"T_gfx90a.dat" not in new.read(record)
    options = Options(gpus=["gfx90a"], prefixes=[str(works.prefix)])
    found = [one for one in verify(report.output.path, options).findings if one.code == "RLK401"]
    assert len(found) == 1
    assert f"(SHA-256 {report.wheel.sha256})" in str(found[0].remedy)


@SLOW
def test_code_that_was_left_and_is_changed_later_is_found(works: Works, tmp_path: Path) -> None:
    """RECORD fits the changed file, too: whoever changes a wheel can write that anew."""
    noise = random.Random(3).randbytes(HALF // 4)
    entries = {name: code + noise for name, code in entries_of("gfx90a", "gfx1030").items()}
    entries["hipv4-spirv64-amd-amdhsa--amdgcnspirv"] = b"\x03\x02\x23\x07"
    (tmp_path / "payload").write_bytes(raw(entries).ljust(HALF, b"\0") * 2)
    source = SOURCE.replace("PAYLOAD", f"{tmp_path}/payload").replace("hip() + 1", "1")
    vendor = works.wheel(
        tmp_path, {"demo/__init__.py": b"", "demo/fat.so": shared(tmp_path / "fat.so", source)}
    )
    made = Options(output_directory=tmp_path / "only", only_gpus=["gfx1030"], drop_jit=True)
    plan = relink(vendor, dataclasses.replace(made, dry_run=True)).plan
    (told,) = (one.message for one in plan.findings if one.code == "RLK429")
    assert told.endswith("without the code that is compiled on first use GPUs of the future have none")
    plan.save(tmp_path / "plan.json")
    report = apply(Plan.load(tmp_path / "plan.json"), wheel=vendor, output_directory=tmp_path / "only")
    assert report.output
    assert [one.entry[-8:] for one in report.plan.removed_code] == ["", "--gfx90a", "gcnspirv"] * 2
    assert [bool(one.kept) for one in report.plan.removed_code] == [True, False, False] * 2
    assert [one for one in verify(report.output.path).findings if one.code == "RLK411"] == []
    changed = tmp_path / Path(report.output.path).name
    with zipfile.ZipFile(report.output.path) as old, zipfile.ZipFile(changed, "w") as new:
        data = bytearray(old.read("demo/fat.so"))
        data[data.rindex(noise) + 1000] ^= 1
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
        for entry in old.infolist():
            content = bytes(data) if entry.filename == "demo/fat.so" else old.read(entry)
            if entry.filename.endswith("/RECORD"):
                content = re.sub(rb"(?<=fat.so,sha256=)[^,]+", digest, content)
            new.writestr(entry, content)
    (found,) = (one for one in verify(changed).findings if one.level == "error")
    second = [one.offset for one in report.plan.removed_code if one.kept][1]
    assert (found.code, found.subject) == ("RLK411", "demo/fat.so")
    assert found.message == f"what --only-gpu left at 0x{second:x} is other code"
    report = relink(vendor, dataclasses.replace(made, drop_jit=False, dry_run=True))
    (told,) = (one.message for one in report.findings if one.code == "RLK429")
    assert told.endswith("stays, which GPUs of the future run too (--drop-jit takes it out)")


def test_jit_code_is_dropped_only_beside_code_for_a_gpu() -> None:
    with pytest.raises(UsageError, match="--drop-jit goes with --only-gpu"):
        Options(drop_jit=True)


pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)


def hostile(tmp_path: Path) -> bytes:
    return moved(jumping(tmp_path / "jumping.so", tmp_path / "canary"), FAR)


def refused(result: VerifiedWheel, code: str = "RLK605") -> list[Finding]:
    return [found for found in result.findings if found.code == code]


@pytest.mark.few(2, reason="the same of streams written in another way")
@pytest.mark.parametrize("tag", ["DT_AUDIT", "DT_DEPAUDIT"])
@pytest.mark.parametrize("interpreter", [False, True])
def test_an_audit_library_does_not_run(works: Works, tmp_path: Path, tag: str, *, interpreter: bool) -> None:
    program, library = audited(tmp_path, tmp_path / "canary", tag)
    vendor = works.wheel(
        tmp_path, {"demo/prog": program, "demo/libaud.so": library, "demo/plain.so": works.plain}
    )
    options = Options(interpreter=find_target().interpreter) if interpreter else Options()
    result = verify_wheel(vendor, options)
    (found,) = refused(result)
    assert (found.subject, found.level) == ("demo/prog", "error")
    assert found.message.startswith(f"{tag}: names a library whose code the loader runs")
    assert [*result.maps] == ["demo/libaud.so", "demo/plain.so"]
    assert not (tmp_path / "canary").exists()


@pytest.mark.few(1, reason="the same of streams written in another way")
def test_what_needs_a_refused_file_is_not_asked_about(works: Works, tmp_path: Path) -> None:
    needs = shared(tmp_path / "needs.so", needed=[jumping(tmp_path / "jumping.so", tmp_path / "canary")])
    found = shared(tmp_path / "found.so", needed=[tmp_path / "jumping.so"], flags=["-Wl,-rpath,$ORIGIN"])
    members: dict[str, bytes | Path] = {
        "demo/jumping.so": hostile(tmp_path),
        "demo/found.so": found,
        "demo/needs.so": needs,
    }
    result = verify_wheel(works.wheel(tmp_path, {**members, "demo/plain.so": works.plain}), Options())
    (item,) = refused(result)
    assert item.subject == "demo/jumping.so"
    assert item.message.startswith("relocation 0 of DT_RELA: writes 8 bytes at 0x7f000000")
    assert item.message.endswith("Not asked about either, since they need it: demo/found.so")
    assert [*result.maps] == ["demo/needs.so", "demo/plain.so"]
    assert "RLK601" not in {other.code for other in result.findings}


def test_nothing_is_written(works: Works, tmp_path: Path) -> None:
    """The member changes, since it needs a library of the prefix."""
    flags = ["-Wl,--depaudit,libaud.so", "-Wl,-rpath,/opt/rocm-0.0.0/lib"]
    source = "extern int hip(void); int g(void){return hip();}"
    member = shared(tmp_path / "a.so", source, needed=[works.prefix / "lib" / "libhip.so.7"], flags=flags)
    report = relink(works.wheel(tmp_path, {"demo/a.so": member}), works.options(tmp_path / "out"))
    assert not report.ok
    assert ("RLK605", "demo/a.so") in [(found.code, found.subject) for found in report.findings]
    assert not (tmp_path / "out" / OUTPUT).exists()


def prefix_with(works: Works, directory: Path, library: bytes) -> Path:
    shutil.copytree(works.prefix, directory)
    (directory / "lib" / "libhip.so.7").write_bytes(library)
    return directory


def test_a_library_of_the_prefix(works: Works, tmp_path: Path) -> None:
    library = rewritten(soname="libhip.so.7", exports=(Export("hip"),), relocations=((FAR, 8, 0, 0),))
    prefix = prefix_with(works, tmp_path / "rocm", library)
    options = dataclasses.replace(
        works.options(tmp_path / "out"), prefixes=(str(prefix),), assume_symbols=("nowhere",)
    )
    report = relink(works.small(tmp_path), options)
    (found,) = (found for found in report.findings if found.code == "RLK605")
    assert found.subject == str(prefix / "lib" / "libhip.so.7")
    assert found.message.endswith("Not asked about either, since they need it: demo/a.so")


@pytest.mark.few(1, reason="the same of streams written in another way")
def test_a_library_that_relink_cannot_read(works: Works, tmp_path: Path) -> None:
    """The loader may see in it what relink does not."""
    good = relink(works.small(tmp_path), works.options(tmp_path / "out"))
    assert good.ok
    library = tmp_path / "lib.so"
    needs = shared(library, needed=[shared(tmp_path / "libodd.so")], flags=[f"-Wl,-rpath,{tmp_path}"])
    # A second soname, outside of the string table.
    (tmp_path / "libodd.so").write_bytes(rewritten(soname=None, entries=((14, 1 << 30),)))
    result = verify_wheel(works.wheel(tmp_path, {"demo/lib.so": needs}), Options())
    (found,) = refused(result)
    assert found.subject == str(tmp_path / "libodd.so")
    assert "cannot be read (damaged dynamic section" in found.message
    assert result.maps == {}


# What the user knows


@pytest.mark.few(1, reason="the same of streams written in another way")
def test_trust_needs_the_sandbox(works: Works, tmp_path: Path) -> None:
    for sandbox in ("auto", "off"):
        with pytest.raises(UsageError, match="give --sandbox require with it"):
            verify_wheel(works.wheel(tmp_path), Options(trust=("*",), sandbox=sandbox))


@pytest.mark.few(1, reason="the same of streams written in another way")
def test_trust(works: Works, tmp_path: Path) -> None:
    """The file names a configuration, which glibc passes over."""
    odd = rewritten(soname="libx.so.2", imports=(), entries=((0x6FFFFEFA, "x.conf"),))
    vendor = works.wheel(tmp_path, {"demo/odd.so": odd, "demo/plain.so": works.plain})
    for pattern in ("libx", "libx.so", "libx.so.2", "demo/*.so"):
        result = verify_wheel(vendor, Options(trust=(pattern, "libother*"), sandbox="require"))
        (found,) = refused(result, "RLK606")
        assert (found.subject, found.level) == ("demo/odd.so", "warning")
        assert found.message == "DT_CONFIG: names a configuration file for the loader"
        assert [*result.maps] == ["demo/odd.so", "demo/plain.so"]
        (unused,) = refused(result, "RLK109")
        assert (unused.subject, unused.message) == ("libother*", "--trust: no file of that name was refused")
        assert not refused(result)


@pytest.mark.few(1, reason="the same of streams written in another way")
def test_a_loader_that_calls_resolvers(works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = replace(find_target(), glibc="2.14")
    monkeypatch.setattr("relink.planning.case.find_target", lambda **_: target)
    result = verify_wheel(works.wheel(tmp_path), Options())
    (found,) = refused(result, "RLK602")
    assert "glibc 2.14 runs code of libraries in a dry run; 2.15 is needed" in found.message
    assert result.maps == {}


@pytest.mark.few(1, reason="the same of streams written in another way")
def test_each_file_is_scanned_once(works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many members share a closure."""
    scanned: list[bytes] = []

    def noted(buffer: bytes) -> tuple[Refusal, ...]:
        scanned.append(bytes(buffer))
        return scan(buffer)

    monkeypatch.setattr("relink.make.editing.scan", noted)
    members = {f"demo/{name}.so": works.library for name in "abc"}
    report = relink(works.wheel(tmp_path, members), works.options(tmp_path / "out"))
    assert report.ok
    files = [path for path in (works.prefix / "lib").iterdir() if path.is_file()]
    for path in (*files, Path(os.path.realpath(find_target().libc_directory)) / "libc.so.6"):
        assert scanned.count(path.read_bytes()) == 1, path


@pytest.mark.few(1, reason="the same of streams written in another way")
def test_a_refused_member_lies_where_no_loader_finds_it(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should the loader want a file that the simulation does not know of, it is not there."""
    seen: list[str] = []

    def noted(
        target: Target,
        programs: Sequence[tuple[str, Sequence[str]]],
        sandbox: Sandbox | None,
        *,
        symbols: bool,
        budget: RunBudget,
    ) -> AbstractContextManager[Iterator[LoaderMap]]:
        paths = [path for program, preloads in programs for path in (program, *preloads)]
        (directory,) = {os.path.dirname(path) for path in paths if path.endswith("/demo/plain.so")}
        seen.extend(os.listdir(directory))
        return dry_runs(target, programs, sandbox, symbols=symbols, budget=budget)

    monkeypatch.setattr("relink.make.verification.dry_runs", noted)
    members: dict[str, bytes | Path] = {"demo/jumping.so": hostile(tmp_path), "demo/plain.so": works.plain}
    verify_wheel(works.wheel(tmp_path, members), Options())
    assert seen == ["plain.so"]
