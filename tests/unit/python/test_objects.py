"""Functions that Python calls where the source has no call: decorators, classes, ``with``, attributes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.python_processes import read_events
from tests.unit.python.test_evaluation import OPEN, X, Y, outcome

LOAD = "def load():\n from . import x\n"
LAZY = "class Lazy:\n def __init__(self, f):\n  self.f = f\n def __get__(self, one, cls):\n  return self.f(one)\n"
KEEPER = "class Keep:\n def __init__(self, f):\n  self.f = f\n def __call__(self):\n  return self.f()\n"
META = "class Meta(type):\n def {}(cls, *given):\n  from . import x\n"


@pytest.mark.parametrize(
    "source",
    [
        "def run(f):\n f()\n@run\n" + LOAD,
        "def wrap(f):\n def inner(*given):\n  return f(*given)\n return inner\n@wrap\n" + LOAD + "load()",
        "def often(n):\n def wrap(f):\n  return lambda: f()\n return wrap\n@often(2)\n" + LOAD + "load()",
        KEEPER + "@Keep\n" + LOAD + "load()",
        "import functools\nclass A:\n @functools.cached_property\n def x(self):\n  from . import x\nA().x",
        LAZY + "class A:\n @Lazy\n def x(self):\n  from . import x\nA().x",
        "class A:\n @property\n def p(self):\n  from . import x\n @p.setter\n def p(self, value): ...\nA().p",
        META.format("__new__") + "class A(metaclass=Meta): ...",
        META.format("__init__") + "class A(metaclass=Meta): ...\nclass B(A): ...",
        "class A:\n def __init_subclass__(cls, **given):\n  from . import x\nclass B(A): ...",
        (
            "class A:\n def __new__(cls):\n  one = super().__new__(cls)\n  one.name = 'x'\n  return one\n"
            "__import__('package.' + A().name)"
        ),
        (
            "class A:\n def __init__(self, name):\n  __import__('package.' + name)\n"
            "class B(A):\n def __init__(self):\n  super().__init__('x')\nB()"
        ),
        "class A:\n def f(self):\n  from . import x\nclass B(A):\n def f(self):\n  super(B, self).f()\nB().f()",
        "import dataclasses\n"
        + LOAD
        + "@dataclasses.dataclass\nclass A:\n x: object = dataclasses.field(default_factory=load)\nA()",
        "class A:\n name: str\n def __post_init__(self):\n  __import__('package.' + self.name)\nA('x')",
        "import enum\nclass E(enum.Enum):\n A = 'x'\nfor one in E:\n __import__('package.' + one.value)",
        "class A:\n def __init__(self):\n  self.__dict__['n'] = 'x'\n__import__('package.' + A().n)",
        "def names():\n yield 'x'\nfor name in names():\n __import__('package.' + name)",
        "def names():\n yield from ('x',)\n[__import__('package.' + name) for name in names()]",
        "import contextlib\n@contextlib.contextmanager\ndef f():\n from . import x\n yield\nwith f():\n pass",
        "import contextlib\n@contextlib.contextmanager\ndef f():\n yield 'x'\nwith f() as name:\n __import__(f'package.{name}')",
        "class A:\n def __enter__(self): ...\n def __exit__(self, *given):\n  from . import x\nwith A():\n pass",
    ],
)
def test_what_is_called_without_a_call(tmp_path: Path, source: str) -> None:
    (tmp_path / "enum.py").write_text("class Enum: ...\n")
    (tmp_path / "dataclasses.py").write_text("def field(**given): ...\ndef dataclass(cls):\n return cls\n")
    (tmp_path / "functools.py").write_text("")
    assert outcome(tmp_path, source) == [(X, "certain")]


MANAGERS = {
    "try": "@contextlib.contextmanager\ndef f():\n try:\n  yield\n except {}:\n  pass\n",
    "exit": "class f:\n def __exit__(self, kind, value, trace):\n  return issubclass(kind, {})\n",
}


@pytest.mark.parametrize("manager", MANAGERS)
@pytest.mark.parametrize(("kind", "is_taken"), [("OSError", True), ("Exception", True), ("KeyError", False)])
def test_what_a_manager_takes(tmp_path: Path, manager: str, kind: str, is_taken: bool) -> None:
    source = "import contextlib\n" + OPEN + MANAGERS[manager].format(kind)
    source += "with f():\n ctypes.CDLL(here + '/absent.so')\nfrom . import y\n"
    assert ((Y, "certain") in outcome(tmp_path, source)) is is_taken
    assert (read_events(tmp_path, "package").failure is None) is is_taken


def test_a_return_in_a_with_ends_the_function(tmp_path: Path) -> None:
    source = "import contextlib\n@contextlib.contextmanager\ndef f():\n yield\ndef g():\n with f():\n  return 'x'\n return 'y'\n"
    assert outcome(tmp_path, source + "__import__('package.' + g())") == [(X, "certain")]
