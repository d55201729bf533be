"""For every test: its group, the number of generated inputs, no network in `make test`, and findings that are complete.

A finding is a whole sentence with a next step, and a test that tests/support/triggers.py names for a code emits it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import pkgutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import relink
from relink.system.findings import model as findings
from relink.system.findings.model import RULES, Finding
from relink.system.sandbox.start import OFF
from tests.support.amount import PROFILE, is_generated, load_profile
from tests.support.cc import compiler
from tests.support.outside import OFFLINE, inside
from tests.support.read_once import read_once
from tests.support.triggers import TRIGGERS, printed, same_words, unfinished

# Many tests start relink, which would be compiled anew each time; so would the tests themselves, in each worker.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# An active environment is a target of relink: what is tested must not depend on who has one.
os.environ.pop("VIRTUAL_ENV", None)
sys.dont_write_bytecode = False

HERE = Path(__file__).parent
GROUPS = ("browser", "examples", "nix", "real")
"""Directories whose tests carry a marker of the same name."""
APART = ("slow", "network", *GROUPS, "fuzz")
"""Markers of tests that `make test`, which is pytest without a path or an expression, leaves to `make test-all`."""
GENERATED = pytest.mark.slow(
    reason="generated inputs alone, of which `make test-rest` tries ten times as many"
)
"""What tests/fuzz has and `make fuzz` does not keep for itself."""
MAY_LEAVE = (*GROUPS, "network")
"""Markers of tests that may use the network and programs that a contributor need not have."""


def pytest_configure(config: pytest.Config) -> None:
    try:
        compiler()
    except RuntimeError as error:
        raise pytest.UsageError(str(error)) from None
    load_profile()
    if not config.option.markexpr and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        config.option.markexpr = f"not ({' or '.join(APART)})"
    read_once()


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Each worker imports other modules first: what one has compiled in a fresh clone, the others then find compiled."""
    worker = getattr(session.config, "workerinput", None)
    if worker is None or session.config.args != session.config.getini("testpaths"):
        return
    paths = sorted(HERE.rglob("test_*.py"))
    begin = len(paths) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for path in (*paths[begin:], *paths[:begin]):
        with contextlib.suppress(Exception, pytest.skip.Exception):  # collecting it says what is wrong
            importlib.import_module(".".join(path.relative_to(HERE.parent).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """What was imported and collected stays until the end: the garbage collector need not go through it again and again."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seen: Counter[str] = Counter()
    for item in items:
        group = item.path.relative_to(HERE).parts[0]
        if group in GROUPS:
            item.add_marker(group)
        elif group == "fuzz":
            item.add_marker(GENERATED)
        for mark in item.iter_markers("few"):
            test = item.nodeid.partition("[")[0]
            seen[test] += 1
            if seen[test] > mark.args[0]:
                item.add_marker(pytest.mark.slow(**mark.kwargs))
        for mark in item.iter_markers("slow"):
            if not mark.kwargs.get("reason"):
                raise pytest.UsageError(f"{item.nodeid}: slow needs a reason: @pytest.mark.slow(reason=...)")
    if PROFILE == "rest":
        done = [item for item in items if not _is_of_rest(item)]
        items[:] = [item for item in items if _is_of_rest(item)]
        config.hook.pytest_deselected(items=done)


def _is_of_rest(item: pytest.Item) -> bool:
    """Whether `make test` leaves a test out, or tries fewer inputs."""
    assert isinstance(item, pytest.Function)
    return any(map(item.get_closest_marker, APART)) or is_generated(item.module)


@pytest.fixture(scope="session")
def empty_lists(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an apt-cache that knows no package: the real one takes a second of processor time to say what it knows."""
    program = tmp_path_factory.mktemp("lists") / "apt-cache"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program.parent


@pytest.fixture(autouse=True)
def _offline(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, empty_lists: Path
) -> Iterator[None]:
    """Refuse network, Nix, browsers and apt's lists to every test that has no marker for them."""
    if any(request.node.get_closest_marker(name) for name in MAY_LEAVE):
        yield
        return
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{empty_lists}:{os.environ['PATH']}")
    with inside() as refused:
        yield
    assert refused == []


# A module that is imported while a test runs would keep what stands in for the class of findings there.
for _module in pkgutil.walk_packages(relink.__path__, "relink."):
    if not _module.name.endswith("__main__"):
        importlib.import_module(_module.name)


@pytest.fixture(autouse=True)
def emitted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Finding]]:
    """Note the findings that are made, and hold each to what ``relink rules`` promises of it."""
    made: list[Finding] = []

    def note(*fields: str | None, **named: str | None) -> Finding:
        made.append(Finding(*fields, **named))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(findings, "Finding", note)
    yield made
    assert [found for found in made if unfinished(found)] == []
    for code in (code for code, test in TRIGGERS.items() if test == request.node.nodeid):
        shown = [printed(found) for found in made if found.code == code]
        assert shown, f"{code} is not emitted; name another test of it in tests/support/triggers.py"
        assert any(same_words(RULES[code].example, one) for one in shown), (
            f"the example of {code} is not what relink prints; take this:\n" + "\n".join(shown)
        )


@pytest.fixture
def unconfined(monkeypatch: pytest.MonkeyPatch) -> None:
    """No sandbox, although none is asked for: a shell script that stands for patchelf starts others, which no sandbox allows."""
    monkeypatch.setattr("relink.system.sandbox.start.first_working", lambda: OFF)
