"""The examples' READMEs: their commands print what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.conftest import linked
from tests.support import transcripts
from tests.support.built import ROOT
from tests.support.cc import compiler
from tests.support.debian import same_rocm


def _holds(readme: str, directory: Path, environment: dict[str, str]) -> None:
    text = (ROOT / "examples" / readme).read_text(encoding="utf-8")
    if (directory / "rocm").exists():
        same_rocm(directory / "rocm", text)
    asked = transcripts.commands(text)
    results = transcripts.run(asked, directory, environment)
    for command, result in zip(asked, results, strict=False):
        assert result.code == 0, f"{readme}:{command.line}: {command.text}\n{result.output}"
        assert transcripts.show(result.output) == command.shown, f"{readme}:{command.line}"
    assert asked
    assert len(results) == len(asked)


@pytest.mark.real
def test_jax_on_debians_rocm(
    beside: Path, environment: dict[str, str], jax_plugin_wheel: Path, small_prefix: Path
) -> None:
    (beside / "rocm").mkdir()
    linked(small_prefix, beside / "rocm/usr")
    found = f"{environment.get('PIP_FIND_LINKS', '')} {jax_plugin_wheel.parent}".strip()
    _holds("jax-debian-rocm/README.md", beside, environment | {"PIP_FIND_LINKS": found})


def test_a_program_and_its_libraries(beside: Path, environment: dict[str, str]) -> None:
    _holds("programs/README.md", beside, {**environment, "CC": compiler()[0]})


@pytest.mark.real
def test_relink_as_a_library(
    beside: Path, environment: dict[str, str], jax_plugin_wheel: Path, small_prefix: Path
) -> None:
    (beside / "rocm").mkdir()
    linked(small_prefix, beside / "rocm/usr")
    (beside / jax_plugin_wheel.name).symlink_to(jax_plugin_wheel)
    _holds("python-api/README.md", beside, environment)


@pytest.mark.real
def test_coverage_of_a_release(beside: Path, environment: dict[str, str], bitsandbytes_wheel: Path) -> None:
    (beside / bitsandbytes_wheel.name).symlink_to(bitsandbytes_wheel)
    _holds("ci/README.md", beside, environment)


def test_every_example_is_described() -> None:
    table = (ROOT / "examples/README.md").read_text(encoding="utf-8")
    for directory in (
        path for path in (ROOT / "examples").iterdir() if path.is_dir() and path.name != "__pycache__"
    ):
        assert (directory / "README.md").is_file(), directory
        assert f"[{directory.name}]({directory.name})" in table
