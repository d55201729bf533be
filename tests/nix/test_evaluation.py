"""What fails at evaluation, each with its sentence; and the GPU table, compared with relink's own rules."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from relink.gpu import table
from relink.gpu.amd.target_id import CodeTarget, match, parse_target_id
from tests.nix.conftest import PYTHON, ROOT, Nix
from tests.nix.test_build import package, write
from tests.support.cc import shared

CODE = {
    "path": "demo/a.so",
    "sets": [[{"target": "gfx1030", "version": None}, {"target": "gfx90a:xnack+", "version": None}]],
}


@pytest.fixture
def made(in_store: Nix, vendor_wheel: Path, tmp_path: Path) -> Path:
    assert in_store.root.is_dir()
    write(vendor_wheel, tmp_path / "out")
    return tmp_path / "out"


def change(directory: Path, **more: Any) -> None:
    plan = directory / "demo.json"
    plan.write_text(json.dumps(json.loads(plan.read_text()) | more))


def refused(nix: Nix, directory: Path, more: str = "{ }", **arguments: str) -> str:
    run = nix.eval(f"({package(nix, directory, more, **arguments)}).drvPath", check=False)
    assert run.returncode != 0, "it was expected to fail"
    return run.stderr


def printed(nix: Nix, said: str, sentence: str) -> None:
    """`sentence` was printed, and examples/nix/README.md has it as it was: NAME.whl for the wheel, … for a store path."""
    plain = re.sub(r"file://\S+/demo-1\.0-[^\s/]+\.whl", "…/NAME.whl", said)
    plain = re.sub(rf"{nix.root}/store/[^\s)]*", "…", re.sub(r"demo-1\.0-[^\s/]+\.whl", "NAME.whl", plain))
    assert sentence.replace("`", "") in " ".join(plain.replace("`", "").split())
    documented = " ".join((ROOT / "examples" / "nix" / "README.md").read_text().replace("`", "").split())
    assert f"| {sentence.replace('`', '')} |" in documented


def test_a_missing_attribute(in_store: Nix, made: Path) -> None:
    printed(
        in_store,
        refused(in_store, made, without='[ "rocm-smi" ]'),
        "relink: NAME.whl: there is no rocmPackages.rocm-smi (ROCm 7.2.4), which is to have librocm_smi64.so.1; use a nixpkgs "
        "that has it, or pass extraLibraries.rocm-smi = a package with the library in lib/, or make the package anew: "
        "relink nix NAME.whl --url …/NAME.whl --rocm-major 7 -o DIR",
    )
    given = f"{{ extraLibraries.rocm-smi = {in_store.packages()}.rocmPackages.rocm-smi; }}"
    assert in_store.build(package(in_store, made, given, without='[ "rocm-smi" ]')).is_dir()


def test_another_rocm(in_store: Nix, made: Path) -> None:
    printed(
        in_store,
        refused(in_store, made, rocmVersion='"8.0.0"'),
        "relink: NAME.whl: the plan is for ROCm 7, rocmPackages has ROCm 8.0.0; use a wheel that was built for "
        "that, or if there is none, make the package anew: `relink nix NAME.whl --url …/NAME.whl --rocm-major 8 -o DIR`",
    )


def test_another_system(in_store: Nix, made: Path) -> None:
    printed(
        in_store,
        refused(in_store, made, system='"aarch64-linux"'),
        "relink: NAME.whl: the wheel is for x86_64-linux, the package set is for aarch64-linux",
    )


def test_a_name_that_nixpkgs_gave_up(in_store: Nix, made: Path) -> None:
    """It throws there: what is said is relink's sentence, with the libraries and the way out."""
    plan = (made / "demo.json").read_text().replace("rocmPackages.rocm-smi", "rocmPackages.rocm-thunk")
    (made / "demo.json").write_text(plan)
    said = refused(in_store, made)
    assert "there is no rocmPackages.rocm-thunk (ROCm 7.2.4), which is to have librocm_smi64.so.1" in said


def test_a_proved_plan_is_made_anew_with_the_packages(in_store: Nix, made: Path) -> None:
    change(made, proved=True)
    said = refused(in_store, made, rocmVersion='"8.0.0"')
    for name in ("clr", "rocm-smi"):
        assert f"--nix-closure $(nix-build --no-out-link '<nixpkgs>' -A rocmPackages.{name})" in said


def test_another_python(in_store: Nix, made: Path) -> None:
    change(made, python="3.99")
    message = refused(in_store, made).replace(PYTHON, "3.11")
    printed(
        in_store,
        message,
        "relink: NAME.whl: the wheel is for Python 3.99, the package set has Python 3.11; use python399Packages, or take the "
        "wheel for the other (`relink fetch demo==1.0 --python python3.11`) and make the package anew: "
        "`relink nix WHEEL --rocm-major 7 -o DIR`",
    )


@pytest.mark.parametrize(
    ("plan", "package_set", "wheel"),
    [
        ({"schema": "relink.nix/99"}, {}, "NAME.whl"),
        ({}, {"without": '[ "rocm-smi" ]'}, "NAME.whl --url file:///NAME.whl"),
        ({}, {"rocmVersion": '"8.0.0"'}, "NAME.whl --url file:///NAME.whl"),
        ({"python": "3.99"}, {}, "WHEEL"),
        ({"coverage": [CODE]}, {"localGpuTargets": '[ "gfx1031" ]'}, "WHEEL"),
    ],
)
def test_what_a_new_nixpkgs_breaks_names_the_command(
    in_store: Nix, made: Path, plan: dict[str, Any], package_set: dict[str, str], wheel: str
) -> None:
    """With the options that the plan was made with."""
    change(made, **plan, again="--allow-missing 'a b'")
    said = refused(in_store, made, **package_set)
    said = re.sub(r"demo-1\.0-[^\s/]+\.whl", "NAME.whl", re.sub(r"file:///\S+/demo", "file:///demo", said))
    options = "" if "schema" in plan else " --allow-missing 'a b' --rocm-major [78]"
    assert re.search(f"make the package anew[^`]*: `relink nix {wheel}{options} -o DIR`", said), said


def test_a_python_that_none_of_the_plans_is_for(in_store: Nix, made: Path) -> None:
    path = made / "package.nix"
    path.write_text(path.read_text().replace("plan = ./demo.json", 'plans."3.99" = ./demo.json'))
    said = refused(in_store, made)
    assert f"there is a plan for Python 3.99, and this package set has Python {PYTHON}" in said
    assert re.search(r"make the package anew with .*: `relink nix demo-1\.0-\S+\.whl WHEEL -o DIR`", said)


def test_a_plan_of_another_kind(in_store: Nix, made: Path) -> None:
    change(made, schema="relink.nix/99")
    assert "none of the kind that this relink reads" in refused(in_store, made)


@pytest.mark.parametrize(
    ("gpu", "fits"), [("gfx1031", False), ("gfx1030", True), ("gfx90a", True), ("gfx90a:xnack-", False)]
)
def test_gpus_of_the_package_set(in_store: Nix, made: Path, gpu: str, fits: bool) -> None:
    change(made, coverage=[CODE])
    built_for = f'[ "{gpu}" ]'
    if fits:
        in_store.eval(f"({package(in_store, made, localGpuTargets=built_for)}).drvPath")
        return
    printed(
        in_store,
        refused(in_store, made, localGpuTargets=built_for).replace(
            f"no code for {gpu} ", "no code for gfx1031 "
        ),
        "relink: NAME.whl: no code for gfx1031 in demo/a.so, which has gfx1030, gfx90a:xnack+; choose a release of the wheel "
        "that has it and make the package anew: `relink nix WHEEL --rocm-major 7 -o DIR`; or gpuTargets = [ ] to build all the "
        "same",
    )


def told(nix: Nix, directory: Path, more: str = "{ }", **arguments: str) -> str:
    return nix.eval(f"({package(nix, directory, more, **arguments)}).drvPath").stderr


def test_a_family_needs_one_member(in_store: Nix, made: Path, vendor_wheel: Path) -> None:
    """`rocmPackages.gfx11`: its user has one of these, so what the wheel lacks is told and no more."""
    change(made, coverage=[CODE])
    said = told(in_store, made, localGpuTargets='[ "gfx1030" "gfx1100" "gfx1102" ]')
    assert "no code for gfx1100, gfx1102, which ROCm was built for beside" in said
    assert "no code for" not in told(in_store, made, localGpuTargets='[ "gfx1030" "gfx90a" ]')
    none = refused(in_store, made, localGpuTargets='[ "gfx1100" "gfx1102" ]')
    assert "no code for gfx1100 in demo/a.so" in none
    write(vendor_wheel, made, "--gpu", "gfx1030", "--gpu", "gfx1100")
    change(made, coverage=[CODE])
    explicit = refused(in_store, made)
    assert "no code for gfx1100 in demo/a.so" in explicit


def test_related_gpus_with_nixpkgs_hip(in_store: Nix, made: Path) -> None:
    """It takes gfx1030's code on gfx1031 by a patch, but for compressed code; another ROCm does not."""
    change(made, coverage=[CODE])
    said = told(in_store, made, localGpuTargets='[ "gfx1031" ]', gpuTargets='[ "gfx1030" ]')
    assert "no code for gfx1031; nixpkgs' HIP takes that for gfx1030 there, by a patch" in said
    change(made, coverage=[CODE | {"compressed": True}])
    assert "no code for gfx1031 in" in refused(
        in_store, made, localGpuTargets='[ "gfx1031" ]', gpuTargets='[ "gfx1030" ]'
    )


def test_of_variants_one_is_enough(in_store: Nix, made: Path) -> None:
    newer = {"path": "demo/b.so", "sets": [[{"target": "gfx1100", "version": None}]]}
    change(made, coverage=[CODE | {"variant": True}, newer | {"variant": True}])
    assert "no code" not in told(in_store, made, localGpuTargets='[ "gfx1100" ]')
    assert "no code for gfx1200" in refused(in_store, made, localGpuTargets='[ "gfx1200" ]')
    change(made, coverage=[CODE | {"variant": True}, newer])
    assert "no code for gfx1030" in refused(in_store, made, localGpuTargets='[ "gfx1030" ]')


def test_gpus_of_the_package_come_before_those_of_the_set(
    in_store: Nix, vendor_wheel: Path, tmp_path: Path
) -> None:
    write(vendor_wheel, tmp_path / "out", "--gpu", "RX 6750 XT")
    change(tmp_path / "out", coverage=[CODE])
    assert "no code for gfx1031" in refused(in_store, tmp_path / "out", localGpuTargets='[ "gfx1030" ]')


def test_compatibility_is_that_of_relink(nix: Nix) -> None:
    """Every processor, with and without features, against every sort of code object."""
    agents = [*table().processors, "gfx90a:xnack+", "gfx90a:sramecc+:xnack-", "gfx9999"]
    codes: list[list[tuple[str, int | None]]] = [
        [("gfx90a:xnack-", None)],
        [("gfx90a:xnack+", None), ("gfx90a:xnack-", None)],
        [("amdgcnspirv", None)],
    ]
    codes += [[(name, version)] for name in table().generics for version in (None, 0, 1)]
    codes += [[(name, None)] for name in itertools.islice(table().processors, 0, None, 5)]
    sets = [[{"target": name, "version": version} for name, version in code] for code in codes]
    expected = [
        [
            bool(match([CodeTarget(parse_target_id(n), v) for n, v in code], parse_target_id(agent)).served)
            for code in codes
        ]
        for agent in agents
    ]
    data = nix.root / "sets.json"
    data.write_text(json.dumps({"agents": agents, "files": [{"sets": [one]} for one in sets]}))
    found = nix.value(
        f"let d = builtins.fromJSON (builtins.readFile {data}); "
        f"isa = import {ROOT}/nix/isa.nix {{ inherit ({nix.packages()}) lib; }}; "
        "in map (a: map (f: isa.covers f a) d.files) d.agents"
    )
    assert found == expected
    assert {True, False} == {value for row in expected for value in row}


def test_a_dry_run_that_fails_fails_the_build(in_store: Nix, made: Path) -> None:
    """Another ROCm under the right names: the symbol is not there, so the build stops, and it says which."""
    rocm = {
        **in_store.tools["rocm"],
        "clr": {"libamdhip64.so.7": {"source": "int other(void){return 1;}", "needs": []}},
    }
    printed(
        in_store,
        _fails(in_store.with_tools(rocm=rocm), made),
        "relink: demo/a.so: undefined symbol: hip_init (…)",
    )
    said = _fails(in_store.with_tools(rocm=rocm), made)
    assert re.search(r"relink: make the package anew, .*: `relink nix demo-\S+\.whl --url .* -o DIR`", said)


def test_a_library_that_is_not_there_fails_the_build(in_store: Nix, made: Path) -> None:
    rocm = {**in_store.tools["rocm"], "rocm-smi": {"librocm_smi64.so.2": {"source": "int a;", "needs": []}}}
    printed(
        in_store,
        _fails(in_store.with_tools(rocm=rocm), made),
        "relink: demo/a.so: librocm_smi64.so.1 => not found",
    )


def test_a_library_from_elsewhere_fails_the_build(in_store: Nix, made: Path, tmp_path: Path) -> None:
    """It is found, by the way that it happens by: a search path in a library of the package set that leaves the store."""
    away = shared(tmp_path / "away" / "libaway.so.1", "int away(void){return 1;}")
    outside = shared(
        tmp_path / "libamdhip64.so.7",
        "int hip_init(void){return 1;}",
        needed=[away],
        flags=[f"-Wl,-rpath,{away.parent}"],
    )
    smi = {name: facts for name, facts in in_store.tools["rocm"].items() if name == "rocm-smi"}
    nix = in_store.with_tools(rocm=smi, copied={"clr": {"files": {outside.name: str(outside)}}})
    said = _fails(nix, made).replace(str(away), "…")
    printed(
        in_store, re.sub(r"… \(0x.*\)", "…", said), "relink: demo/a.so: not from the store: libaway.so.1 => …"
    )


def _fails(nix: Nix, directory: Path) -> str:
    run = nix.run("nix-build", "--no-out-link", "--expr", package(nix, directory), check=False)
    assert run.returncode != 0
    return run.stderr
