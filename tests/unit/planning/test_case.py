"""planning.case: what the user said becomes the context of all decisions."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from relink import Options
from relink.loader.target import find_target
from relink.planning.case import Case, Command, build_context
from relink.planning.reading import open_wheel
from relink.system.errors import UsageError
from tests.support.works import Works


@pytest.mark.parametrize(
    ("command", "as_it_is", "is_installed"),
    [("run", False, True), ("verify", True, True), ("check", True, False), ("tree", False, False)],
)
def test_who_asks(works: Works, tmp_path: Path, command: Command, as_it_is: bool, is_installed: bool) -> None:
    with ExitStack() as stack:
        case = Case(open_wheel(works.small(tmp_path), stack), find_target(), (), Options(), command)
        assert (case.as_it_is, case.is_installed) == (as_it_is, is_installed)
        assert build_context(case).as_it_is == as_it_is


@pytest.mark.parametrize("text", ["libx.so.1", "libx.so.1=", "=libx.so.1", "lib/x.so=liby.so"])
def test_a_substitution_that_is_none(works: Works, tmp_path: Path, text: str) -> None:
    with ExitStack() as stack:
        wheel = open_wheel(works.small(tmp_path), stack)
        with pytest.raises(UsageError, match="write it as OLD=NEW"):
            build_context(Case(wheel, find_target(), (), Options(substitute=[text]), "run"))
