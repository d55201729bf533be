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
from tests.support.cc import shared, shared_without
from tests.support.command import Run
from tests.support.wheels import make_wheel
from tests.support.works import TAG, Works


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


@pytest.mark.parametrize("names_it", [True, False])
def test_a_hint_for_releases_that_name_a_variable(run: Run, tmp_path: Path, names_it: bool) -> None:
    """What only some releases of a package know is told where the wheel's own Python has the name."""
    lost = shared_without(tmp_path / "lost.so", "librocgone.so.1")
    source = b"os.environ.get('BNB_ROCM_VERSION')" if names_it else b""
    files: dict[str, bytes | Path] = {
        "bitsandbytes/cextension.py": source,
        "bitsandbytes/libbitsandbytes_rocm72.so": lost,
    }
    wheel = make_wheel(tmp_path, files, name="bitsandbytes", tag=TAG)
    shared(tmp_path / "rocm/lib/libamdhip64.so.7", "int hip(void){return 7;}")
    code, out, _ = run(wheel, "--prefix", tmp_path / "rocm", "-o", tmp_path / "out")
    (line,) = [line for line in out.splitlines() if "is picked by the HIP that torch was built with" in line]
    assert (code, "BNB_ROCM_VERSION=72" in line) == (1, names_it)
