"""The table of options, and what has to agree with it: the sandbox, settings, recipes, the GitHub Action."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from relink.cli.options import list_option_names
from relink.indexes.build.recipe import IndexTarget
from relink.planning.options import (
    LINK,
    Option,
    Options,
    list_deciding_words,
    list_words,
    option_table,
    parse_mebibytes,
)
from relink.system.errors import UsageError
from relink.system.sandbox.start import MODES
from relink.system.shipped_files import load_schema
from tests.support.built import ROOT

TABLE = option_table(Options)
ALL = Options(
    prefixes=["/rocm"],
    allow_missing=["a*", "b*"],
    substitute=["c=d"],
    assume_symbols=["e"],
    preload=["f"],
    stub=["auto"],
    clear_execstack=["demo/*.so"],
    preload_known=False,
    keep_version=True,
    requires=True,
    search_path="rpath",
    profile="dir/p.toml",
    local_version="mine",
    verify=False,
)


def test_every_field_is_an_option_or_comes_from_the_process() -> None:
    assert {entry.name for entry in fields(Options)} - TABLE.keys() == {
        "epoch",
        "command",
        "requested_gpus",
        "several",
        "kept_gpus",
    }


def test_what_decides_is_written_in_the_order_of_saved_plans() -> None:
    words = (
        "--allow-missing a* --allow-missing b* --clear-execstack demo/*.so --substitute c=d --assume-symbols e "
        "--preload f --stub auto "
    )
    words += (
        "--no-preload --keep-version --requires --search-path rpath --profile p.toml --local-version mine"
    )
    assert list_deciding_words(ALL) == tuple(words.split())
    assert list_deciding_words(Options(prefixes=["/x"], profile="")) == ()


def test_words_of_a_command() -> None:
    assert list_words(ALL, ["verify", "prefixes", "python"]) == ["--no-verify", "--prefix", "/rocm"]


def test_the_sandbox_has_these_modes() -> None:
    assert TABLE["sandbox"].choices == MODES


def test_settings_are_options() -> None:
    settings = load_schema("settings")["properties"]
    assert {option.setting for option in TABLE.values() if option.setting} == settings.keys()
    for option in TABLE.values():
        if option.setting:
            assert f"As {option.names[0]}" in settings[option.setting]["description"]
            assert "run" in option.commands


def test_a_recipe_sets_options() -> None:
    keys = load_schema("recipe")["$defs"]["target"]["properties"]
    assert [name.replace("_", "-") for name in IndexTarget.__struct_fields__] == ["name", *keys]
    target = IndexTarget("one", ("/x",), stub=("auto",), profile="p")
    options = target.options(Path("/out"))
    assert (options.prefixes, options.stub, options.profile) == (("/x",), ("auto",), "p")
    assert (options.output_directory, options.allow_isa_gap, options.jobs) == (Path("/out"), True, 1)


def test_the_action_passes_options() -> None:
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    words = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)) - {"--quiet", "--disable-pip-version-check"}
    assert {"--prefix", "--gpu", "--output"} < words <= list_option_names("run")


@dataclass(frozen=True)
class Sample:
    """Two options, and a field that is none."""

    first_word: str | None = Option(("run",), LINK, "A word.").field(None)
    second: bool = Option(("run",), LINK, "A flag.", ("--other", "-o")).field(True)
    third: int = 3


def test_a_field_names_its_option() -> None:
    assert {name: option.names for name, option in option_table(Sample).items()} == {
        "first_word": ("--first-word",),
        "second": ("--other", "-o"),
    }
    assert Sample() == Sample(None, True, 3)


def test_mebibytes() -> None:
    assert (parse_mebibytes(None), parse_mebibytes(300)) == (None, 300 << 20)


def test_the_output_is_no_wheel() -> None:
    with pytest.raises(UsageError, match=r"-o dist/out\.whl: the name of a wheel; .*: -o dist/out$"):
        Options(output_directory=Path("dist/out.whl"))


def test_a_program_may_name_the_output_by_text() -> None:
    named = Options(output_directory="out")  # type: ignore[arg-type]
    assert (named.output_directory, named.output_place) == (Path("out"), Path("out"))
