"""index.recipe: a recipe is read whole, or every problem is told with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from relink.indexes.build.recipe import read_recipe
from relink.system.errors import UsageError
from relink.system.shipped_files import load_schema

RECIPE = """\
pythons = ["3.11", "3.12"]
originals = "link"
cache-size = "5G"

[[sources]]
index = "pip"
requirements = ["demo>=1; python_version >= '3.12'"]
latest = 5

[[sources]]
directory = "wheels"

[targets.small]
prefixes = ["rocm"]
interpreter = "/lib/ld.so"
gpus = ["RX 6750 XT"]
only-gpus = ["gfx1100"]
allow-missing = ["libx*"]
profile = "./mine.toml"
"""


def written(directory: Path, text: str) -> Path:
    path = directory / "index.toml"
    path.write_text(text)
    return path


def test_a_recipe(tmp_path: Path) -> None:
    recipe = read_recipe(written(tmp_path, RECIPE))
    assert recipe.pythons == ((3, 11), (3, 12))
    assert (recipe.originals, recipe.refused, recipe.cache_size) == ("link", "report", 5 << 30)
    first, second = recipe.sources
    assert (first.kind, first.place, first.latest) == ("index", "pip", 5)
    assert str(first.requirements[0].marker) == 'python_version >= "3.12"'
    assert (second.kind, second.place, second.requirements) == ("directory", str(tmp_path / "wheels"), ())
    (target,) = recipe.targets
    assert (target.name, target.prefixes, target.interpreter) == (
        "small",
        (str(tmp_path / "rocm"),),
        "/lib/ld.so",
    )
    options = target.options()
    assert (options.gpus, options.only_gpus) == (("RX 6750 XT",), ("gfx1100",))
    assert options.allow_missing == ("libx*",)
    assert options.profile == str(tmp_path / "mine.toml")
    assert options.allow_isa_gap


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('["3.11", "3.12"]', '["2.7"]', ':1: pythons[0]: a version such as "3.12" was expected, not "2.7"'),
        (
            "latest = 5",
            "latest = 0",
            ":8: sources[0].latest: a number of releases from 1 on was expected, not 0",
        ),
        ("latest = 5", "latest = true", ":8: sources[0].latest: a number of releases was expected, not true"),
        ("latest = 5", "lastest = 5", ":8: sources[0].lastest: no such key; did you mean latest?"),
        ('index = "pip"', 'index = "javascript:x"', ":6: sources[0].index:"),
        (
            '"demo>=1; python_version',
            '"demo>>1; python_version',
            ":7: sources[0].requirements[0]: no requirement",
        ),
        (
            'directory = "wheels"',
            "latest = 1",
            ":10: sources[1]: one of index, directory and lock was expected",
        ),
        ('directory = "wheels"', 'index = "pip"', ":10: sources[1]: the key requirements is missing"),
        ("[targets.small]", "[targets.All]", ":13: targets.All: a target's name"),
        ("[targets.small]", "[targets.files]", ":13: targets.files: a target's name"),
        ('"RX 6750 XT"', '"auto"', ":16: targets.small.gpus[0]: auto is the GPU of one machine"),
        ('"gfx1100"', '"auto"', ":17: targets.small.only-gpus[0]: auto is the GPU of one machine"),
        ('"RX 6750 XT"', '"RX 1"', ":16: targets.small.gpus[0]: --gpu RX 1: no target id"),
        ('prefixes = ["rocm"]\n', "", ":13: targets.small: the key prefixes is missing"),
    ],
)
def test_problems_have_a_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in RECIPE
    path = written(tmp_path, RECIPE.replace(old, new))
    with pytest.raises(UsageError) as caught:
        read_recipe(path)
    assert any(issue.startswith(f"{path}{said}") for issue in caught.value.issues), caught.value.issues


def test_all_problems_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_recipe(written(tmp_path, 'pythons = []\nsources = "x"\n'))
    assert len(caught.value.issues) == 3


def test_the_schema_is_one_and_means_the_same(tmp_path: Path) -> None:
    """What a general validator takes and refuses, so does relink's own."""
    validator = jsonschema.Draft202012Validator(load_schema("recipe"))
    validator.check_schema(load_schema("recipe"))
    good: dict[str, Any] = {
        "pythons": ["3.12"],
        "sources": [{"lock": "x"}],
        "targets": {"a": {"prefixes": ["/x"]}},
    }
    for key, value in (
        ("pythons", ["3.12", "3.12"]),
        ("sources", [{"lock": "x", "latest": 0}]),
        ("sources", [{"lock": "x", "latest": True}]),
        ("targets", {}),
        ("refused", "no"),
        ("cache-size", "5"),
    ):
        assert validator.is_valid(good)
        assert not validator.is_valid(good | {key: value})
        with pytest.raises(UsageError):
            read_recipe(written(tmp_path, toml(good | {key: value})))
    read_recipe(written(tmp_path, toml(good)))


def toml(data: dict[str, Any]) -> str:
    def value(item: Any) -> str:
        if isinstance(item, dict):
            return f"{{{', '.join(f'{key} = {value(one)}' for key, one in item.items())}}}"
        if isinstance(item, list):
            return f"[{', '.join(map(value, item))}]"
        return str(item).lower() if isinstance(item, bool) else repr(item).replace("'", '"')

    return "".join(f"{key} = {value(item)}\n" for key, item in data.items())
