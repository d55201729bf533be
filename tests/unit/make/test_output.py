"""The making of one output: which file it takes the place of, what is on the disk afterwards, and what an error says."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from relink.library import relink
from relink.make.output import Staging
from relink.planning.contents import Contents
from relink.planning.options import Options
from relink.system.errors import MachineError, RelinkError, UsageError
from relink.wheel.archive import WheelArchive
from relink.wheel.changes import NewContent
from tests.support.wheels import make_wheel
from tests.support.works import OUTPUT, Works


def staged(wheel: Path, output: Path) -> tuple[Contents, Staging]:
    contents = Contents(wheel)
    return contents, Staging(contents, contents.archive.name, Options(output_directory=output))


@pytest.mark.parametrize("link", [False, True])
def test_a_write_without_add_takes_not_the_inputs_place(tmp_path: Path, link: bool) -> None:
    """Its SHA-256 was reported, and no file had it."""
    wheel = make_wheel(tmp_path / "in", {"demo/__init__.py": b""})
    before = wheel.read_bytes()
    if link:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / wheel.name).symlink_to(wheel)
    contents, staging = staged(wheel, tmp_path / ("out" if link else "in"))
    with contents, staging, pytest.raises(UsageError, match="take the input's place; name another directory"):
        staging.write({"demo/new": NewContent(b"new", 3)})
    assert wheel.read_bytes() == before


def test_what_is_published_has_the_sha256_that_is_returned(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "in", {"demo/__init__.py": b""})
    contents, staging = staged(wheel, tmp_path / "out")
    with contents, staging:
        staging.write({"demo/new": NewContent(b"new", 3)})
        sha256 = staging.publish()
    assert hashlib.sha256(staging.final.read_bytes()).hexdigest() == sha256
    contents, staging = staged(wheel, tmp_path / "in")  # a copy in its own place: the file is left alone
    inode = wheel.stat().st_ino
    with contents, staging:
        staging.copy()
        sha256 = staging.publish()
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() == sha256
    assert wheel.stat().st_ino == inode


@pytest.mark.parametrize("memory", [None, 8 * 1024])
def test_a_member_is_deflated_ahead_if_there_is_memory(tmp_path: Path, memory: int | None) -> None:
    """Its content is then read before the output is begun."""
    new, asked = os.urandom(4096) * 4, threading.Event()

    def content() -> Iterator[bytes]:
        asked.set()
        yield new

    wheel = make_wheel(tmp_path / "in", {"demo/__init__.py": os.urandom(4096)})
    contents = Contents(wheel)
    options = Options(output_directory=tmp_path / "out", max_memory=memory)
    with contents, Staging(contents, contents.archive.name, options) as staging:
        staging.add("demo/__init__.py", NewContent(content(), len(new)))
        assert asked.wait(10 if memory is None else 0.2) == (memory is None)
        staging.write({})
        staging.publish()
    with WheelArchive(staging.final) as archive:
        assert archive.read("demo/__init__.py") == new


@pytest.mark.parametrize("plain", [False, True])
def test_the_name_of_the_output_is_on_the_disk(
    works: Works, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain: bool
) -> None:
    """The last thing that is synced is the directory that has got the name, for a copy and for what was written."""
    synced: list[str] = []
    sync = os.fsync

    def recorded(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        sync(fd)

    monkeypatch.setattr(os, "fsync", recorded)
    wheel = works.wheel(tmp_path, {"demo/a.so": works.plain}) if plain else works.small(tmp_path)
    report = relink(wheel, works.options(tmp_path / "out"))
    assert report.output is not None
    *_, file, directory = synced
    assert os.path.basename(file) == os.path.basename(report.output.path)
    assert directory == str(tmp_path / "out")


WRITTEN = "FINAL: cannot be written"


@pytest.mark.parametrize(
    ("number", "names", "kind", "says"),
    [
        (
            errno.EACCES,
            ("FINAL",),
            UsageError,
            f"{WRITTEN} (Permission denied); name another directory by --output",
        ),
        (errno.ENOSPC, (), UsageError, f"{WRITTEN} (No space left on device); make room there, or name"),
        # shutil.copyfile names both files, and the input is not the reason
        (errno.ENOSPC, ("OTHER", "STAGED"), UsageError, f"{WRITTEN} (No space left on device); make room"),
        (errno.EDQUOT, ("STAGED",), UsageError, f"{WRITTEN} (Disk quota exceeded); make room in your quota"),
        (errno.EFBIG, (), UsageError, f"{WRITTEN} (File too large); files may not be that large there"),
        (errno.ENAMETOOLONG, ("STAGED", "FINAL"), UsageError, f"{WRITTEN} (File name too long); names may"),
        (errno.EISDIR, ("STAGED", "FINAL"), UsageError, f"{WRITTEN} (Is a directory); move the directory of"),
        (
            errno.ENOENT,
            ("OTHER",),
            RelinkError,
            "OTHER: No such file or directory, so NAME cannot be made; see",
        ),
        (errno.EACCES, ("OTHER",), RelinkError, "OTHER: Permission denied, so NAME cannot be made"),
        (errno.EIO, ("OTHER",), MachineError, "OTHER: Input/output error: the disk cannot be read"),
        (errno.EMFILE, (), MachineError, f"{WRITTEN}: Too many open files: this process may not open"),
    ],
)
def test_an_error_names_its_reason_and_the_next_step(
    tmp_path: Path, number: int, names: tuple[str, ...], kind: type[RelinkError], says: str
) -> None:
    contents, staging = staged(make_wheel(tmp_path / "in", {"demo/__init__.py": b""}), tmp_path / "out")
    paths = {"FINAL": str(staging.final), "OTHER": "/usr/lib/libx.so"}

    def fail() -> None:
        with staging:
            paths["STAGED"] = str(staging.directory / staging.final.name)
            places = [paths[name] for name in names]
            second = [None, places[1]] if places[1:] else []
            raise OSError(number, os.strerror(number), *places[:1], *second)

    with contents, pytest.raises(RelinkError) as caught:
        fail()
    assert type(caught.value) is kind
    expected = says.replace("FINAL", paths["FINAL"]).replace("OTHER", paths["OTHER"])
    assert str(caught.value).startswith(expected.replace("NAME", staging.final.name))
    assert not (tmp_path / "out").exists()


def test_a_directory_in_the_outputs_place(works: Works, tmp_path: Path) -> None:
    (tmp_path / "out" / OUTPUT).mkdir(parents=True)
    with pytest.raises(
        UsageError, match=r"\(Is a directory\); move the directory of that name away, or name"
    ):
        relink(works.small(tmp_path), works.options(tmp_path / "out"))
