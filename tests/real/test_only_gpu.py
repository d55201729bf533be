"""Vendors' wheels for one GPU: a reader that shares no code with relink finds its kernels by name, and every other byte."""

from __future__ import annotations

import hashlib
import re
import struct
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from relink import Options, relink
from tests.support import torch_wheels
from tests.support.wheels import make_wheel

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Property = Callable[[str, object], None]
MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"


def bundles(content: bytes) -> Iterator[bytes]:
    """The raw bundles in ``.hip_fatbin``, unpacked where they are compressed; each begins at a multiple of a page."""
    section = ELFFile(BytesIO(content)).get_section_by_name(".hip_fatbin")
    data = section.data() if section is not None else b""
    for at in range(0, len(data), 4096):
        if data.startswith(MAGIC, at):
            yield data[at:]
        elif data.startswith(b"CCOB", at):
            version, method, size = struct.unpack_from("<HHI", data, at + 4)
            if version == 3:
                (size,) = struct.unpack_from("<Q", data, at + 8)
            payload = data[at + {2: 24, 3: 32}[version] : at + size]
            yield zstd.decompress(payload) if method else zlib.decompress(payload)


def kernels(content: bytes, gpu: str) -> Counter[tuple[str, str]]:
    """How often the code for a GPU has each kernel: (id of the entry, SHA-256 and name of the kernel's descriptor) → number."""
    found: Counter[tuple[str, str]] = Counter()
    for bundle in bundles(content):
        (count,) = struct.unpack_from("<Q", bundle, 24)
        at = 32
        for _ in range(count):
            offset, size, length = struct.unpack_from("<QQQ", bundle, at)
            name = bundle[at + 24 : at + 24 + length].decode()
            at += 24 + length
            target = name.partition("amdhsa--")[2].split(":")[0]
            if target != gpu or not size:
                continue
            code = bundle[offset : offset + size]
            digest = hashlib.sha256(code).hexdigest()[:16]
            symbols = ELFFile(BytesIO(code)).get_section_by_name(".dynsym")
            if symbols is None:  # code that the tests make; the digest alone says what it is
                found[f"{name} {digest}", ""] += 1
                continue
            assert isinstance(symbols, SymbolTableSection)
            names = [one.name for one in symbols.iter_symbols() if one.name.endswith(".kd")]
            found.update((f"{name} {digest}", kernel) for kernel in names)
    return found


@pytest.fixture(scope="module")
def torch_wheel(full_prefix: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A torch that brings its ROCm: the stand-in, with rocBLAS, hipBLASLt and MIOpen of the prefix in place of its own."""
    directory = tmp_path_factory.mktemp("torch")
    (small,) = torch_wheels.build(directory / "small", "bundling", gpus=("gfx90a", "gfx942", "gfx1100"))
    libraries = full_prefix / "lib" / "x86_64-linux-gnu"
    with zipfile.ZipFile(small) as archive:
        files: dict[str, bytes | Path] = {
            name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name
        }
    for name, place in (("rocblas", "librocblas.so.5"), ("hipblaslt", "libhipblaslt.so.1")):
        files[f"torch/lib/lib{name}.so"] = libraries / place
        data = libraries / name / ("5" if name == "rocblas" else ".") / "library"
        files |= {f"torch/lib/{name}/library/{one.name}": one for one in data.iterdir() if one.is_file()}
    files["torch/lib/libMIOpen.so"] = libraries / "libMIOpen.so.1"
    database = full_prefix / "share" / "miopen" / "db"
    files |= {f"torch/share/miopen/db/{one.name}": one for one in database.iterdir() if one.is_file()}
    return make_wheel(directory, files, name="torch", version="2.12.0+rocm7.2")


@pytest.mark.parametrize("gpu", ["gfx1100", "gfx90a"])
@pytest.mark.parametrize("wheel", ["rocm_wheel", "bitsandbytes_wheel", "jax_plugin_wheel", "torch_wheel"])
def test_each_kernel_of_the_gpu_is_there_and_no_other_byte_is_changed(
    wheel: str, gpu: str, request: pytest.FixtureRequest, tmp_path: Path, record_property: Property
) -> None:
    vendor: Path = request.getfixturevalue(wheel)
    report = relink(vendor, Options(output_directory=tmp_path, only_gpus=[gpu]))
    assert report.path, report.findings
    assert not [name for name in report.plan.removed if re.search(rf"{gpu}(?![0-9a-z])", name)]
    ranges: dict[str, list[tuple[int, int]]] = {}
    for one in report.plan.removed_code:
        ranges.setdefault(one.path, []).append((one.offset, one.size))
    compared = named = others = 0
    with zipfile.ZipFile(vendor) as old, zipfile.ZipFile(report.path) as new:
        for name in old.namelist():
            if ".dist-info/" in name or name in report.plan.removed:
                continue
            before, after = bytearray(old.read(name)), bytearray(new.read(name))
            if name in ranges:
                had = kernels(bytes(before), gpu)
                assert had == kernels(bytes(after), gpu)
                named += had.total()
                away = next(one for one in ("gfx90a", "gfx1100") if one != gpu)
                others += kernels(bytes(after), away).total()
            for offset, size in ranges.get(name, ()):
                before[offset : offset + size] = after[offset : offset + size] = bytes(size)
            assert before == after, name
            compared += len(before) - sum(size for _, size in ranges.get(name, ()))
    assert others == 0
    assert named > 0
    record_property("bytes before and after", f"{vendor.stat().st_size} {Path(report.path).stat().st_size}")
    record_property("files left out", len(report.plan.removed))
    record_property("kernels of the GPU, equal", named)
    record_property("bytes outside of the ranges, equal", compared)
