"""What is remembered of imports: the same as following the sources again, until something changes that was looked at."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import zlib
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from relink.python import answers
from relink.python.answers import AskedVariables
from relink.python.evaluation import Evaluation
from relink.python.events import ImportEvents
from relink.python.facts_cache import FactsCache
from relink.python.modules import identify
from relink.python.process import PlannedFiles, PythonProcesses
from tests.support.python_processes import python_of, write_files

FILES = {
    "demo/__init__.py": (
        "import os, ctypes.util\nfrom pathlib import Path\nfrom . import part\n"
        "if os.environ.get('DEMO_FAST'):\n    import fast\n"
        "if Path(__file__).with_name('plugin.cfg').exists():\n    import plugin\n"
        "ctypes.CDLL(ctypes.util.find_library('demo'))\n"
    ),
    "demo/part.py": "import first\n",
    "first.so": "",
    "fast.so": "",
    "plugin.so": "",
    "other.py": "import demo\n",
    "start.pth": "import startup\n",
    "startup.py": "import first\n",
    "ctypes/util.py": "def find_library(name): ...\n",
}
followed: list[str] = []


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the modules that are followed."""
    real = Evaluation.follow_module

    def follow(self: Evaluation, module: Any) -> Any:
        followed.append(module.name)
        return real(self, module)

    monkeypatch.setattr(Evaluation, "follow_module", follow)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    write_files(tmp_path / "site", FILES)
    return tmp_path / "site"


def asked(
    site: Path,
    variables: Mapping[str, str] | None = None,
    soname: str = "libdemo.so.1",
    names: tuple[str, ...] = ("demo", "other"),
) -> tuple[list[ImportEvents], list[str]]:
    """What a process of relink finds of the start and of imports, and which modules it followed."""
    followed.clear()
    with closing(FactsCache(site.parent / "cache" / "facts.sqlite")) as cache:
        processes = PythonProcesses(
            python_of(site), cache=cache, variables=variables or {}, find_soname=lambda _: soname
        )
        start = ImportEvents("start", processes.read_start())
        return [start, *map(processes.read_import, names)], [*followed]


def forget(site: Path) -> None:
    shutil.rmtree(site.parent / "cache")


def test_nothing_is_followed_again(site: Path) -> None:
    first, modules = asked(site)
    assert {"demo", "demo.part", "other"} <= {*modules}
    assert asked(site) == (first, [])


def add(name: str, text: str = "") -> Callable[[Path], None]:
    def write(site: Path) -> None:
        (site / name).write_text(text)

    return write


@pytest.mark.parametrize(
    ("change", "variables", "soname"),
    [
        (add("demo/part.py", "import plugin\n"), {}, "libdemo.so.1"),
        (add("demo/plugin.cfg"), {}, "libdemo.so.1"),
        (add("first.cpython-311-x86_64-linux-gnu.so"), {}, "libdemo.so.1"),
        (add("more.pth", "import fast\n"), {}, "libdemo.so.1"),
        (lambda site: (site / "first.so").unlink(), {}, "libdemo.so.1"),
        (lambda _: None, {"DEMO_FAST": "1"}, "libdemo.so.1"),
        (lambda _: None, {}, "libdemo.so.2"),
    ],
    ids=["source", "file asked for", "nearer module", "start", "gone", "variable", "library"],
)
def test_what_changes_is_seen(
    site: Path, change: Callable[[Path], None], variables: dict[str, str], soname: str
) -> None:
    asked(site)
    change(site)
    found, modules = asked(site, variables, soname)
    assert modules
    forget(site)
    assert asked(site, variables, soname)[0] == found
    assert asked(site, variables, soname) == (found, [])


def test_a_source_whose_facts_are_known_is_looked_at(site: Path) -> None:
    asked(site)
    with closing(sqlite3.connect(site.parent / "cache" / "facts.sqlite")) as database, database:
        database.execute("delete from facts where file like 'answers:%'")
    first, modules = asked(site)
    assert modules
    (site / "demo" / "part.py").write_text("import plugin\n")
    found, modules = asked(site)
    assert modules
    assert found != first


def test_what_nobody_asked_for_may_change(site: Path) -> None:
    first, _ = asked(site, {"PWD": "/a"})
    assert asked(site, {"PWD": "/b", "DEMO_SLOW": "1"}) == (first, [])


def test_another_question_is_answered_as_if_it_were_the_first(site: Path) -> None:
    asked(site, names=("demo",))
    found, modules = asked(site, names=("other",))
    # The start comes before it, although the start itself was remembered.
    assert "startup" in modules
    forget(site)
    assert asked(site, names=("other",))[0] == found
    # Both are remembered now.
    asked(site)
    assert asked(site)[1] == []


def test_a_variable_that_the_sources_set_is_noted_as_it_was(site: Path) -> None:
    write_files(site, {"demo/part.py": "import os\nos.environ['DEMO_FAST'] = '1'\n"})
    first, _ = asked(site)
    assert any(event.name.endswith("fast.so") for event in first[1].events)
    assert asked(site) == (first, [])


def test_another_relink_does_not_believe_it(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = asked(site)
    monkeypatch.setattr(answers, "identify", lambda path: f"{path} of another one")
    found, modules = asked(site)
    assert found == first
    assert modules


@pytest.mark.parametrize("data", [b"{", b'{"looked":{},"answers":{}}', b"no zlib", zlib.compress(b"[]", 1)])
def test_damage_is_not_believed(site: Path, data: bytes) -> None:
    first, _ = asked(site)
    place = site.parent / "cache" / "facts.sqlite"
    with closing(sqlite3.connect(place)) as database, database:
        packed = data if data.startswith((b"no", b"x")) else zlib.compress(data)
        database.execute("update facts set facts = ? where file like 'answers:%'", (packed,))
    found, modules = asked(site)
    assert found == first
    assert modules


def test_files_that_are_not_installed_are_not_remembered(site: Path) -> None:
    planned = PlannedFiles({str(site / "new.py"): lambda: b"import first\n"})
    for _ in range(2):
        followed.clear()
        with closing(FactsCache(site.parent / "cache" / "facts.sqlite")) as cache:
            processes = PythonProcesses(python_of(site), cache=cache, variables={}, planned=planned)
            assert processes.read_import("new").failure is None
        assert "new" in followed


def test_what_the_kernel_makes_is_only_there(site: Path) -> None:
    assert identify("/proc/self") == identify("/proc/self/maps") == "there"
    assert identify(str(site)) != identify(str(site / "demo"))
    assert identify(str(site / "absent")) == identify("\0") == ""
    before = identify(sys.executable)
    assert os.fspath(sys.executable)
    assert before.count(":") == 3


def test_a_fork_has_what_was_set_and_notes_what_was_before() -> None:
    noted: dict[str, str | None] = {}
    variables = AskedVariables({"A": "1", "C": "5"}, noted)
    variables["A"], variables["B"] = "2", "3"
    del variables["C"]
    other = variables.fork()
    assert (other.get("A"), "B" in other, other.get("C")) == ("2", True, None)
    assert noted == {"A": "1", "B": None, "C": "5"}
