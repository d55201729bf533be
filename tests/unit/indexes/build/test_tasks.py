"""index.tasks: what a task's identity is made of, and which wheels a target gets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from relink.indexes.build.fingerprint import TargetState
from relink.indexes.build.recipe import IndexTarget, Recipe, WheelSource
from relink.indexes.build.simple_api import ListedWheel
from relink.indexes.build.store import Store
from relink.indexes.build.tasks import plan_tasks, task_key
from relink.wheel.naming import parse_wheel_name

TARGET = IndexTarget("one", ("/x",))


def test_identity() -> None:
    keys = {
        task_key("ab", TARGET),
        task_key("cd", TARGET),
        task_key("ab", replace(TARGET, name="two")),
        task_key("ab", replace(TARGET, prefixes=("/y",))),
        task_key("ab", replace(TARGET, allow_missing=("libx*",))),
    }
    assert len(keys) == 5
    assert task_key("ab", TARGET) == task_key("ab", replace(TARGET))


def test_wheels_are_for_machines_and_pythons(tmp_path: Path) -> None:
    targets = (TARGET, replace(TARGET, name="arm"))
    recipe = Recipe(Path("x"), ((3, 12),), (WheelSource("directory", "x"),), targets)
    states = {
        "one": TargetState({}, "", "", "", "x86_64", "/", ()),
        "arm": TargetState({}, "", "", "", "aarch64", "/", ()),
    }
    wheels = [
        ListedWheel(parse_wheel_name(f"demo-1.0-{tag}.whl"), "file:///x", "ab")
        for tag in (
            "cp312-cp312-manylinux_2_28_x86_64",
            "cp311-cp311-linux_x86_64",
            "py3-none-manylinux_2_28_aarch64",
        )
    ]
    with Store(tmp_path / "site") as store:
        plan = plan_tasks(store, wheels, recipe, states)
    planned = {wheel.name.platform: [target.name for target, _ in own] for wheel, own in plan.todo.items()}
    assert planned == {"manylinux_2_28_x86_64": ["one"], "manylinux_2_28_aarch64": ["arm"]}
    assert (plan.tasks, plan.again) == (2, [])
    assert plan.releases == [("demo", "1.0", "one", 1), ("demo", "1.0", "arm", 1)]
