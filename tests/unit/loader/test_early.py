"""Libraries that are read early: what they need, too, as long as there is time, and nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from relink.elf import strings
from relink.elf.symbols import read_symbols
from relink.loader import tables
from relink.loader.early import library_names, read_early
from relink.loader.files import Files
from relink.loader.tables import Tables
from tests.support.cc import shared


@pytest.fixture
def find(tmp_path: Path) -> Callable[[str], str | None]:
    """Of liba, which needs libb, which needs liba again and libc, of which there is none."""
    shared(tmp_path / "libc.so", "")
    shared(tmp_path / "liba.so", "")
    b = shared(tmp_path / "libb.so", "int b;", needed=[tmp_path / "liba.so", tmp_path / "libc.so"])
    shared(tmp_path / "liba.so", "int a;", needed=[b])
    (tmp_path / "libc.so").unlink()
    (tmp_path / "libtext.so").write_text("INPUT(libb.so)")
    return lambda name: str(tmp_path / name) if (tmp_path / name).exists() else None


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Mock:
    spy = Mock(wraps=read_symbols)
    monkeypatch.setattr(tables, "read_symbols", spy)
    return spy


def test_what_libraries_lead_to(find: Callable[[str], str | None], reading: Mock) -> None:
    known = Tables(Files(), {})
    read_early(known, find, ["libtext.so", "liba.so", "libnone.so"], lambda: True)
    assert reading.call_count == 2
    for name, symbol in (("liba.so", "a"), ("libb.so", "b")):
        path = find(name)
        assert path
        identity = known.files.open(path).identity
        assert identity
        assert symbol in known.over(known.files, {}).read(identity, path).exports
    assert reading.call_count == 2


@pytest.mark.parametrize("libraries", [0, 1, 2])
def test_as_long_as_there_is_time(find: Callable[[str], str | None], reading: Mock, libraries: int) -> None:
    read_early(Tables(Files(), {}), find, ["liba.so"], lambda: reading.call_count < libraries)
    assert reading.call_count == libraries


def test_names_that_they_may_dlopen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In what imports dlopen alone; once, and after everything else, if there is time still."""
    text = 'const char *name(void) { return "libother.so.1"; }'
    shared(tmp_path / "liba.so", "extern int dlopen(void); int a(void) { return dlopen(); }" + text)
    shared(tmp_path / "libb.so", text)
    looking = Mock(wraps=strings.library_names)
    monkeypatch.setattr(tables, "library_names", looking)
    both = ["liba.so", "libb.so"]
    for go_on, calls in ((iter([True] * 2 + [False]), 0), (iter([True] * 9), 1)):
        known = Tables(Files(), {})
        read_early(known, lambda name: str(tmp_path / name), both, lambda left=go_on: next(left))  # type: ignore[misc]
        assert looking.call_count == calls
        for name, expected in zip(both, (("libother.so.1",), ()), strict=True):
            found = known.files.open(str(tmp_path / name))
            assert found.image
            assert found.identity
            again = known.over(known.files, {})
            assert again.dlopened(found.identity, found.path, found.image) == expected
            assert known.dlopened(found.identity, found.path, found.image) == expected
        assert looking.call_count == 1
        looking.reset_mock()


def test_names_in_a_file_that_is_gone(tmp_path: Path) -> None:
    path = shared(tmp_path / "liba.so", "extern int dlopen(void); int a(void) { return dlopen(); }")
    known = Tables(Files(), {})
    found = known.files.open(str(path))
    assert found.image
    assert found.identity
    known.read(found.identity, found.path)
    path.unlink()
    assert known.dlopened(found.identity, found.path, found.image) == ()


def test_names_in_a_file() -> None:
    data = b"\0libamdhip64.so.7\0x libm.so\0libc++.so.1.0\0lib.so\0libopen.so and so on\0libm.so\0libcut.so.1"
    assert library_names(data) == ["libamdhip64.so.7", "libm.so", "libc++.so.1.0"]
    assert library_names(b"lib" * 100_000) == []
