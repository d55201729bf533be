"""Deflate streams that were made to mislead or to keep busy who reads them, through the command line."""

from __future__ import annotations

import random
import time
import zipfile
import zlib
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.support.cc import shared
from tests.support.deflate_encoder import Encoder
from tests.support.deflate_layouts import crafted, disguise_of
from tests.support.works import VENDOR_PATH, Works
from tests.unit.hostile.conftest import Run
from tests.unit.wheel.build import Entry, RawZip, good_entries, write_raw
from tests.unit.wheel.streams import deflate

SECTION = 9 << 20  # bytes, of a member that is large enough for its blocks to be reused
SOURCE = """
extern int hip(void); int g(void) { return hip() + 1; }
__asm__(".section .hip_fatbin,\\"aw\\",@progbits\\n.p2align 12\\n.incbin \\"PAYLOAD\\"\\n.previous\\n");
int data[2000] = {1};
"""
DISGUISE = disguise_of(65000)
KNOWN = DISGUISE.content


@pytest.fixture(scope="module")
def library(works: Works, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A library in which what an edit leaves alone ends inside of a block that looks like others."""
    directory = tmp_path_factory.mktemp("crafted")
    noise = random.Random(1).randbytes(SECTION - 65_000 - len(KNOWN))
    (directory / "payload").write_bytes(noise + KNOWN + random.Random(2).randbytes(65_000))
    source = SOURCE.replace("PAYLOAD", f"{directory}/payload")
    hip = works.prefix / "lib" / "libhip.so.7"
    return shared(directory / "fat.so", source, needed=[hip], flags=[VENDOR_PATH]).read_bytes()


def crafted_stream(content: bytes) -> bytes:
    """All of it stored, but for what leads to the block that looks like others."""
    encoder = Encoder()
    place = content.index(KNOWN)

    def store(part: bytes, *, last: bool = False) -> None:
        for at in range(0, len(part), 65535):
            encoder.stored(part[at : at + 65535], last=last and at + 65535 >= len(part))

    store(content[:place])
    crafted(encoder, DISGUISE.length, content[place + len(KNOWN) :])
    store(content[len(encoder.content) :], last=True)
    stream, written = encoder.result()
    assert written == content
    return stream


def wheel_of(directory: Path, content: bytes, stream: bytes) -> Path:
    entry = Entry(b"demo_pkg/fat.so", content, compressed=stream)
    directory.mkdir()
    return write_raw(directory, RawZip([entry, *good_entries({"demo_pkg/fat.so": content})[1:]]))


@pytest.mark.slow(reason="a second; other streams are tried always")
def test_a_stored_block_that_looks_like_others(run: Run, library: bytes, tmp_path: Path) -> None:
    """A reader that is misled reuses a part of it, and nobody can read the output."""
    written = {}
    for name, stream in (("plain", deflate(library, 1)), ("crafted", crafted_stream(library))):
        path = wheel_of(tmp_path / name, library, stream)
        answer = run(path)
        assert answer.code == 0, answer
        with zipfile.ZipFile(tmp_path / "out" / answer.left[0]) as archive:
            assert archive.testzip() is None
            written[name] = archive.read("demo_pkg/fat.so")
    assert written["plain"] == written["crafted"] != library


def incomplete(content: bytes, seed: int = 0) -> bytes:
    """A stream whose codes leave some bits without a meaning, which none of the content needs."""
    encoder = Encoder(seed)
    encoder.stored(content[:-1][:65535])
    for at in range(65535, len(content) - 1, 65535):
        encoder.stored(content[:-1][at : at + 65535])
    encoder.dynamic([content[-1]], last=True, defect="literals incomplete")
    stream, written = encoder.result()
    assert written == content
    return stream


@pytest.mark.parametrize("name", ["demo_pkg/fat.so", "demo_pkg/data.bin"])
def test_a_stream_that_pip_refuses(run: Run, works: Works, tmp_path: Path, name: str) -> None:
    """An edited member, and one that would only be copied."""
    hip = works.prefix / "lib" / "libhip.so.7"
    small = "extern int hip(void); int g(void) { return hip() + 1; }"
    library = shared(tmp_path / "fat.so", small, needed=[hip], flags=[VENDOR_PATH]).read_bytes()
    contents = {"demo_pkg/fat.so": library, "demo_pkg/data.bin": b"data"}
    entries = good_entries(contents)
    place = next(place for place, entry in enumerate(entries) if entry.name == name.encode())
    for stream, code in ((incomplete(contents[name]), 2), (deflate(contents[name], 6), 0)):
        entries[place] = Entry(name.encode(), contents[name], compressed=stream)
        path = write_raw(tmp_path, RawZip(entries))
        with zipfile.ZipFile(path) as archive, pytest.raises(zlib.error) if code else nullcontext():
            archive.read(name)
        answer = run(path)
        assert answer.code == code, answer
        assert ("cannot be inflated" in answer.err) == bool(code)
        assert len(answer.left) == (not code)


ELF = b"\x7fELF\x02\x01\x01" + bytes(57)


def seconds(run: Run, path: Path, said: str) -> float:
    began = time.process_time()
    answer = run(path)
    assert answer.code == 2, answer
    assert said in answer.err
    assert not answer.left
    return time.process_time() - began


def test_more_content_than_is_claimed(run: Run, tmp_path: Path) -> None:
    """Of 20 MiB behind a claim of 4 no more is inflated than shows that it is wrong."""
    stream = deflate(ELF.ljust(20 << 20, b"\0"), 9)
    path = wheel_of(tmp_path / "in", ELF.ljust(4 << 20, b"\0"), stream)
    assert path.stat().st_size < 25_000
    assert seconds(run, path, "larger than the 4194304 bytes") < 2


def test_less_content_than_is_claimed(run: Run, tmp_path: Path) -> None:
    entry = ELF.ljust(4 << 20, b"\0")
    path = wheel_of(tmp_path / "in", entry, deflate(entry[:-1], 9))
    assert seconds(run, path, "has 4194303 bytes") < 2


@pytest.mark.few(1, reason="other blocks")
@pytest.mark.parametrize(
    "block",
    [b"\0\0\0\xff\xff", (0b010 << 30 | 0b010 << 20 | 0b010 << 10 | 0b010).to_bytes(5, "little")],
    ids=["stored", "fixed"],
)
@pytest.mark.parametrize("place", [100, 5 << 20])
def test_blocks_without_content(run: Run, tmp_path: Path, block: bytes, place: int) -> None:
    """A hundred MB of them would take a minute and more."""
    content = ELF + random.Random(1).randbytes(place)
    deflater = zlib.compressobj(1, zlib.DEFLATED, -15)
    stream = deflater.compress(content) + deflater.flush(zlib.Z_FULL_FLUSH)
    path = wheel_of(tmp_path / "in", content, stream + block * 4_000_000 + b"\x03\0")
    assert seconds(run, path, "next to no content") < 5
