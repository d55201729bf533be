"""The one place that opens what a user, a wheel or a prefix names; and that there is no other."""

from __future__ import annotations

import ast
import errno
import hashlib
import os
import resource
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import relink
from relink.system.errors import MachineError
from relink.system.safe_open import (
    file_sha256,
    map_file,
    open_regular,
    read_bytes,
    read_start,
    read_text,
    read_with_status,
)

PACKAGE = Path(relink.__file__).parent


def fifo(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def directory(path: Path) -> None:
    path.mkdir()


def mapped(path: Path) -> None:
    with map_file(path):
        pass


READERS: dict[str, Callable[[Path], object]] = {
    "open_regular": open_regular,
    "read_bytes": lambda path: read_bytes(path, 10),
    "read_start": lambda path: read_start(path, 10),
    "read_text": lambda path: read_text(path, 10),
    "read_with_status": lambda path: read_with_status(path, 10),
    "map_file": mapped,
}


@pytest.mark.parametrize("reader", READERS)
def test_that_no_more_files_can_be_opened_says_nothing_about_a_file(tmp_path: Path, reader: str) -> None:
    (tmp_path / "file").write_bytes(b"1234")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        with pytest.raises(MachineError, match=r"/file: Too many open files: this process may not open more"):
            READERS[reader](tmp_path / "file")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("make", [fifo, device, directory])
def test_what_is_no_regular_file_is_refused(
    tmp_path: Path, reader: str, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "x")
    with pytest.raises(OSError, match="not a regular file") as caught:
        READERS[reader](tmp_path / "x")
    assert caught.value.errno == errno.EINVAL


@pytest.mark.parametrize("reader", READERS)
def test_what_is_not_there(tmp_path: Path, reader: str) -> None:
    with pytest.raises(FileNotFoundError):
        READERS[reader](tmp_path / "x")
    with pytest.raises(OSError, match="null"):
        READERS[reader](tmp_path / "x\0")


def test_a_file_that_is_exchanged_for_a_fifo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the open: nothing waits, and no descriptor stays open."""
    path = tmp_path / "x"
    path.touch()
    found = path.stat()
    path.unlink()
    fifo(path)
    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "stat", lambda *_, **__: found)
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(path)
    monkeypatch.undo()
    assert len(os.listdir("/proc/self/fd")) == before


def test_limits(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"0123456789")
    assert read_bytes(path, 10) == read_start(path, 20) == b"0123456789"
    assert read_start(path, 4) == b"0123"
    with pytest.raises(OSError, match="larger than") as caught:
        read_bytes(path, 9)
    assert caught.value.errno == errno.EFBIG
    path.write_bytes(b"\xff")
    assert read_text(path, 1, errors="replace") == "\ufffd"
    with pytest.raises(UnicodeDecodeError):
        read_text(path, 1)
    os.truncate(path, 1 << 40)
    with pytest.raises(OSError, match="larger than 1 MiB"):
        read_text(path, 1 << 20)


def test_a_file_that_says_nothing_of_its_size() -> None:
    """Those of /proc say 0; and what grows while it is read is the same."""
    assert os.stat("/proc/self/status").st_size == 0
    assert b"VmHWM" in read_bytes("/proc/self/status", 1 << 20)
    with pytest.raises(OSError, match="larger than"):
        read_bytes("/proc/self/status", 100)


def test_a_file_that_grows(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.touch()
    ended = threading.Event()

    def grow() -> None:
        with path.open("ab", buffering=0) as file:
            while not ended.is_set() and file.tell() < 1 << 28:
                file.write(bytes(1 << 16))

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        for _ in range(50):
            try:
                assert len(read_bytes(path, 1 << 20)) <= 1 << 20
            except OSError as error:
                assert error.errno == errno.EFBIG  # noqa: PT017 - both are right, by what came first
    finally:
        ended.set()
        writer.join()


def test_a_root_is_not_left(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "x").write_bytes(b"in")
    (tmp_path / "y").write_bytes(b"out")
    (tmp_path / "rooted").write_bytes(b"out")
    (root / "in").symlink_to("x")
    (tmp_path / "again").symlink_to(root)
    for name in ("y", "rooted"):
        (root / name).symlink_to(tmp_path / name)
    assert read_bytes(root / "in", 10, root=str(root)) == b"in"
    assert read_bytes(tmp_path / "again" / "in", 10, root=str(tmp_path / "again")) == b"in"
    for path in (root / "y", root / "rooted", root / ".." / "y"):
        assert read_bytes(path, 10) == b"out"
        with pytest.raises(OSError, match="lies outside of") as caught:
            read_bytes(path, 10, root=str(root))
        assert caught.value.errno == errno.EXDEV


def test_maps(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "x").write_bytes(b"0123")
    with map_file(tmp_path / "empty") as view:
        assert view == b""
    with map_file(tmp_path / "x") as view:
        assert view[:] == b"0123"


# That nothing else opens a file

OPENING = {
    *(
        "open",
        "read_text",
        "read_bytes",
        "write_text",
        "write_bytes",
        "fdopen",
        "mmap",
        "copyfile",
        "copy",
        "copy2",
    ),
    *(
        "copytree",
        "move",
        "connect",
        "load",
        "ZipFile",
        "GzipFile",
        "TarFile",
        "FileIO",
        "touch",
        "mkfifo",
        "truncate",
    ),
}
"""Names of functions that open files, whatever they belong to."""
MODULES = {"os", "io", "mmap", "shutil", "sqlite3", "tomllib", "json", "zipfile", "gzip", "tarfile", "codecs"}
DOORS = {"read_text", "read_bytes", "read_start", "map_file", "open_regular"}

OWN = "what relink itself has just written, in a directory that only it can enter"
SHIPPED = "data that is shipped with relink"
MEMORY = "memory, and no file"
LOADER = "files.open"  # of relink.loader.seen_files, which goes through the door
NO_FILE = "opens no file: a look-up, or a member of a wheel that is open"
ALLOWED: dict[tuple[str, str], str] = {
    ("system/safe_open.py", "os.open"): "the door itself",
    ("system/safe_open.py", "mmap.mmap"): "the door itself",
    (
        "system/atomic.py",
        "os.open",
    ): "creates with O_EXCL, or opens directories and its own temporary files with O_NOFOLLOW",
    ("system/atomic.py", "open"): "a descriptor of the above",
    ("elf/gaps.py", "mmap.mmap"): MEMORY,
    ("make/editing.py", "path.open"): OWN,
    ("make/editing.py", "path.write_bytes"): OWN,
    ("make/editing.py", "mmap.mmap"): OWN,
    ("elf/edit_checks.py", "path.open"): OWN,
    ("elf/patchelf.py", "open"): OWN,
    ("elf/patchelf.py", "mmap.mmap"): OWN,
    ("elf/patchelf.py", "path.read_bytes"): OWN,
    ("elf/patchelf.py", "path.write_bytes"): OWN,
    ("cli/looking.py", "Plan.load"): NO_FILE,
    ("runs/relink_wheel.py", "staging.copy"): NO_FILE,
    ("wheel/deflate/stream.py", "copy"): NO_FILE,
    (
        "make/output.py",
        "shutil.copyfile",
    ): "the wheel, which is open as a regular file; copyfile refuses a FIFO",
    ("providers/distribution.py", "path.read_text"): "auditwheel's own table",
    ("system/findings/model.py", "read_text"): SHIPPED,
    ("gpu/amd/target_id.py", "read_text"): SHIPPED,
    ("system/shipped_files.py", "path.read_text"): SHIPPED,
    ("system/shipped_files.py", "built.read_text"): SHIPPED,
    ("report/html/page.py", "read_text"): SHIPPED,
    ("report/nix/package.py", "read_text"): SHIPPED,
    ("runs/comparison.py", "zipfile.ZipFile"): "a wheel that is open",
    ("wheel/archive.py", "os.fdopen"): "a descriptor that is open",
    ("system/safe_open.py", "os.fdopen"): "a descriptor of open_regular",
    ("cli/system.py", "os.open"): "/dev/null",
    ("cli/system.py", "io.FileIO"): "standard output and error, which are open",
    ("make/verification.py", "path.open"): OWN,
    ("make/verification.py", "shutil.copyfile"): "the target's own C library; copyfile refuses a FIFO",
    (
        "system/sandbox/start.py",
        "open",
    ): "pipes of its own, and names that it has just made up in a directory of its own",
    ("system/sandbox/inside.py", "open"): "files of /proc/self, and the pipe that a request comes by",
    (
        "system/sandbox/inside.py",
        "os.open",
    ): "O_PATH of its own directory, and files to try whether they can be written",
    ("make/output.py", "other.open"): NO_FILE,
    ("loader/loading.py", "link_map.open"): NO_FILE,
    ("loader/process.py", "link_map.open"): NO_FILE,
    ("loader/process.py", "before.copy"): NO_FILE,
    ("loader/process.py", "self.link_map.copy"): NO_FILE,
    ("system/spool.py", "mmap.mmap"): "memory, and files of its own without a name",
    ("runs/relink_tree.py", "os.fdopen"): "a descriptor of open_regular",
    ("indexes/install/checking.py", "os.fdopen"): "a descriptor of open_regular",
    ("runs/relink_tree.py", "path.open"): "a new file of a directory of relink's own",
    ("runs/relink_tree.py", "file.truncate"): "a file that is open",
    ("system/atomic.py", "os.truncate"): "a file that is open",
    ("system/atomic.py", "os.fdopen"): "a descriptor of open_regular",
    ("indexes/install/installing.py", "requirements.write_text"): OWN,
    ("indexes/install/replacing.py", "os.fdopen"): "a descriptor of open_regular",
    ("indexes/install/replacing.py", "os.open"): "a directory",
    ("indexes/install/replacing.py", "shutil.copy2"): "copyfile refuses a FIFO",
    ("indexes/build/site.py", "read_text"): SHIPPED,
    ("cli/terminal.py", "log.open"): "appends to what the user names for it; a FIFO may be meant",
    ("indexes/build/site.py", "path.write_bytes"): OWN,
    ("indexes/build/store.py", "os.open"): "relink's own lock file, with O_NOFOLLOW",
    ("indexes/build/store.py", "sqlite3.connect"): "relink's own file beside the site",
    ("indexes/build/site.py", "write_bytes"): OWN,
    ("python/facts_cache.py", "sqlite3.connect"): "relink's own file in the user's cache",
    ("indexes/build/work.py", "os.open"): "relink's own files in the user's cache, with O_NOFOLLOW",
    ("indexes/build/web.py", "os.open"): "relink's own files in the user's cache, with O_NOFOLLOW",
    ("indexes/build/web.py", "os.fdopen"): "a descriptor of the above",
    ("indexes/build/web.py", "sink.truncate"): "a file that is open",
    ("wheel/writer.py", "writer.copy"): NO_FILE,
}
"""Every call that opens a file and is none of the doors, by module, with the reason why it may."""


def calls(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each call of a module that opens a file: the module and the function as it is written there."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    origin = {
        alias.asname or alias.name: node.module or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in OPENING:
            written = _written(function)
            if not f".{written}".endswith(f".{LOADER}"):
                yield str(path.relative_to(PACKAGE)), written
        elif isinstance(function, ast.Name):
            home = origin.get(function.id, "")
            taken = function.id in OPENING and home in MODULES
            if function.id == "open" or taken or (function.id in DOORS and home != "relink.system.safe_open"):
                yield str(path.relative_to(PACKAGE)), function.id


def _written(node: ast.expr) -> str:
    """`a.b.c` of a name, and the last name alone of anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed([*parts, node.id])) if isinstance(node, ast.Name) else parts[0]


def test_nothing_else_opens_a_file() -> None:
    found = {call for path in sorted(PACKAGE.rglob("*.py")) for call in calls(path)}
    found = {call for call in found if call[0] != "system/safe_open.py" or call[1] not in DOORS}
    unknown = found - set(ALLOWED)
    assert not unknown, f"open these by relink.system.safe_open, or say here why not: {sorted(unknown)}"
    assert set(ALLOWED) <= found, f"not there any more: {sorted(set(ALLOWED) - found)}"


@pytest.mark.parametrize(
    "line",
    [
        "open('x')",
        "Path('x').open()",
        "Path('x').read_text()",
        "path.read_bytes()",
        "os.open('x', 0)",
        "io.open('x')",
        "mmap.mmap(1, 0)",
        "sqlite3.connect('x')",
        "tomllib.load(file)",
        "json.load(file)",
        "zipfile.ZipFile('x')",
        "read_text('x')",
        "load(file)",
    ],
)
def test_the_test_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setattr("tests.unit.system.test_safe_open.PACKAGE", tmp_path)
    (tmp_path / "x.py").write_text(f"from json import load\ndef f():\n    return {line}\n")
    assert len(list(calls(tmp_path / "x.py"))) == 1


def test_a_digest_is_of_a_regular_file_up_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"abc" * 100)
    assert file_sha256(path, 300) == hashlib.sha256(b"abc" * 100).hexdigest()
    with pytest.raises(OSError, match="larger than") as large:
        file_sha256(path, 299)
    assert large.value.errno == errno.EFBIG
    with pytest.raises(OSError, match="not a regular file"):
        file_sha256(tmp_path, 300)
