"""index.tasks: what a task's identity is made of, and which wheels a target gets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from relink.indexes.build.fingerprint import TargetState
from relink.indexes.build.recipe import IndexTarget, Recipe, WheelSource
from relink.indexes.build.simple_api import ListedWheel
from relink.indexes.build.tasks import planned_tasks, task_key
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


def test_wheels_are_for_machines_and_pythons() -> None:
    recipe = Recipe(
        Path("x"), ((3, 12),), (WheelSource("directory", "x"),), (TARGET, replace(TARGET, name="arm"))
    )
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
    planned = [(task.wheel.name.platform, task.target.name) for task in planned_tasks(wheels, recipe, states)]
    assert planned == [("manylinux_2_28_x86_64", "one"), ("manylinux_2_28_aarch64", "arm")]
