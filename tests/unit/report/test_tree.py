"""The tree of who needs whom, drawn of compiled libraries."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from relink.loader.target import find_target
from relink.planning.resolve.decide import PlanDraft, decide
from relink.providers.profiles import Profile
from relink.report.lines import Part, show
from relink.report.tree import DependencyTree, dependency_trees
from tests.support.cc import cc
from tests.unit.planning.resolve.scenes import Scene

USES = "extern int {0}(void); int g_{0}(void){{return {0}();}}"
NEW = "-Wl,--enable-new-dtags,-rpath,{0}"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def drawn(scene: Scene, pattern: str | None = None, *, width: int | None = None) -> list[str]:
    return lines(*dependency_trees(trees(scene.decide()), pattern), width=width)


def trees(draft: PlanDraft) -> list[DependencyTree]:
    outcomes = draft.outcomes
    return [
        DependencyTree(file, outcomes[file.path].closure, outcomes[file.path].root, draft.context.layout)
        for file in draft.files
    ]


def lines(*parts: Part, width: int | None = None) -> list[str]:
    console = Console(force_terminal=width is not None, width=width, color_system=None)
    with console.capture() as captured:
        show(console, *parts)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_what_is_needed_stands_below_the_one_that_it_is_loaded_for(scene: Scene) -> None:
    deep = scene.provide("lib/libdeep.so.1")
    mid = scene.provide("lib/libmid.so.1", ["libdeep.so.1"], flags=[NEW.format("$ORIGIN")])
    top = scene.provide("lib/libtop.so.1", ["libmid.so.1"], flags=[NEW.format("$ORIGIN")])
    scene.member("demo/a.so", ["libtop.so.1", "libmid.so.1"])
    lib = scene.prefix / "lib"
    assert drawn(scene) == [
        f"demo/a.so  with RUNPATH {lib}",
        f"├── libtop.so.1  {top}  RUNPATH entry {lib}",
        "│   └── libmid.so.1  already loaded for a.so  (see below)",
        f"└── libmid.so.1  {mid}  RUNPATH entry {lib}",
        f"    └── libdeep.so.1  {deep}  RUNPATH entry $ORIGIN",
    ]


def test_what_the_plan_changes_is_marked(scene: Scene) -> None:
    scene.substitutes = (("libsmi.so.1", "libsmi.so.7"),)
    scene.provide("lib/libsmi.so.7", source="int smi_init(void){return 1;}")
    scene.provide("lib/libdeep.so.1")
    scene.provide("lib/libhip.so.1", ["libdeep.so.1"], "int hip(void){return 1;}", [NEW.format("/nowhere")])
    source = USES.format("smi_init") + USES.format("hip")
    scene.member("demo/a.so", ["libsmi.so.1", "libhip.so.1", "libtracer.so.4"], source)
    found = drawn(scene)
    assert any(
        line.startswith("├── libsmi.so.7  ") and line.endswith("  instead of libsmi.so.1") for line in found
    )
    assert any(line.startswith("├── libdeep.so.1  ") and line.endswith("  added to NEEDED") for line in found)
    assert "│   └── libdeep.so.1  already loaded for a.so" in found
    assert found[-1].startswith("└── libtracer.so.4  dropped: no version record names it; ")
    _, only = drawn(scene, "libtracer*")  # asked for alone it is told, too
    assert only == found[-1]


def test_what_was_replaced_is_found_by_its_old_name(scene: Scene) -> None:
    scene.substitutes = (("libsmi.so.1", "libsmi.so.7"),)
    path = scene.provide("lib/libsmi.so.7", source="int smi_init(void){return 1;}")
    scene.member("demo/a.so", ["libsmi.so.1"], USES.format("smi_init"))
    _, line = drawn(scene, "libsmi.so.1")
    assert line.startswith(f"└── libsmi.so.7  {path}  ")
    assert line.endswith("  instead of libsmi.so.1")
    assert drawn(scene, "libsmi.so.1") == drawn(scene, "libsmi.so.7")
    assert drawn(scene, "libother.so.1") == []


def test_what_is_missing_and_everything_that_was_tried(scene: Scene) -> None:
    scene.provide("lib/libhip.so.1", source="int hip(void){return 1;}")
    scene.allow_missing = ("libmaybe*",)
    source = USES.format("hip") + USES.format("gone")
    scene.member("demo/a.so", ["libhip.so.1", "libgone.so.1", "libmaybe.so.1"], source)
    found = drawn(scene)
    (place,) = (number for number, line in enumerate(found) if "libgone.so.1  not found" in line)
    lib = scene.prefix / "lib"
    assert found[place + 1] == f"│   ├── tried {lib}/libgone.so.1: no such file (RUNPATH entry {lib})"
    assert "default directory" in found[place + 3]
    assert any("libmaybe.so.1  not found  allowed to be missing" in line for line in found)


def test_only_the_ways_to_one_library(scene: Scene) -> None:
    deep = scene.provide("lib/libdeep.so.1")
    mid = scene.provide("lib/libmid.so.1", ["libdeep.so.1"], flags=[NEW.format("$ORIGIN")])
    scene.provide("lib/libother.so.1")
    scene.member("demo/a.so", ["libother.so.1", "libmid.so.1"])
    scene.member("demo/b.so", ["libother.so.1"])
    lib = scene.prefix / "lib"
    wanted = [
        f"demo/a.so  with RUNPATH {lib}",
        f"└── libmid.so.1  {mid}  RUNPATH entry {lib}",
        f"    └── libdeep.so.1  {deep}  RUNPATH entry $ORIGIN",
    ]
    for pattern in ("libdeep.so.1", "libdeep.so", "libdeep", "libd?ep*", str(deep)):
        assert drawn(scene, pattern) == wanted
    assert drawn(scene, "libnone*") == []


def test_members_that_others_need_are_drawn_below_them(scene: Scene) -> None:
    scene.provide("lib/libhip.so.1")
    scene.member("demo/libs/libown.so.1", ["libhip.so.1"])
    scene.member("demo/a.so", ["libown.so.1"], flags=[NEW.format("$ORIGIN/libs")])
    found = drawn(scene)
    assert [line for line in found if not line.startswith((" ", "├", "│", "└"))] == ["demo/a.so  unchanged"]
    assert found[1] == "└── libown.so.1  $WHEEL/demo/libs/libown.so.1  RUNPATH entry $ORIGIN/libs"
    assert found[2].startswith("    └── libhip.so.1  ")


def test_a_variant_that_stays_as_it_is(scene: Scene) -> None:
    scene.provide("lib/libhip.so.7")
    scene.profile = Profile("p", variants=("demo/lib_rocm*.so",))
    scene.member("demo/lib_rocm6.so", ["libhip.so.6"], USES.format("hip"))
    found = drawn(scene)
    assert (
        found[0]
        == "demo/lib_rocm6.so  left as it is: even with the prefixes in its search path something is missing"
    )
    assert found[1] == "└── libhip.so.6  not found"


def test_a_circle_ends(scene: Scene) -> None:
    flags = [NEW.format("$ORIGIN")]
    scene.provide("lib/libx.so.1", ["liby.so.1"], flags=flags)
    scene.provide("lib/liby.so.1", ["libx.so.1"], flags=flags)
    scene.member("demo/a.so", ["libx.so.1"])
    assert drawn(scene)[-1] == "        └── libx.so.1  already loaded for a.so  (see above)"


def test_names_do_not_steer_the_terminal(scene: Scene) -> None:
    scene.provide("lib/libhip.so.1")
    scene.member("demo/a\x1b[2J.so", [])
    assert "\x1b" not in "".join(drawn(scene))
    assert "a\\x1b[2J.so" in drawn(scene)[0]


def test_a_narrow_terminal_wraps_and_loses_nothing(scene: Scene) -> None:
    scene.provide("lib/libhip.so.1")
    scene.member("demo/a.so", ["libhip.so.1"])
    narrow = drawn(scene, width=40)
    assert all(len(line) <= 40 or len(line.strip("│├└─ ").split()) == 1 for line in narrow)
    whole = "".join(line.lstrip("└─ ") for line in narrow).replace(" ", "")
    assert f"{scene.prefix}/lib/libhip.so.1" in whole


def test_a_member_that_a_preloaded_one_has_mapped_by_another_path(scene: Scene) -> None:
    hip = scene.provide("lib/libhip.so.1")
    scene.profile = Profile("p", preload=("demo/first.so",))
    scene.member("lib/libown.so.1", ["libhip.so.1"])
    scene.member("demo/first.so", ["libown.so.1"], flags=[NEW.format("$ORIGIN/../lib")])
    python = cc("int main(void){return 0;}", scene.root / "python")
    context = replace(scene.context(), target=replace(find_target(), python=str(python)))
    (own, _) = trees(decide(context))
    (line, below) = lines(*dependency_trees([own]))
    assert (line, below.split()[1:3]) == (
        f"lib/libown.so.1  with RUNPATH {scene.prefix}/lib",
        ["libhip.so.1", str(hip)],
    )
