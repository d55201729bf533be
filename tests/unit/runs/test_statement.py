"""The statement of where an output comes from: as the specifications have it, right, and the same again."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import relink
from relink.elf.patchelf import find_patchelf
from relink.planning.options import Options
from relink.report.model import Report
from relink.runs.statement import PREDICATE, STATEMENT, make_statement
from relink.system.errors import UsageError
from relink.system.shipped_files import load_schema
from tests.support.command import Run
from tests.support.works import Works

SCHEMA = load_schema("statement")
PLAN = "demo-1.0+rocm7.2.4.dist-info/relink.json"


def sha256(path: Path | str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def made(works: Works, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report, Options]:
    """A wheel, the report of relinking it against a ROCm of its own, and the options."""
    place = tmp_path_factory.mktemp("statement")
    shutil.copytree(works.prefix, place / "rocm")
    options = replace(
        works.options(place / "out", allow_missing=("x*",)), prefixes=(str(place / "rocm"),), epoch=5
    )
    vendor = works.wheel(place)
    return vendor, relink.relink(vendor, options), options


def output(report: Report) -> Path:
    assert report.output is not None
    return Path(report.output.path)


def described(statement: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["name"]: item for item in statement["predicate"]["buildDefinition"]["resolvedDependencies"]}


def test_it_is_what_the_specifications_ask_for(made: tuple[Path, Report, Options]) -> None:
    vendor, report, options = made
    statement = make_statement(report, options)
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(json.loads(json.dumps(statement)), SCHEMA)
    assert (statement["_type"], statement["predicateType"]) == (STATEMENT, PREDICATE)
    assert statement["subject"] == [
        {"name": output(report).name, "digest": {"sha256": sha256(output(report))}}
    ]
    build = statement["predicate"]["buildDefinition"]
    assert build["externalParameters"] == {
        "wheel": vendor.name,
        "options": {"prefixes": [options.prefixes[0]], "allow_missing": ["x*"], "epoch": 5},
    }
    assert described(statement)[vendor.name]["digest"]["sha256"] == sha256(vendor)
    run = statement["predicate"]["runDetails"]
    (patchelf,) = run["builder"]["builderDependencies"]
    assert patchelf["digest"]["sha256"] == sha256(find_patchelf().path)
    assert run["builder"]["version"]["patchelf"] == str(find_patchelf().version)
    (plan,) = run["byproducts"]
    assert plan["name"] == PLAN


def test_the_fingerprint_of_a_provider_is_what_sha256sum_prints(made: tuple[Path, Report, Options]) -> None:
    _, report, options = made
    statement = make_statement(report, options)
    prefix = options.prefixes[0]
    libraries = [f"{prefix}/lib/libdeep.so.1", f"{prefix}/lib/libhip.so.7"]
    assert set(described(statement)) == {
        report.wheel.path,
        f"provider {prefix}",
        "libdeep.so.1",
        "libhip.so.7",
    }
    printed = subprocess.run(["sha256sum", *libraries], capture_output=True, check=True).stdout
    provider = described(statement)[f"provider {prefix}"]
    assert provider["digest"]["sha256"] == hashlib.sha256(printed).hexdigest()
    assert provider["annotations"] == {"kind": "prefix", "libraries": 2, "rocm": "7.2.4"}


@pytest.mark.slow(reason="two runs")
def test_the_same_again(made: tuple[Path, Report, Options], tmp_path: Path) -> None:
    """No time, no directory of the output, nothing of the process."""
    vendor, report, options = made
    again = replace(options, output_directory=tmp_path / "elsewhere", jobs=1)
    assert make_statement(relink.relink(vendor, again), again) == make_statement(report, options)


def test_a_wheel_that_needed_no_change(works: Works, tmp_path: Path) -> None:
    wheel = works.wheel(tmp_path, {"demo/plain.so": works.plain})
    options = works.options(tmp_path / "out")
    report = relink.relink(wheel, options)
    statement = make_statement(report, options)
    jsonschema.validate(json.loads(json.dumps(statement)), SCHEMA)
    assert statement["subject"][0]["digest"]["sha256"] == sha256(wheel)
    assert statement["predicate"]["runDetails"]["byproducts"] == []


def test_nothing_was_written(works: Works, tmp_path: Path) -> None:
    options = works.options(tmp_path, dry_run=True)
    with pytest.raises(UsageError, match="nothing was written"):
        make_statement(relink.relink(works.small(tmp_path), options), options)


# The commands


def test_the_commands(works: Works, run: Run, tmp_path: Path) -> None:
    wheel = works.small(tmp_path)
    code, out, _ = run(
        wheel, "--prefix", works.prefix, "-o", tmp_path / "out", "--statement", tmp_path / "s.json"
    )
    assert code == 0
    assert f"statement: {tmp_path / 's.json'}" in out
    (result,) = (tmp_path / "out").iterdir()
    jsonschema.validate(json.loads((tmp_path / "s.json").read_text()), SCHEMA)
    # As docs/statement.md has it.
    row = "jq -r '.subject[0] | .digest.sha256 + \"  \" + .name'"
    assert row in (Path(__file__).parents[3] / "docs/statement.md").read_text(encoding="utf-8")
    statement = json.loads((tmp_path / "s.json").read_text())
    assert statement["subject"] == [{"name": result.name, "digest": {"sha256": sha256(result)}}]


def test_where_it_goes(works: Works, run: Run, tmp_path: Path) -> None:
    wheel = works.small(tmp_path)
    common = (wheel, "--prefix", works.prefix, "-o", tmp_path / "out")
    code, _, err = run(*common, "--statement", tmp_path / "none" / "s.json")
    assert (code, (tmp_path / "out").exists()) == (2, False)
    assert "there is no directory" in err
    code, _, err = run(*common, wheel, "--statement", tmp_path / "s.json")
    assert code == 2
    assert "name a directory for those of 2" in err
    code, _, _ = run(*common, "--statement", tmp_path, "-q")
    assert code == 0
    assert (tmp_path / f"{wheel.stem}.intoto.json").is_file()
    code, _, _ = run(*common, "--dry-run", "--statement", tmp_path / "dry.json")
    assert (code, (tmp_path / "dry.json").exists()) == (0, False)
