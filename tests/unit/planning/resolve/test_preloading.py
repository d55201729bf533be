"""resolve.preloading: what is known to be dlopened is preloaded, unless anything else changes by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import relink.vendors.rocm.facts
from relink.elf.edit import ElfEdit
from relink.elf.version_edits import VersionEdit
from relink.planning.resolve.decide import PlanDraft
from relink.planning.resolve.preloading import required_edit
from relink.planning.resolve.strategy import find_strategy
from relink.providers.profiles import DlopenEntry
from tests.unit.planning.resolve.scenes import Scene, call, codes, define, opens

MEMBER = "demo/a.so"
HIP, BUILTINS = "libhip.so.7", "libbuiltins.so.7"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table knows that libhip.so dlopens libbuiltins.so, and that one libmore.so."""
    facts = relink.vendors.rocm.facts.rocm_facts()
    entries = (
        DlopenEntry("libhip.so", ("libbuiltins.so.*",), "it compiles"),
        DlopenEntry("libbuiltins.so", ("libmore.so.*",), "it reads tables"),
    )
    monkeypatch.setattr(relink.vendors.rocm.facts, "rocm_facts", lambda: type(facts)(facts.same_abi, entries))


def added(draft: PlanDraft, member: str = MEMBER) -> tuple[str, ...]:
    (file,) = (file for file in draft.files if file.path == member)
    return file.edit.add


def test_it_is_added_and_reported_with_what_knows_of_it(scene: Scene) -> None:
    scene.provide(f"lib/{BUILTINS}", source=define("builtins"))
    scene.provide(f"lib/{HIP}", [], define("hip"))
    scene.member(MEMBER, [HIP], call("hip"))
    draft = scene.decide()
    assert added(draft) == (BUILTINS,)
    assert BUILTINS not in [found.subject for found in draft.findings if found.code == "RLK120"]
    (told,) = (found for found in draft.findings if found.code == "RLK121")
    assert (told.level, told.subject, told.profile) == ("info", MEMBER, "rocm")
    assert BUILTINS in told.message
    assert added(scene.decide_again(draft)) == ()


def test_the_table_knows_better_than_a_string(scene: Scene) -> None:
    scene.provide(f"lib/{BUILTINS}", source=define("builtins"))
    scene.provide(f"lib/{HIP}", [], define("hip") + opens(BUILTINS))
    scene.provide("lib/libother.so.1", [], define("other") + opens("libseen.so.1"))
    scene.provide("lib/libseen.so.1")
    scene.member(MEMBER, [HIP, "libother.so.1"], call("hip"))
    draft = scene.decide()
    assert BUILTINS in added(draft)
    assert "libseen.so.1" not in added(draft)  # only a string says that it is dlopened


def test_what_is_preloaded_may_dlopen_another(scene: Scene) -> None:
    scene.provide("lib/libmore.so.7", source=define("more"))
    scene.provide(f"lib/{BUILTINS}", source=define("builtins"))
    scene.provide(f"lib/{HIP}", [], define("hip"))
    scene.member(MEMBER, [HIP], call("hip"))
    assert added(scene.decide()) == (BUILTINS, "libmore.so.7")


def test_not_where_it_is_turned_off(scene: Scene) -> None:
    scene.provide(f"lib/{BUILTINS}", source=define("builtins"))
    scene.provide(f"lib/{HIP}", [], define("hip"))
    scene.member(MEMBER, [HIP], call("hip"))
    scene.preload_known = False
    draft = scene.decide()
    assert added(draft) == ()
    assert "RLK120" in codes(draft)


def test_not_where_a_binding_changes(scene: Scene) -> None:
    """The preloaded library would come before libown.so.1 in the scope. Libraries with a RUNPATH take no RPATH of the member."""
    elsewhere = ["-Wl,--enable-new-dtags,-rpath,/nowhere"]
    scene.provide(f"lib/{BUILTINS}", source=define("builtins") + define("shared"))
    scene.provide("lib/libown.so.1", source=define("shared"))
    scene.provide("lib/libmid.so.1", ["libown.so.1"], call("shared"), elsewhere)
    scene.provide(f"lib/{HIP}", ["libmid.so.1"], define("hip"), elsewhere)
    scene.member(MEMBER, [HIP], call("hip"))
    draft = scene.decide()
    assert BUILTINS not in added(draft)
    assert "RLK120" in codes(draft)


def test_not_where_a_second_version_of_a_library_comes_in(scene: Scene) -> None:
    scene.provide("lib/libhip.so.6", source=define("other"))
    scene.provide(f"lib/{BUILTINS}", ["libhip.so.6"], define("builtins"))
    scene.provide(f"lib/{HIP}", [], define("hip"))
    scene.member(MEMBER, [HIP], call("hip"))
    draft = scene.decide()
    assert BUILTINS not in added(draft)
    assert "RLK120" in codes(draft)


def test_not_for_a_library_that_the_wheel_brings_along(scene: Scene) -> None:
    scene.provide(f"lib/{BUILTINS}", source=define("builtins"))
    scene.member(f"demo/{HIP}", [], define("hip"), flags=[f"-Wl,-soname,{HIP}"])
    scene.member(MEMBER, [HIP], call("hip"), flags=["-Wl,--enable-new-dtags,-rpath,$ORIGIN"])
    draft = scene.decide()
    assert added(draft) == added(draft, f"demo/{HIP}") == ()


def test_what_is_asked_for_keeps_the_version_edits(scene: Scene) -> None:
    """A NEEDED that is added later, because it was forgotten or is dlopened, comes on top of them."""
    scene.provide(f"lib/{HIP}")
    scene.member(MEMBER, [HIP])
    outcome = find_strategy(scene.context(), MEMBER)
    versions = (VersionEdit("libold.so.1", "OLD_1", HIP, "OLD_1", weak=True),)
    asked = replace(outcome, edit=replace(outcome.edit, versions=versions), preloaded={BUILTINS: None})
    assert outcome.edit.search_path is not None
    assert required_edit(asked) == ElfEdit(add=(BUILTINS,), versions=versions)
