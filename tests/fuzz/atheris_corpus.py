"""Write the corpus that atheris begins with: ``python -m tests.fuzz.atheris_corpus``. Small files of the tests' generators."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable
from pathlib import Path

from tests.support.elf_builder import Export, Import, Library, build
from tests.unit.gpu.amd.build import ccob, entries_of, kpack_archive, raw
from tests.unit.wheel.build import RawZip, good_entries

CORPUS = Path(__file__).parent / "corpus"


def seeds() -> dict[str, Iterable[bytes]]:
    """Return the inputs of each target."""
    libraries = [
        build(
            Library(
                "libx.so",
                ("libhip.so.7",),
                runpath="$ORIGIN",
                exports=(Export("f", "V1"), Export("g")),
                imports=(Import("h", "V2", "libhip.so.7"),),
                hash=hash_table,
            )
        )
        for hash_table in ("gnu", "sysv", "both")
    ]
    reference = b"\x82\xabkernel_name\xa1x\xb2kpack_search_paths\x91\xa1y"
    text = b"the same words, and the same words again; " * 40
    streams = []
    for level, strategy in ((0, zlib.Z_DEFAULT_STRATEGY), (9, zlib.Z_DEFAULT_STRATEGY), (6, zlib.Z_FIXED)):
        deflater = zlib.compressobj(level, zlib.DEFLATED, -15, 8, strategy)
        pieces = [deflater.compress(text) + deflater.flush(zlib.Z_FULL_FLUSH) for _ in range(3)]
        streams.append(b"".join(pieces) + deflater.flush())
    return {
        "directory": [RawZip(good_entries(), zip64=zip64).build() for zip64 in (False, True)],
        "dynamic": libraries,
        "symbols": libraries,
        "init_code": libraries,
        "bundle": [
            raw(entries_of("gfx1100", "gfx90a:xnack-")),
            *(ccob(raw(entries_of("gfx1100")), version, "zlib") for version in (1, 2, 3)),
        ],
        "kpack": [
            kpack_archive({"a#0": ["gfx1100", "gfx90a"]}, blobs=[{"offset": 16, "size": 80}]),
            kpack_archive(
                {"a#0": ["gfx1100"]}, compression_scheme="zstd-per-kernel", zstd_offset=16, zstd_size=80
            ),
            kpack_archive({"a#0": ["gfx1100"]}, version=2),
            reference,
            reference[:-2] + b"\xb0@GFXARCH@/.kpack",
        ],
        "msgpack": [
            reference,
            b"\xdc\x00\x02\xc0\xcb" + bytes(8),
            b"\x81\xd9\x01a\xc4\x02xy",
            b"\x93\xc2\xc3\xcd\x01\x00",
        ],
        "deflate": streams,
        "index_page": [
            b'<base href="../x/"><a href="demo-1.0-py3-none-any.whl#sha256='
            + b"ab" * 32
            + b'" data-yanked="x" '
            b'data-requires-python="&gt;=3.11">demo-1.0-py3-none-any.whl</a>',
            b'{"meta": {"api-version": "1.0"}, "files": [{"filename": "demo-1.0-py3-none-any.whl", "yanked": true, '
            b'"url": "demo-1.0-py3-none-any.whl", "hashes": {"sha256": "' + b"ab" * 32 + b'"}}]}',
        ],
    }


def write() -> None:
    """Write what is missing; what was found and added stays."""
    for target, inputs in seeds().items():
        (CORPUS / target).mkdir(parents=True, exist_ok=True)
        for data in inputs:
            (CORPUS / target / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)


if __name__ == "__main__":
    write()
