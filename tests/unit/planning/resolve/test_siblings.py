"""resolve.siblings: libraries that the import of another package maps, resolved where it is installed, else assumed and told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from relink.planning.resolve.decide import PlanDraft, decide
from relink.planning.resolve.siblings import Sibling, sibling_of, sibling_paths
from relink.providers.profiles import Profile
from tests.unit.planning.resolve.scenes import Scene, call, codes, define

SONAME, MEMBER = "libfirst.so", "demo/a.so"
PROFILE = Profile("first", ("first",), ("first",), brings=("first/lib/libfirst*.so",))
WHY = "METADATA requires first"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    made = Scene(tmp_path)
    made.provide("lib/libelse.so.1", source=define("other"))
    made.member(MEMBER, [SONAME], call("first"))
    return made


def planned(scene: Scene, sibling: Sibling) -> PlanDraft:
    return decide(replace(scene.context(), siblings=(sibling,)), scene.tables)


def installed(scene: Scene, *exports: str) -> Sibling:
    path = scene.library(scene.root / "site" / "first" / "lib" / SONAME, [], define(*exports))
    directory = str(scene.root / "site" / "first")
    return Sibling(PROFILE, WHY, directory, (str(scene.root / "site"),), {SONAME: str(path)})


def test_which_sibling_brings_a_soname() -> None:
    sibling = Sibling(PROFILE, WHY)
    assert sibling_of([sibling], "libfirst_cpu.so") is sibling
    assert sibling_of([sibling], "libsecond.so") is None
    assert sibling_paths([sibling, Sibling(PROFILE, WHY, "/d", (), {"x": "/d/x"})]) == ["/d/x"]


def test_without_it_nothing_brings_the_library(scene: Scene) -> None:
    assert [item.code for item in scene.decide().findings if item.level == "error"] == ["RLK101"]


def test_one_that_is_not_there_is_assumed(scene: Scene) -> None:
    draft = planned(scene, Sibling(PROFILE, WHY))
    (told,) = (item for item in draft.findings if item.level != "info")
    assert (told.code, told.level, told.subject, told.profile) == ("RLK118", "warning", "first", "first")
    assert (
        told.message
        == f"libfirst.so of a.so come by its import ({WHY}), which is assumed: no Python of the target is known"
    )
    assert [item.origin for file in draft.files for item in file.needed if item.soname == SONAME] == [
        "assumed"
    ]


def test_where_it_was_looked_for(scene: Scene) -> None:
    draft = planned(scene, Sibling(PROFILE, WHY, None, ("/site",)))
    (told,) = (item for item in draft.findings if item.code == "RLK118")
    assert told.message.endswith("which is assumed: it is not installed in /site")


def test_an_installed_one_is_resolved_for_real(scene: Scene) -> None:
    sibling = installed(scene, "first")
    draft = planned(scene, sibling)
    assert not [item for item in draft.findings if item.level != "info"]
    (told,) = (item for item in draft.findings if item.code == "RLK119")
    assert told.message == f"libfirst.so of a.so are those of {sibling.directory} ({WHY})"
    (entry,) = (item for file in draft.files for item in file.needed if item.soname == SONAME)
    assert (entry.resolved, entry.found_by) == (sibling.libraries[SONAME], "already loaded")
    assert not any(file.changed for file in draft.files)


def test_an_installed_one_that_lacks_the_symbol_is_refused(scene: Scene) -> None:
    draft = planned(scene, installed(scene, "second"))
    (error,) = (item for item in draft.findings if item.level == "error")
    assert error.code == "RLK302"
    assert "first" in error.message


def test_an_installed_one_that_lacks_the_library_is_refused(scene: Scene) -> None:
    """A build of the package for the CPU has no library of the GPU."""
    draft = planned(scene, replace(installed(scene, "first"), libraries={}))
    (error,) = (item for item in draft.findings if item.level == "error")
    assert (error.code, error.subject) == ("RLK101", SONAME)
    assert f"{scene.root}/site/first should bring it ({WHY}) and does not have it" in error.message
    assert error.remedy == "Install a build of first that has it, for the same Python, and relink again."


def test_another_library_is_not_assumed(scene: Scene) -> None:
    scene.member("demo/b.so", ["libsecond.so"], call("second"))
    draft = planned(scene, Sibling(PROFILE, WHY))
    assert [item.subject for item in draft.findings if item.code == "RLK101"] == ["libsecond.so"]
    assert "RLK118" in codes(draft)


def test_what_a_prefix_has_is_not_assumed(scene: Scene) -> None:
    scene.provide(f"lib/{SONAME}", source=define("first"))
    draft = planned(scene, Sibling(PROFILE, WHY))
    assert "RLK118" not in codes(draft)
    assert [item.origin for file in draft.files for item in file.needed if item.soname == SONAME] == [
        "provider"
    ]
