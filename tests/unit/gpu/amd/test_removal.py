"""Code for other GPUs is taken out of bundles in their place, and what a GPU may run stays as it was."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable

import pytest

from relink.elf.source import BufferSource
from relink.gpu.amd import removal
from relink.gpu.amd.device_code import DeviceCode, read_device_code
from relink.gpu.amd.removal import find_changed_entries, list_other_files, remove_other_code
from relink.gpu.amd.target_id import parse_target_id
from relink.gpu.removal import ReplacedSource, Replacement, cut_ranges, replace_ranges
from tests.unit.gpu.amd.build import HOST, ccob, code_object, hip, kpack_archive, library, raw


def full(*targets: str) -> dict[str, bytes]:
    """Entries whose bytes differ, too large for the table's page."""
    chance = random.Random(7)
    return {hip(name): code_object(name) + chance.randbytes(5000) for name in targets}


SPIRV = "hipv4-spirv64-amd-amdhsa--amdgcnspirv"


def left(
    data: bytes, *gpus: str, drop_jit: bool = False
) -> tuple[bytes, DeviceCode, tuple[Replacement, ...]]:
    """The file after it, its code, and what was replaced."""
    source = BufferSource(data)
    code, kept = read_device_code(source, "a.so"), [*map(parse_target_id, gpus)]
    made = remove_other_code(source, code, kept, drop_jit=drop_jit).ranges
    after = b"".join(replace_ranges([memoryview(data)], made, "a.so"))
    assert changes(after, made) == []
    assert after == ReplacedSource(source, made).read_at(0, len(data))
    assert len(after) == len(data)
    return after, read_device_code(BufferSource(after), "a.so"), made


def changes(data: bytes, made: tuple[Replacement, ...]) -> list[str]:
    """What a reader of the result says of the code that stayed."""
    kept = {one.offset: one.kept for one in made if one.kept}
    source = BufferSource(data)
    return find_changed_entries(source, read_device_code(source, "a.so"), kept)


def names(code: DeviceCode) -> list[list[str]]:
    return [[entry.text for entry in bundle.entries] for bundle in code.bundles]


def test_rows_and_payloads_of_other_gpus_go_and_nothing_moves() -> None:
    entries = full("gfx90a", "gfx1030", "gfx1100")
    data = library([raw(entries), raw(entries)])
    after, code, made = left(data, "gfx1030")
    assert names(code) == [[HOST, hip("gfx1030")]] * 2
    assert not code.problems
    for bundle, old in zip(code.bundles, read_device_code(BufferSource(data), "a.so").bundles, strict=True):
        assert bundle.offset == old.offset
        entry = bundle.entries[1]
        assert after[bundle.offset + entry.offset :][: entry.size] == entries[hip("gfx1030")]
    assert entries[hip("gfx1100")] not in after
    assert entries[hip("gfx90a")] not in after
    outside = cut_ranges([range(len(data))], made)
    assert all(data[part.start : part.stop] == after[part.start : part.stop] for part in outside)


@pytest.mark.parametrize(
    ("gpu", "kept"),
    [
        ("gfx90a", ["gfx90a:xnack+", "gfx90a:xnack-"]),
        ("gfx90a:xnack-", ["gfx90a:xnack-"]),
        ("gfx1100", ["gfx11-generic", "gfx1100"]),
        ("gfx11-generic", ["gfx11-generic", "gfx1100", "gfx1101"]),
    ],
)
def test_what_a_gpu_could_fall_back_to_stays(gpu: str, kept: list[str]) -> None:
    data = library([raw(full("gfx90a:xnack+", "gfx90a:xnack-", "gfx11-generic", "gfx1100", "gfx1101"))])
    assert names(left(data, gpu)[1]) == [[HOST, *map(hip, kept)]]


def test_what_is_not_decoded_stays() -> None:
    other = {SPIRV: b"s" * 300, hip("gfx9999"): b"x" * 300, "openmp-amdgcn-amd-amdhsa--gfx90a": b"o" * 300}
    data = library([raw({**full("gfx90a", "gfx1030"), **other})])
    assert names(left(data, "gfx1030")[1]) == [[HOST, hip("gfx1030"), *other]]


@pytest.mark.parametrize("packed", [False, True])
def test_spirv_goes_where_it_is_asked_for_and_no_gpu_needs_it(packed: bool) -> None:
    spirv = {SPIRV: b"\x03\x02\x23\x07" + b"s" * 300}
    both = ("gfx90a:xnack+", "gfx90a:xnack-", "gfx1030")
    bundle = raw({**full(*both), **spirv})
    data = library([ccob(bundle) if packed else bundle])
    assert names(left(data, "gfx1030")[1]) == [[HOST, hip("gfx1030"), SPIRV]]
    after, code, made = left(data, "gfx1030", drop_jit=True)
    assert names(code) == [[HOST, hip("gfx1030")]]
    assert SPIRV in ", ".join(one.entry for one in made)
    assert b"s" * 300 not in after
    assert (read_device_code(BufferSource(data), "a.so").is_jit, code.is_jit) == (True, False)
    # Only with SPIR-V has gfx90a code whatever its xnack is.
    half = raw({**full("gfx90a:xnack+", "gfx1030"), **spirv})
    data = library([ccob(half) if packed else half])
    assert names(left(data, "gfx90a", drop_jit=True)[1]) == [[HOST, hip("gfx90a:xnack+"), SPIRV]]
    assert names(left(data, "gfx1100", drop_jit=True)[1]) == [[HOST, *map(hip, both[::2]), SPIRV]]


@pytest.mark.parametrize("packed", [False, True])
def test_code_that_stayed_and_is_changed_later_is_found(packed: bool) -> None:
    bundle = raw(full("gfx90a", "gfx1030", "gfx1100"))
    data = library([ccob(bundle) if packed else bundle] * 2)
    after, code, made = left(data, "gfx1030", "gfx1100")
    second = code.bundles[1]
    inner = raw(full("gfx90a", "gfx1030", "gfx1100"))
    other = bytearray(after)
    if packed:
        bad = bytearray(inner)
        at = bad.index(hip("gfx90a").encode())
        bad[at : at + 1] = b"H"
        new = ccob(bytes(bad))
        other[second.offset : second.offset + second.size] = bytes(second.size)
        other[second.offset : second.offset + len(new)] = new
    else:
        other[second.offset + second.entries[1].offset + 4000] ^= 1
    at = [one.offset for one in made if one.kept][1]
    told = [f"what --only-gpu left at 0x{at:x} is other code"]
    assert changes(bytes(other), made) == told
    gone = bytearray(after)
    gone[second.offset : second.offset + 4] = b"none"
    assert changes(bytes(gone), made) == told


def test_a_bundle_that_serves_none_of_the_gpus_stays() -> None:
    data = library([raw(full("gfx90a", "gfx1030")), raw(full("gfx90a"))])
    assert names(left(data, "gfx1030")[1]) == [[HOST, hip("gfx1030")], [HOST, hip("gfx90a")]]
    assert left(data, "gfx1200")[2] == ()
    assert left(data, "gfx1030", "gfx1031")[2] == ()


@pytest.mark.parametrize(("version", "method"), [(2, "zstd"), (3, "zstd"), (3, "zlib")])
def test_a_compressed_bundle_is_made_anew_in_its_place(version: int, method: str) -> None:
    content = raw(full("gfx90a", "gfx1030", "gfx1100"))
    data = library([ccob(content, version, method), ccob(content, version, method)])
    _, code, made = left(data, "gfx1030")
    assert names(code) == [[HOST, hip("gfx1030")]] * 2
    assert [one.entry for one in made] == [f"{hip('gfx90a')}, {hip('gfx1100')}"] * 2
    assert code.bundles[0].size < read_device_code(BufferSource(data), "a.so").bundles[0].size


def test_a_payload_with_something_behind_its_frame_stays() -> None:
    bundle = ccob(raw(full("gfx90a", "gfx1030"))) + b"x"
    bundle = bundle[:8] + struct.pack("<Q", len(bundle)) + bundle[16:]
    assert left(library([bundle]), "gfx1030")[2] == ()


@pytest.mark.parametrize(
    ("name", "value"), [("_MAX_ENTRIES", 3), ("_MAX_INFLATED", 5000), ("_MAX_TOTAL", 5000)]
)
def test_what_is_more_than_is_looked_at_stays(monkeypatch: pytest.MonkeyPatch, name: str, value: int) -> None:
    data = library([ccob(raw(full("gfx90a", "gfx1030", "gfx1100")))])
    assert left(data, "gfx1030")[2]
    monkeypatch.setattr(removal, name, value)
    assert left(data, "gfx1030")[2] == ()


@pytest.mark.parametrize(
    "damage",
    [
        lambda packed: packed + bytes(9000),
        lambda packed: b"\x78\x9c" + bytes(len(packed) - 2),
        lambda packed: packed[:-1] + bytes([packed[-1] ^ 1]),
    ],
    ids=["too large", "unreadable", "another byte"],
)
def test_what_does_not_come_out_of_its_place_again_stays(
    monkeypatch: pytest.MonkeyPatch, damage: Callable[[bytes], bytes]
) -> None:
    """As if a compressor were worse than the vendor's, or wrong."""
    data = library([ccob(raw(full("gfx90a", "gfx1030")), 3, "zlib")])
    assert left(data, "gfx1030")[2]
    real = zlib.compress
    monkeypatch.setattr("relink.gpu.amd.removal.zlib.compress", lambda *of: damage(real(*of)))
    assert left(data, "gfx1030")[2] == ()


def test_archives_of_code_stay_and_so_do_libraries_that_refer_to_them() -> None:
    """A kpack archive has a library's code for one GPU in AMD's packages: the other package is not required."""
    archive = kpack_archive({"lib/a.so#0": ["gfx90a", "gfx1030"]})
    code = read_device_code(BufferSource(archive), "t/.kpack/a_gfx90a.kpack")
    assert code.form == "kpack-archive"
    assert remove_other_code(BufferSource(archive), code, [parse_target_id("gfx1030")]).ranges == ()
    members = ["t/.kpack/a_gfx90a.kpack", "t/.kpack/a_gfx1030.kpack"]
    assert list_other_files(members, {}, [parse_target_id("gfx1030")]) == {}


def test_version_1_says_no_size_and_stays() -> None:
    assert left(library([ccob(raw(full("gfx90a", "gfx1030")), 1)]), "gfx1030")[2] == ()


def test_bundles_that_only_their_sizes_lead_to_stay() -> None:
    bundle = raw(full("gfx1030", "gfx90a"))
    assert left(library([bundle, bundle], wrappers=False), "gfx1030")[2] == ()


def test_payloads_that_overlap_stay() -> None:
    bundle = bytearray(raw(full("gfx90a", "gfx1030", "gfx1100")))
    at = bundle.index(hip("gfx90a").encode()) - 24
    other = bundle.index(hip("gfx1030").encode()) - 24
    bundle[at : at + 8] = bundle[other : other + 8]
    assert names(left(library([bytes(bundle)]), "gfx1030")[1]) == [[HOST, hip("gfx90a"), hip("gfx1030")]]


def test_a_payload_that_another_wrapper_points_into_stays() -> None:
    inside = raw(full("gfx1030"))
    outer = raw({hip("gfx90a"): inside, hip("gfx1030"): code_object("gfx1030")})
    assert left(library([outer], pointers=[0]), "gfx1030")[2]
    assert left(library([outer], pointers=[0, outer.index(inside)]), "gfx1030")[2] == ()


def test_a_payload_over_the_table_stays() -> None:
    bundle = bytearray(raw(full("gfx90a", "gfx1030")))
    at = bundle.index(hip("gfx90a").encode()) - 24
    struct.pack_into("<Q", bundle, at, 40)
    data = library([bytes(bundle)])
    assert left(data, "gfx1030")[2] == ()


@pytest.mark.slow(reason="a second of generated files")
def test_mutated_files_change_in_their_bundles_alone() -> None:
    chance = random.Random(53)
    content = raw(full("gfx90a", "gfx1030", "gfx1100"), align=256)
    for form in (content, ccob(content)):
        clean = library([form, form])
        first = read_device_code(BufferSource(clean), "a.so").bundles
        inside = range(first[0].offset, first[-1].offset + first[-1].size)
        for _ in range(300):
            data = bytearray(clean)
            for _ in range(chance.randint(1, 4)):
                place = chance.choice((first[0].offset, first[1].offset)) + chance.randrange(260)
                data[place] = chance.choice((0, 1, 255, chance.randrange(256)))
            after, code, made = left(bytes(data), "gfx1030")
            before = read_device_code(BufferSource(bytes(data)), "a.so")
            assert all(inside.start <= one.offset and one.stop <= inside.stop for one in made)
            for old, new in zip(before.bundles, code.bundles, strict=True):
                kept = [one for one in old.entries if one.text == hip("gfx1030") and one.usable]
                assert [one for one in new.entries if one.text == hip("gfx1030") and one.usable] == kept
                for one in kept if old.container == "raw" else ():
                    start = old.offset + one.offset
                    assert after[start : start + one.size] == data[start : start + one.size]


@pytest.mark.parametrize(
    ("gpu", "gone"),
    [
        ("gfx1100", ["rocblas/library/Kernels.so-000-gfx90a-xnack-.hsaco", "rocblas/library/T_gfx90a.co"]),
        (
            "gfx90a:xnack+",
            ["rocblas/library/Kernels.so-000-gfx90a-xnack-.hsaco", "rocblas/library/T_gfx1100.dat"],
        ),
        ("gfx1201", []),
    ],
)
def test_files_for_other_gpus_alone_leave(gpu: str, gone: list[str]) -> None:
    """A directory without a file for the GPU stays: what HIP makes of a related GPU's is not known."""
    members = [
        "torch/lib/rocblas/library/T_gfx1100.dat",
        "torch/lib/rocblas/library/T_gfx90a.co",
        "torch/lib/rocblas/library/Kernels.so-000-gfx90a-xnack-.hsaco",
        "torch/lib/rocblas/library/TensileLibrary.dat",
        "torch/lib/hipblaslt/library/T_gfx942.co",
        "torch/share/other/T_gfx90a.co",
    ]
    found = list_other_files(members, {}, [parse_target_id(gpu)])
    assert sorted(found) == [f"torch/lib/{name}" for name in gone]
    assert list_other_files(members, {}, [parse_target_id(gpu), parse_target_id("gfx1031")]) == {}


def test_images_and_tuning_data_of_other_gpus_leave() -> None:
    images = "torch/lib/aotriton.images"
    members = [f"{images}/amd-gfx90a/flash/k.aks2", f"{images}/amd-gfx11xx/flash/k.aks2"]
    members += [
        "t/share/miopen/db/gfx90a68.kdb",
        "t/share/miopen/db/gfx1100_24.kdb",
        "t/share/miopen/db/miopen.db",
    ]
    found = list_other_files(members, {}, [parse_target_id("gfx1100")])
    assert found == {members[0]: "gfx90a", members[2]: "gfx90a"}


def test_a_file_of_kernels_leaves_by_what_is_in_it() -> None:
    kernels = {
        name: read_device_code(BufferSource(code_object(target)), name)
        for name, target in (("k/a.hsaco", "gfx90a"), ("k/b_gfx90a.co", "gfx1100"))
    }
    found = list_other_files(kernels, kernels, [parse_target_id("gfx1100")])
    assert found == {"k/a.hsaco": "gfx90a"}
