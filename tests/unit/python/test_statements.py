"""Statements that end an import, or take what ends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.python_processes import opened, read_events, write_files
from tests.unit.python.test_evaluation import OPEN, X, Y, outcome

TRY = "lib = None\ntry:\n lib = ctypes.CDLL(here + '/absent.so')\nexcept OSError as error:\n "
ASK = "def load():\n try:\n  return ctypes.CDLL(here + '/absent.so')\n except OSError:\n  return None\nlib = load()\n"


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (TRY + "last = error\nif lib is None:\n raise last", "OSError"),
        (TRY + "last = error\nif last:\n raise last", "OSError"),
        (TRY + "pass\nlib.open", "AttributeError"),
        (TRY + "sys.exit(1)", "SystemExit"),
        (TRY + "pass\nassert lib", "AssertionError"),
        (TRY + "pass\ndef version():\n raise NotImplementedError\nversion()", "NotImplementedError"),
        (ASK + "assert lib, 'none'", "AssertionError"),
        (ASK + "if not lib:\n raise ImportError('none')", "ImportError"),
        (ASK + "lib.open", "AttributeError"),
        (
            "def f(path):\n if not os.path.exists(path):\n  raise ValueError\nf(here + '/absent.so')",
            "ValueError",
        ),
        ("import glob\nctypes.CDLL(glob.glob(here + '/absent*.so')[0])", "IndexError"),
        ("from . import absent", "ImportError"),
        ("from .deep import absent", None),
        ("raise ImportError", "ImportError"),
        ("raise ValueError", None),
        ("value = None\nvalue.name", "AttributeError"),
        ("def f(value=None):\n value.name\nf()", None),
        (TRY + "pass", None),
        (ASK, None),
        ("def f():\n try:\n  ctypes.CDLL(here + '/absent.so')\n finally:\n  return\nf()", None),
        ("try:\n pass\nexcept OSError:\n pass\nelse:\n ctypes.CDLL(here + '/absent.so')", "OSError"),
    ],
)
def test_how_an_import_ends(tmp_path: Path, source: str, kind: str | None) -> None:
    files = {"__init__": OPEN + source, "deep": "def absent(): ...\n"}
    outcome(tmp_path, files["__init__"])
    (tmp_path / "package/deep.py").write_text(files["deep"])
    (tmp_path / "sys.py").write_text("")
    failure = read_events(tmp_path, "package").failure
    assert (failure and failure.partition(":")[0]) == kind


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("names = ['a', 'x']\nwhile names:\n name = names.pop()\n if name == 'x':\n  from . import x\n", [X]),
        ("n = 0\nwhile n < 2:\n n += 1\nelse:\n from . import x", [X]),
        ("match 'b':\n case 'a':\n  from . import x\n case 'b' | 'c':\n  from . import y", [Y]),
        ("match 'd':\n case 'a':\n  from . import x\n case name if name == 'd':\n  from . import y", [Y]),
        ("match 'd':\n case 'a':\n  from . import x\n case _:\n  from . import y", [Y]),
        ("match 'd':\n case 'a':\n  from . import x", []),
    ],
)
def test_loops_and_cases(tmp_path: Path, source: str, expected: list[str]) -> None:
    assert outcome(tmp_path, source) == [(name, "certain") for name in expected]


def test_a_branch_that_a_failing_dlopen_ends_is_told(tmp_path: Path) -> None:
    source = (
        OPEN
        + "try:\n ctypes.CDLL(here + '/absent.so')\nexcept OSError as error:\n if 'a' in str(error):\n  raise\n"
    )
    outcome(tmp_path, source)
    events = read_events(tmp_path, "package")
    assert [event.name for event in events.events if event.by == "test"] == ["whether absent.so is opened"]


@pytest.mark.parametrize(
    ("text", "compiled", "expected"),
    [
        (r"'\N{DIGIT ONE}'", False, ["unicodedata.so"]),
        (r"'\N{DIGIT ONE}'", True, []),
        (r"'\\N{DIGIT ONE}'", False, []),
        (r"'\N{one'", False, []),
    ],
)
def test_the_name_of_a_character(tmp_path: Path, text: str, compiled: bool, expected: list[str]) -> None:
    """Python's compiler asks unicodedata for it; bytecode has the character."""
    write_files(tmp_path, {"unicodedata.so": "", "package.py": f"def f():\n return r'', {text}\n"})
    if compiled:
        write_files(tmp_path, {"__pycache__/package.cpython-311.pyc": ""})
    found = opened(read_events(tmp_path, "package"), tmp_path)
    assert [name for name, _ in found] == expected
