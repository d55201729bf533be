"""The text that is emitted, evaluated by Nix: packages, and hostile names, which come back as they were."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from relink.report.nix.emit import nix_attribute, nix_comment, nix_string, package_nix, write_package
from relink.report.nix.model import About, File, PathEntry, Replaced, RunPath, Source, plan_json
from relink.system.errors import UsageError
from tests.nix.conftest import ROOT, Nix
from tests.support.amount import amount
from tests.unit.report.nix.packages import PACKAGES, PLAIN

HOSTILE = [
    "'",
    "''",
    '"',
    "${x}",
    "$${x}",
    "$",
    "\\",
    "\\${",
    " ",
    "a b",
    "%2B",
    "\n",
    "\r\n",
    "\t",
    "''${",
    "let",
    "-x",
    "é→",
]
WORDS = st.one_of(
    st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=4).map("".join),
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=12),
)
SETTINGS = settings(
    max_examples=amount(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.parametrize("name", PACKAGES)
def test_golden_files_evaluate(nix: Nix, tmp_path: Path, name: str) -> None:
    written = write_package([PACKAGES[name]], tmp_path)
    for path in (*written[:1], *(tmp_path / "relink").glob("*.nix")):
        nix.run("nix-instantiate", "--parse", path)
    call = f"(import {written[0]} {{ inherit ({nix.packages()}) lib; relinkWheel = a: a; callPackage = null; numpy = "
    given = (
        'packaging = "pk"; '
        if name == "plain"
        else 'python.pkgs."3to2" = "two"; jax-rocm7-pjrt = "pjrt"; jaxlib = "jl"; '
    )
    found = nix.value(f'{call} "np"; {given} }})')
    assert found["plan"].endswith("demo.json")
    assert found["dependencies"] == (["np", "pk"] if name == "plain" else ["two", "np", "pjrt"])
    assert found["pythonImportsCheck"] == ["demo"]
    assert found.get("gpuTargets") == (["gfx1030", "gfx1100"] if name == "plain" else None)
    assert found.get("sameVersion") == (None if name == "plain" else ["jl", "pjrt"])
    assert "extraLibraries" in found
    licences = [{"spdxId": "MIT"}, {"spdxId": "Apache-2.0"}, {"spdxId": "0BSD"}]
    assert found["meta"] == (
        {
            "description": "Demonstration",
            "homepage": "https://example.org",
            "changelog": "https://example.org/changes",
            "license": {"spdxId": "MIT"},
            "maintainers": [],
            "mainProgram": "demo",
        }
        if name == "plain"
        else {"description": 'With "quotes"', "license": licences, "maintainers": []}
    )


@SETTINGS
@given(st.lists(WORDS, min_size=1, max_size=25, unique=True))
@example(HOSTILE)
def test_strings_and_attributes_come_back(nix: Nix, words: list[str]) -> None:
    strings = " ".join(nix_string(word) for word in words)
    attributes = "".join(f"{nix_attribute(word)} = 1; " for word in words)
    comments = "".join(f"# {nix_comment(word)}\n" for word in words)
    found = nix.value(f"{comments}{{ s = [ {strings} ]; a = builtins.attrNames {{ {attributes} }}; }}")
    assert found["s"] == words
    assert sorted(found["a"]) == sorted(words)


@pytest.mark.parametrize("text", ["a\0b", "\udc80"])
def test_what_nix_cannot_say(text: str) -> None:
    with pytest.raises(UsageError, match="cannot be said in Nix"):
        nix_string(text)


@SETTINGS
@given(WORDS, WORDS, WORDS)
@example('it\'s ${x} "q"', "''", "lib x.so.1\n")
def test_the_plan_reaches_the_shell_as_it_is(nix: Nix, path: str, old: str, new: str) -> None:
    """Through JSON, Nix and bash: the functions get what the plan says, character by character."""
    package = replace(
        PLAIN,
        source=Source("n", "h", url="u"),
        libraries=(),
        undefined=(old,),
        missing=(new,),
        files=(
            File(
                "site-packages",
                path,
                RunPath("rpath", (PathEntry(text=new),)),
                (Replaced(old, new),),
                (old,),
                (new, old),
            ),
        ),
    )
    plan = nix.root / "hostile.json"
    plan.write_text(plan_json(package))
    shell = nix.value(
        f"let pkgs = {nix.packages()}; in (import {ROOT}/nix/resolve.nix {{ inherit (pkgs) lib stdenv; inherit pkgs; "
        f"rocmPackages = {{ }}; }} {{ plan = {plan}; }}).shell"
    )
    record = "relinkOriginal() { :; }; relinkSeal() { :; }; relinkUnchanged() { :; }; "
    record += r'say() { printf "%s\0" "$#" "$@"; }; relinkPatch() { say patch "$@"; }; relinkAdd() { say add "$@"; }; '
    record += r'relinkDryRun() { say "${@:2}" "${relinkUndefined[@]}" "${relinkMissing[@]}"; }; '
    run = subprocess.run(
        ["bash", "-c", f"{record}{shell}\nrelinkEdits; relinkChecks"], capture_output=True, check=True
    )
    said = run.stdout.decode().split("\0")[:-1]
    calls = []
    while said:
        count = int(said[0])
        calls.append(said[1 : 1 + count])
        said = said[1 + count :]
    where = ["site-packages", path]
    assert calls == [
        ["patch", *where, "--remove-needed", old, "--replace-needed", old, new],
        ["add", *where, new, old],
        ["patch", *where, "--force-rpath", "--set-rpath", new],
        [*where, old, new],
    ]


@SETTINGS
@given(st.lists(WORDS, max_size=4), st.lists(WORDS, max_size=4), WORDS)
def test_a_whole_package_of_hostile_names(nix: Nix, gpus: list[str], imports: list[str], name: str) -> None:
    package = replace(
        PLAIN,
        gpus=tuple(gpus),
        imports=tuple(imports),
        about=About(name, name, "MIT", name, name),
        dependencies=(),
        source=Source(name, "h", url="u"),
        libraries=(("extraLibraries.x", (name,)),),
    )
    (nix.root / "demo.json").touch()
    path = nix.root / "hostile.nix"
    path.write_text(package_nix([package]), encoding="utf-8")
    found = nix.value(f"import {path} {{ lib.licenses.mit = 1; relinkWheel = a: a; callPackage = null; }}")
    assert {found["meta"][key] for key in ("description", "homepage", "changelog", "mainProgram")} == {name}
    assert found.get("gpuTargets", []) == gpus
    assert found.get("pythonImportsCheck", []) == imports
