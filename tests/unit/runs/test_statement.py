"""The statement of where an output comes from: as the specifications have it, right, the same again, and checked."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import relink
from relink.elf.patchelf import find_patchelf
from relink.planning.options import Options
from relink.report.model import Report
from relink.runs.statement import PREDICATE, STATEMENT, check_statement, make_statement, write_statement
from relink.system.errors import RelinkError, UsageError
from relink.system.shipped_files import load_schema
from tests.support.command import Run
from tests.support.wheels import changed
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
    write_statement(statement, tmp_path / "s.json")
    assert check_statement(tmp_path / "s.json", output(report)) == []


def test_nothing_was_written(works: Works, tmp_path: Path) -> None:
    options = works.options(tmp_path, dry_run=True)
    with pytest.raises(UsageError, match="nothing was written"):
        make_statement(relink.relink(works.small(tmp_path), options), options)


# Checking


@pytest.fixture
def written(made: tuple[Path, Report, Options], tmp_path: Path) -> Path:
    path = tmp_path / "statement.json"
    write_statement(make_statement(made[1], made[2]), path)
    return path


def test_it_agrees(made: tuple[Path, Report, Options], written: Path) -> None:
    assert check_statement(written, output(made[1])) == []


def test_fields_that_nobody_knows_are_passed_over(made: tuple[Path, Report, Options], written: Path) -> None:
    """In-toto's rule for readers; so are descriptors without a SHA-256."""
    statement = json.loads(written.read_text()) | {"more": 1}
    statement["subject"].insert(0, {"name": "x", "digest": {"gitCommit": "1"}})
    statement["predicate"]["buildDefinition"]["resolvedDependencies"] += [
        {"uri": "x:y"},
        3,
        {"digest": {"sha256": 3}},
    ]
    written.write_text(json.dumps(statement))
    assert check_statement(written, output(made[1])) == []


def edited(written: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    statement = copy.deepcopy(json.loads(written.read_text()))
    edit(statement)
    written.write_text(json.dumps(statement))


def without_input(statement: dict[str, Any]) -> None:
    statement["predicate"]["buildDefinition"]["resolvedDependencies"].pop(0)


def another_digest(name: str) -> Callable[[dict[str, Any]], object]:
    def edit(statement: dict[str, Any]) -> None:
        described(statement)[name]["digest"]["sha256"] = "0" * 64

    return edit


def output_digest(statement: dict[str, Any]) -> None:
    statement["subject"][0]["digest"]["sha256"] = "0" * 64


def plan_digest(statement: dict[str, Any]) -> None:
    statement["predicate"]["runDetails"]["byproducts"][0]["digest"]["sha256"] = "0" * 64


OTHER = "the statement is about another file"
DIFFERING: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another wheel": (output_digest, f"{OTHER} (demo-1.0+rocm7.2.4"),
    "no subject": (lambda it: it.update(subject=[]), f"{OTHER} (nothing)"),
    "a subject of another kind": (lambda it: it.update(subject={"x": 1}), f"{OTHER} (nothing)"),
    "another plan": (plan_digest, f"{PLAN}: its sha256 is "),
    "no plan": (lambda it: it["predicate"].pop("runDetails"), f"{PLAN}: its sha256 is "),
    "another input": (without_input, "the plan is for the wheel "),
    "another library": (another_digest("libdeep.so.1"), "libdeep.so.1: its sha256 is "),
}


@pytest.mark.parametrize("kind", DIFFERING)
def test_what_the_statement_does_not_say(
    made: tuple[Path, Report, Options], written: Path, kind: str
) -> None:
    edit, said = DIFFERING[kind]
    edited(written, edit)
    (found,) = check_statement(written, output(made[1]))
    assert (found.code, found.level) == ("RLK620", "error")
    assert said in f"{found.subject}: {found.message}"


def test_a_library_that_was_changed_or_removed(
    made: tuple[Path, Report, Options], written: Path, tmp_path: Path
) -> None:
    library = Path(made[2].prefixes[0]) / "lib" / "libdeep.so.1"
    kept = tmp_path / "kept"
    shutil.move(library, kept)
    try:
        (gone,) = check_statement(written, output(made[1]))
        os.mkfifo(library)
        (fifo,) = check_statement(written, output(made[1]))
        library.unlink()
        library.write_bytes(kept.read_bytes() + b"\0")
        (other,) = check_statement(written, output(made[1]))
    finally:
        library.unlink(missing_ok=True)
        shutil.move(kept, library)
    assert "it is not here to be compared" in gone.message
    assert "not a regular file" in fifo.message
    assert "its sha256 is" in other.message


def test_a_wheel_that_was_changed(made: tuple[Path, Report, Options], written: Path, tmp_path: Path) -> None:
    other = changed(output(made[1]), tmp_path / "other", {"demo/__init__.py": b"import evil\n"})
    (found,) = check_statement(written, other)
    assert "the statement is about another file" in found.message


@pytest.mark.parametrize("sysroot", ["/", "/nowhere"])
@pytest.mark.parametrize(
    ("path", "uri", "said"),
    [
        ("/\ud800", "file:///%3F", []),
        ("/\0", "file:///%00", ["embedded null byte"]),
    ],
)
def test_a_plan_with_paths_that_no_file_can_have(
    made: tuple[Path, Report, Options],
    written: Path,
    tmp_path: Path,
    sysroot: str,
    path: str,
    uri: str,
    said: list[str],
) -> None:
    """JSON can write them. Whoever made the wheel wrote the plan in it, and a statement that goes with it."""
    with zipfile.ZipFile(output(made[1])) as archive:
        plan = json.loads(archive.read(PLAN))
    plan["target"]["sysroot"] = sysroot
    plan["files"][0]["closure"] = [["libx.so", path]]
    for file in plan["files"][1:]:
        file["closure"] = []
    content = json.dumps(plan).encode()
    wheel = changed(output(made[1]), tmp_path / "other", {PLAN: content})

    def follow(statement: dict[str, Any]) -> None:
        statement["subject"][0]["digest"]["sha256"] = sha256(wheel)
        statement["predicate"]["runDetails"]["byproducts"][0]["digest"]["sha256"] = hashlib.sha256(
            content
        ).hexdigest()
        statement["predicate"]["buildDefinition"]["resolvedDependencies"].append(
            {"uri": uri, "digest": {"sha256": "0" * 64}}
        )

    edited(written, follow)
    found = [item.message for item in check_statement(written, wheel)]
    assert len(found) == len(said)
    assert all(reason in message for reason, message in zip(said, found, strict=True))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "is not a JSON object"),
        (b'{"payloadType": "application/vnd.in-toto+json", "payload": ""}', "a signed envelope"),
        (b'{"dsseEnvelope": {}}', "a signed envelope"),
        (b"{}", "_type is None"),
        (json.dumps({"_type": STATEMENT, "predicateType": "x"}).encode(), "predicateType is 'x'"),
        (json.dumps({"_type": STATEMENT, "predicateType": PREDICATE}).encode(), "another kind of build"),
    ],
)
def test_no_statement(made: tuple[Path, Report, Options], tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(UsageError) as error:
        check_statement(tmp_path / "x", output(made[1]))
    assert said in error.value.message


def test_no_file(made: tuple[Path, Report, Options], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "none", tmp_path, tmp_path / "fifo", Path("/dev/zero")):
        with pytest.raises(RelinkError, match="statement"):
            check_statement(path, output(made[1]))


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
    code, out, _ = run("verify", result, "--statement", tmp_path / "s.json")
    assert (code, "libhip.so.7 =>" in out) == (0, True)
    assert "agrees with the wheel; its signature was not looked at" in out
    code, out, _ = run("verify", wheel, "--statement", tmp_path / "s.json")
    assert code == 1
    assert "RLK620" in out
    assert "=>" not in out
    verdict, step, command = out.splitlines()[-3:]
    assert verdict.startswith(
        f"Differs from {tmp_path / 's.json'}, and ld.so was not asked: {wheel.name}: its sha256 is "
    )
    assert step.endswith("leave --statement out:")
    assert command == f"    relink verify {wheel}"
    code, out, _ = run("verify", wheel, "--statement", tmp_path / "s.json", "--json")
    assert (json.loads(out)["target"], json.loads(out)["findings"][0]["code"]) == (None, "RLK620")


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
