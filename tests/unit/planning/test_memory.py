"""What `--max-memory` bounds: the shares, what is too little, and the same bytes with little memory as with much."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.cost import tree_memory
from relink.library import relink
from relink.planning import memory
from relink.planning.contents import Contents
from relink.planning.memory import LEAST_MEMORY, Shares, check_room, edit_memory, shares_of, spool_of
from relink.planning.options import Options
from relink.system.errors import UsageError
from tests.support.cc import shared
from tests.support.wheels import make_wheel
from tests.support.works import OUTPUT, VENDOR_PATH, Works

SIZE = 600 << 20
MOST = 320 << 20


def test_the_shares_leave_room_for_the_rest() -> None:
    for most in (LEAST_MEMORY, 1 << 30, 8 << 30):
        shares = shares_of(most)
        assert shares.whole + shares.kept + shares.edits <= most * 0.5
    assert shares_of(None) == shares_of(1 << 40) == Shares()


def test_what_is_less_than_any_run_takes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--max-memory 1: a run takes at least 256 MiB"):
        spool_of(Options(output_directory=tmp_path, max_memory=1 << 20))


def test_files_are_beside_the_output(tmp_path: Path) -> None:
    options = Options(output_directory=tmp_path / "not" / "there")
    assert spool_of(options).directory == tmp_path
    assert spool_of(replace(options, dry_run=True)).directory is None


def test_a_run_that_takes_more_is_refused_before_the_first_edit(works: Works, tmp_path: Path) -> None:
    wheel = works.small(tmp_path)
    with Contents(wheel) as contents:
        taken = edit_memory(contents, "demo/a.so")
        assert taken == 4 * works.library.stat().st_size
        check_room(None, contents, ["demo/a.so"])
        check_room(1 << 40, contents, ["demo/a.so"])
        with pytest.raises(
            UsageError, match=r"--max-memory 1 is too little, \d+ MiB are needed; nothing was edited"
        ):
            check_room(1 << 20, contents, ["demo/a.so"])


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


@pytest.mark.slow(reason="a wheel of 90,000 members is written")
def test_max_memory_is_the_most_that_many_members_take(works: Works, tmp_path: Path) -> None:
    files: dict[str, bytes | Path] = {f"demo/{number}": b"" for number in range(90_000)}
    wheel = works.wheel(tmp_path, {**files, "demo/a.so": works.library})
    words = command(works, wheel, tmp_path / "out")[:-1]
    refused = subprocess.run([*words, "300"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    needed = int(re.findall(r"(\d+) MiB are needed", refused.stderr)[0])
    process = subprocess.Popen([*words, str(needed + 16)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    assert status == 0
    assert 300 << 10 < usage.ru_maxrss < (needed + 16) << 10


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
        monkeypatch.setattr(memory, "shares_of", lambda _, shares=shares: shares)
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
