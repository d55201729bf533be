"""Offload binaries, alone and in object files."""

from __future__ import annotations

import struct

from tests.unit.gpu.amd.build import (
    Piece,
    code_object,
    library,
)
from tests.unit.gpu.amd.reading import read, targets


def offload_binary(arch: str, image: bytes, kind: int = 4) -> bytes:
    strings = b"triple\0amdgcn-amd-amdhsa\0arch\0" + arch.encode() + b"\0"
    text = 32 + 40 + 32
    rows = struct.pack("<QQQQ", text, text + 7, text + 25, text + 30)
    image_at = -(-(text + len(strings)) // 8) * 8
    size = image_at + len(image)
    head = b"\x10\xff\x10\xad" + struct.pack("<IQQQ", 1, size, 32, 40)
    entry = struct.pack("<HHIQQQQ", 1, kind, 0, 72, 2, image_at, len(image))
    data = head + entry + rows + strings
    return data + bytes(image_at - len(data)) + image


def test_offload_binaries_alone_and_in_object_files() -> None:
    data = offload_binary("gfx1100", code_object()) + offload_binary(
        "gfx90a:xnack+", code_object("gfx90a:xnack+")
    )
    data += offload_binary("gfx1030", code_object("gfx1030"), kind=1)  # OpenMP
    for code in (
        read(data),
        read(library(extra=[Piece(".llvm.offloading", data, kind=0x6FFF4C0B, flags=0)], kind=1)),
    ):
        assert targets(code) == [["gfx1100", "gfx90a:xnack+"]]
        assert code.container == "offload-binary"
    hostile = bytearray(offload_binary("gfx1100", code_object()))
    struct.pack_into("<Q", hostile, 16, 1 << 60)
    assert read(bytes(hostile)).problems
    for length in range(4, len(data), 7):
        read(data[:length])
    beyond = bytearray(offload_binary("gfx1100", code_object()))
    struct.pack_into("<Q", beyond, 64, 257)  # one byte more than there is
    assert targets(read(bytes(beyond))) == [[]]
