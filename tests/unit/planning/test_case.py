"""planning.case: what the user said becomes the context of all decisions."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from relink import Options
from relink.loader.target import find_target
from relink.planning.case import Case, Command, build_context, find_prefixes_with, open_providers
from relink.system.errors import ProviderError, SeveralPlacesError, UsageError
from tests.support.cc import shared, shared_without
from tests.support.command import Run
from tests.support.wheels import make_wheel
from tests.support.works import TAG, Works, open_wheel
from tests.unit.providers.test_prefix import library, target


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


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """A root directory with two releases of ROCm, and the link to the newer one."""
    for release, blas, hip in (("6.4.3", 2, 6), ("7.2.4", 3, 7)):
        directory = tmp_path / f"opt/rocm-{release}"
        library(directory / f"lib/libhipblas.so.{blas}")
        library(directory / f"lib/libamdhip64.so.{hip}")
        (directory / ".info").mkdir()
        (directory / ".info/version").write_text(release)
    (tmp_path / "opt/rocm").symlink_to("rocm-7.2.4")
    return tmp_path.resolve()


def test_a_prefix_that_is_none_and_those_that_are_there(two: Path) -> None:
    here = target(two)
    for wrong in ("/opt/rocm-7.2.3", "/opt/rocm-7.2.3/lib"):
        with pytest.raises(ProviderError) as caught:
            open_providers(Options(prefixes=[wrong]), here)
        there = "here are /opt/rocm-6.4.3, /opt/rocm-7.2.4"
        assert str(caught.value) == f"--prefix {wrong}: no such directory; {there}"
        assert caught.value.step is None, "nothing says which of them"
        with pytest.raises(ProviderError) as caught:
            open_providers(Options(prefixes=[wrong]), here, {"libamdhip64.so.7"})
        assert caught.value.step == (wrong, "/opt/rocm-7.2.4")
    library(two / "srv/lib/libother.so.1", machine=183)
    with pytest.raises(
        ProviderError, match=r"no shared library for .*; here are /opt/rocm-6\.4\.3, /opt"
    ) as caught:
        open_providers(Options(prefixes=["/srv"]), here)
    assert "for another machine" in caught.value.issues[0]
    with pytest.raises(ProviderError, match=r"no such directory; name the directory that holds lib/$"):
        open_providers(Options(prefixes=["/none"]), target(two / "srv"))


def test_a_variable_that_names_no_prefix(two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the variable that is blamed, and no option that nobody passed."""
    monkeypatch.setenv("ROCM_PATH", "/nope")
    with pytest.raises(ProviderError, match=r"^ROCM_PATH /nope: no such directory; here are /opt/rocm-6"):
        open_providers(Options(), target(two), {"libamdhip64.so.7"})


def test_which_of_several_places_has_what_is_needed(two: Path) -> None:
    """Libraries that are no vendor's do not count: any of the places may be beside them."""
    here = target(two)
    needed = {"libhipblas.so.3", "libamdhip64.so.7", "libother.so.1"}
    with pytest.raises(SeveralPlacesError) as caught:
        open_providers(Options(), here, needed)
    assert caught.value.places == ("/opt/rocm-7.2.4",)
    assert caught.value.issues == (
        "--prefix /opt/rocm-6.4.3  ROCm 6.4.3, found in /opt; lacks libamdhip64.so.7, libhipblas.so.3",
        "--prefix /opt/rocm-7.2.4  ROCm 7.2.4, found in /opt; has all that is needed",
    )
    for lacked in ({"librocblas.so.5"}, {"librocblas.so.5", "librocm_smi64.so.7"}):
        library(two / "opt/rocm-6.4.3/lib/librocm_smi64.so.7")
        with pytest.raises(SeveralPlacesError) as caught:
            open_providers(Options(), here, {"libamdhip64.so.7", *lacked})
        assert caught.value.places == ("/opt/rocm-7.2.4",), "that with the runtime lacks fewest"
    with pytest.raises(SeveralPlacesError) as caught:
        open_providers(Options(), here, {"librocblas.so.5"})
    assert caught.value.places == ("/opt/rocm-6.4.3", "/opt/rocm-7.2.4")
    with pytest.raises(SeveralPlacesError) as caught:
        open_providers(Options(), here, {"libother.so.1"})
    assert (caught.value.places, caught.value.issues[0][-13:]) == ((), "found in /opt")
    assert [*find_prefixes_with(needed - {"libother.so.1"}, here, Options())] == ["/opt/rocm-7.2.4"]
    assert [*find_prefixes_with(needed, here, Options())] == []
