"""The largest member is read ahead: only where it pays, and nothing is left open or running."""

from __future__ import annotations

import gc
import os
import random
import re
import struct
import subprocess
import sys
import threading
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cost import tree_memory
from relink.library import relink
from relink.planning import contents
from relink.planning import contents as memory
from relink.planning.contents import (
    LEAST_MEMORY,
    Contents,
    Shares,
    check_room,
    divide_memory,
    estimate_edit_memory,
    make_spool,
)
from relink.planning.options import Options
from relink.system.errors import UsageError, WheelError
from relink.system.spool import Spool, fill, is_spooled
from relink.wheel.archive import WheelArchive
from tests.support.cc import shared
from tests.support.wheels import make_wheel
from tests.support.works import OUTPUT, VENDOR_PATH, Works

SLOW = pytest.mark.slow(reason="large members")

ELF = b"\x7fELF" + random.Random(1).randbytes(1 << 20)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "READ_AHEAD", 1 << 20)


def working() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("relink-read")]


def test_as_many_threads_read_as_are_allowed(tmp_path: Path) -> None:
    files = {f"demo/{number}.so": ELF for number in range(3)}
    with Contents(make_wheel(tmp_path, files), jobs=1) as opened:
        assert len(working()) == 1
        assert opened.read("demo/2.so", lambda _: None)[:4] == ELF[:4]


@pytest.mark.parametrize(
    ("files", "begun"),
    [
        ({"demo/a.so": ELF, "demo/b": b"x"}, ["demo/a.so"]),
        (
            {"demo/a.so": ELF, "demo/b.so": ELF + b"larger", "demo/c.so": ELF[:999]},
            ["demo/b.so", "demo/a.so"],
        ),
        ({"demo/a.bin": b"x" + ELF}, []),
        ({"demo/a.so": ELF[:1000]}, []),
    ],
    ids=["one", "two, the larger first", "not ELF", "small"],
)
def test_what_is_read_ahead(
    tmp_path: Path, files: dict[str, bytes], begun: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[str] = []
    read = WheelArchive.read_lazily

    def noting(self: WheelArchive, name: str, *words: Any) -> Any:
        noted.append(name)
        return read(self, name, *words)

    monkeypatch.setattr(WheelArchive, "read_lazily", noting)
    with Contents(make_wheel(tmp_path, files)) as opened:
        assert bool(working()) == bool(begun)
        while len(noted) < len(begun):
            time.sleep(0.001)
        assert noted == begun
        for name, content in files.items():
            seen: list[int] = []
            for _ in range(2):
                view = opened.read(name, seen.append)
                fill(view, 0, len(view))
                assert view == content
            assert sum(seen) == 2 * len(content)
    assert not working()


def test_closing_ends_it(tmp_path: Path) -> None:
    opened = Contents(make_wheel(tmp_path, {"demo/a.so": ELF * 10}))
    opened.close()
    assert not working()
    with pytest.raises(ValueError, match="has been closed"):
        opened.archive.read("demo/a.so")


def test_damage_at_its_beginning_leaves_nothing_open(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {"demo/a.so": ELF})
    with zipfile.ZipFile(wheel) as archive:
        place = archive.getinfo("demo/a.so").header_offset + 30 + len("demo/a.so")
    with wheel.open("r+b") as file:
        file.seek(place)
        file.write(b"\xff" * 64)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(WheelError, match=r"demo/a\.so"):
        Contents(wheel)
    assert os.listdir("/proc/self/fd") == before
    assert not working()


def test_looking_for_spans_ends_with_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "REUSE", 1 << 20)
    monkeypatch.setattr(contents, "READ_AHEAD", 1 << 40)
    monkeypatch.setattr("relink.wheel.deflate.splice.AHEAD", 1)
    monkeypatch.setattr(contents, "SHARE", 0.5)
    data = random.Random(1).randbytes(4 << 20)
    opened = Contents(make_wheel(tmp_path, {"demo/a.so": data}), reuse=True)
    view = opened.read("demo/a.so", lambda _: None)
    begun, closed, count = threading.Event(), threading.Event(), 0
    read = opened.archive.raw_reader("demo/a.so")

    def waiting(offset: int, length: int) -> bytes:
        nonlocal count
        count += 1
        begun.set()
        assert closed.wait(10)
        return read(offset, length)

    monkeypatch.setattr(opened.archive, "raw_reader", lambda _: waiting)
    opened.retain("demo/a.so", view, (range(len(data)),), ())
    assert begun.wait(10)
    ending = threading.Thread(target=opened.close)
    ending.start()
    ending.join(0.2)  # it waits for the search
    closed.set()
    ending.join(10)
    assert count == 1
    with pytest.raises(WheelError, match="has been closed"):
        opened.spans("demo/a.so")


@SLOW
def test_what_is_too_large_is_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same content, spans and chunks as from memory."""
    monkeypatch.setattr(contents, "REUSE", 1 << 20)
    monkeypatch.setattr("relink.system.spool.MOVED_AT_ONCE", 1 << 12)
    data = ELF + bytes(1 << 20) + random.Random(2).randbytes(6 << 20).translate(b"abcdefgh" * 32)
    gaps = (range(1 << 16, 5 << 20),)
    wheel = make_wheel(tmp_path, {"demo/a.so": data})
    found = []
    for spool in (Spool(tmp_path), Spool(tmp_path, whole=1 << 20)):
        with Contents(wheel, reuse=True, spool=spool) as opened:
            view = opened.read("demo/a.so", lambda _: None)
            assert is_spooled(view) == (spool.whole == 1 << 20)
            fill(view, 0, len(view))
            assert view == data
            opened.retain("demo/a.so", view, gaps, ())
            spans = [(span.start, span.stop, span.first, span.last) for span in opened.spans("demo/a.so")]
            assert spans
            chunks = b"".join(bytes(chunk) for chunk in opened.original("demo/a.so", check=True))
            found.append((spans, chunks == data))
    assert found[0] == found[1]
    assert os.listdir(tmp_path) == [wheel.name]


def test_parts_of_many_members_are_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "MOVED", 1 << 20)
    gaps = (range(1 << 16, 1 << 19),)
    files = {f"demo/{number}.so": ELF + bytes([number]) for number in range(3)}
    with Contents(make_wheel(tmp_path, files), reuse=True, spool=Spool(tmp_path, kept=1 << 20)) as opened:
        for name, data in files.items():
            view = opened.read(name, lambda _: None)
            opened.retain(name, view, gaps, [range(1 << 17, (1 << 17) + 1)])
            loaded = opened.loaded[name]
            expected = bytearray(data)
            expected[gaps[0].start : gaps[0].stop] = bytes(len(gaps[0]))
            for part in loaded.kept_ranges:
                expected[part.start : part.stop] = data[part.start : part.stop]
            assert loaded.view == expected
        assert [item.view.readonly for item in opened.loaded.values()] == [False, True, True]


@pytest.mark.few(1, reason="the same of other values")
@pytest.mark.parametrize("claim", [-1, 1, 64 << 20])
def test_a_member_that_lies_about_its_size_leaves_nothing(tmp_path: Path, claim: int) -> None:
    wheel = make_wheel(tmp_path, {"demo/a.so": ELF * 4})
    data = bytearray(wheel.read_bytes())
    entry = data.rindex(b"demo/a.so", 0, data.rindex(b"demo-1.0.dist-info/METADATA")) - 46
    local = data.index(b"demo/a.so") - 30
    for at in (entry + 24, local + 22):
        (size,) = struct.unpack_from("<I", data, at)
        assert size == 4 * len(ELF)
        struct.pack_into("<I", data, at, size + claim)
    wheel.write_bytes(data)
    gc.collect()  # maps of other tests
    before = os.listdir("/proc/self/fd")
    with (
        pytest.raises(WheelError, match=r"demo/a\.so"),
        Contents(wheel, spool=Spool(tmp_path, whole=1 << 20)) as opened,
    ):
        opened.read("demo/a.so", lambda _: None)
    gc.collect()
    assert os.listdir("/proc/self/fd") == before
    assert os.listdir(tmp_path) == [wheel.name]


def test_little_is_loaded_before_the_wheel_is_opened() -> None:
    program = (
        "import sys, relink.planning.contents\n"
        "relink.planning.contents.Contents = lambda *_, **__: sys.exit(' '.join(sys.modules))\n"
        "import relink.cli; relink.cli.main(['x.whl'])\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    loaded = run.stderr.decode().split()
    assert {"relink.wheel.archive", "relink.cli.relinking"} <= {*loaded}
    later = ("auditwheel", "relink.planning.resolve", "relink.runs.relink_wheel", "relink.wheel.writer")
    assert [name for name in loaded if name.startswith(later)] == []


SIZE = 600 << 20
MOST = 320 << 20


def test_the_shares_leave_room_for_the_rest() -> None:
    for most in (LEAST_MEMORY, 1 << 30, 8 << 30):
        shares = divide_memory(most)
        assert shares.whole + shares.kept + shares.edits <= most * 0.5
    assert divide_memory(None) == divide_memory(1 << 40) == Shares()


def test_what_is_less_than_any_run_takes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--max-memory 1: a run takes at least 256 MiB"):
        make_spool(Options(output_directory=tmp_path, max_memory=1 << 20))


def test_files_are_beside_the_output(tmp_path: Path) -> None:
    options = Options(output_directory=tmp_path / "not" / "there")
    assert make_spool(options).directory == tmp_path
    assert make_spool(replace(options, dry_run=True)).directory is None


def test_a_run_that_takes_more_is_refused_before_the_first_edit(works: Works, tmp_path: Path) -> None:
    wheel = works.small(tmp_path)
    with Contents(wheel) as contents:
        taken = estimate_edit_memory(contents, "demo/a.so")
        assert taken == 4 * works.library.stat().st_size
        check_room(None, contents, ["demo/a.so"])
        check_room(1 << 40, contents, ["demo/a.so"])
        with pytest.raises(
            UsageError, match=r"--max-memory 1 is too little, \d+ MiB are needed; nothing was edited"
        ):
            check_room(1 << 20, contents, ["demo/a.so"])


@SLOW
def test_max_memory_counts_members_without_content(tmp_path: Path) -> None:
    """250,000 empty members took 985 MiB although 300 were allowed."""
    needed = {}
    for count in (10, 20_010):
        files: dict[str, bytes | Path] = {f"demo/{number}": b"" for number in range(count)}
        wheel = make_wheel(tmp_path / str(count), files)
        with Contents(wheel) as contents, pytest.raises(UsageError) as error:
            check_room(1, contents, [])
        needed[count] = int(re.findall(r"(\d+) MiB are needed", str(error.value))[0])
    assert needed[20_010] - needed[10] >= 20_000 * (3 << 10) >> 20


_TELLING_PEAK = """
import atexit, runpy, sys
from tests.support.memory import peak
atexit.register(lambda: print(peak(), file=sys.stderr))
runpy.run_module("relink", run_name="__main__", alter_sys=True)
"""


@pytest.mark.slow(reason="a wheel of 90,000 members is written")
def test_max_memory_is_the_most_that_many_members_take(works: Works, tmp_path: Path) -> None:
    files: dict[str, bytes | Path] = {f"demo/{number}": b"" for number in range(90_000)}
    wheel = works.wheel(tmp_path, {**files, "demo/a.so": works.library})
    words = command(works, wheel, tmp_path / "out")[:-1]
    refused = subprocess.run([*words, "256"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    needed = int(re.findall(r"(\d+) MiB are needed", refused.stderr)[0])
    told = [sys.executable, "-c", _TELLING_PEAK, *words[3:], str(needed + 16)]
    done = subprocess.run(told, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert needed << 19 < int(done.stderr.splitlines()[-1]) < (needed + 16) << 20


@SLOW
def test_the_same_bytes_with_little_memory(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub = shared(tmp_path / "libhip.so.7", "int hip(void){return 0;}")
    source = "extern int hip(void); int g(void){return hip();} char big[9 << 20] = {1};"
    large = shared(tmp_path / "large.so", source, needed=[stub], flags=[VENDOR_PATH])
    wheel = works.wheel(tmp_path / "in", {"demo/a.so": large, "demo/b.so": works.library, "demo/c.so": large})
    monkeypatch.setattr("relink.system.spool.MOVED_AT_ONCE", 1 << 12)
    monkeypatch.setattr("relink.planning.contents.MOVED", 1 << 12)
    usual = relink(wheel, works.options(tmp_path / "usual"))
    for number, shares in enumerate((Shares(1 << 12, 0, 0), Shares(10 << 30, 0, 0))):
        monkeypatch.setattr(memory, "divide_memory", lambda _, shares=shares: shares)
        out = tmp_path / str(number)
        little = relink(wheel, works.options(out, command=usual.command))
        assert (out / OUTPUT).read_bytes() == (tmp_path / "usual" / OUTPUT).read_bytes()
        assert little.findings == usual.findings
        assert [path.name for path in out.iterdir()] == [OUTPUT]


# One large member


@pytest.fixture(scope="module")
def huge(works: Works, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of a library with 600 MiB in one section, most of it zeros."""
    directory = tmp_path_factory.mktemp("huge")
    stub = shared(directory / "libhip.so.7", "int hip(void){return 0;}")
    (directory / "big.s").write_text(
        f'.section .big,"a",@progbits\n.globl big\nbig: .fill {SIZE >> 12}, 8, 0x1122334455667788\n.zero {SIZE - (SIZE >> 9)}\n'
        '.section .note.GNU-stack,"",@progbits\n'
    )
    flags = [VENDOR_PATH, str(directory / "big.s")]  # not kept in the cache, since a flag names a file
    source = "extern int hip(void); int g(void){return hip();}"
    library = shared(directory / "a.so", source, needed=[stub], flags=flags)
    wheel = works.wheel(directory, {"demo/a.so": library})
    library.unlink()
    return wheel


def command(works: Works, wheel: Path, out: Path) -> list[str]:
    words = [str(wheel), "--prefix", str(works.prefix), "-o", str(out), "--limit", "ratio=2000"]
    return [sys.executable, "-m", "relink", *words, "--max-memory", str(MOST >> 20)]


@pytest.mark.slow(reason="a member of 600 MiB is made, and relinked")
def test_the_promise_is_kept(works: Works, huge: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(command(works, huge, tmp_path / "out"), stdout=subprocess.DEVNULL)
    most = 0
    while process.poll() is None:
        most = max(most, tree_memory(process.pid))
        time.sleep(0.005)
    assert process.returncode == 0
    assert 50 << 20 < most < MOST
    assert [path.name for path in (tmp_path / "out").iterdir()] == [OUTPUT]


@pytest.mark.slow(reason="a member of 600 MiB is made, and relinked until it is killed")
def test_a_kill_leaves_nothing(works: Works, huge: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for wait in (0.4, 0.9, 1.6, 2.5):
        process = subprocess.Popen(command(works, huge, out), stdout=subprocess.DEVNULL)
        time.sleep(wait)
        process.kill()
        process.wait()
        left = [path for path in out.iterdir() if not path.name.startswith(".relink-")]
        assert left in ([], [out / OUTPUT])
        size = sum(file.stat().st_blocks * 512 for file in out.rglob("*"))
        assert size < SIZE // 4  # no file of the member's content
