"""`relink.lib.dropIn`: relinked wheels in the places of nixpkgs' own packages, as what depends on those sees them."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from relink.elf.image import read_image
from relink.system.safe_open import map_file
from tests.nix.conftest import C_CLR, PYTHON, ROOT, Nix
from tests.nix.test_build import check_loads, stores, write
from tests.support.cc import shared
from tests.support.wheels import make_wheel
from tests.support.works import TAG

Members = dict[str, bytes | Path]
SITE = f"lib/python{PYTHON}/site-packages"


@pytest.fixture
def hip(tmp_path: Path) -> Path:
    return shared(tmp_path / "vendor" / "libamdhip64.so.7", C_CLR)


def dropped(nix: Nix, **directories: Path) -> str:
    """The set of Python packages with the packages of `directories` in it, as a nixpkgs with the overlay has it."""
    rows = "".join(f'"{name.replace("_", "-")}" = {path}/package.nix; ' for name, path in directories.items())
    return (
        f"(let pkgs = {nix.packages()}; flake = (import {ROOT}/flake.nix).outputs "
        "{ self = { }; nixpkgs.legacyPackages.x86_64-linux = pkgs; }; "
        f"overlay = flake.lib.dropIn {{ {rows}}} pkgs pkgs; "
        "in pkgs.python3Packages.overrideScope (builtins.head overlay.pythonPackagesExtensions))"
    )


def unmet(requirements: Sequence[str], *places: Path) -> list[str]:
    """What pythonRuntimeDepsCheckHook of nixpkgs says of the requirements in a wheel, with these packages at hand.

    (pkgs/development/interpreters/python/hooks: each requirement is looked up by importlib.metadata, its version is compared.)
    """
    said = []
    for requirement in map(Requirement, requirements):
        found = list(
            importlib.metadata.distributions(
                name=requirement.name, path=[str(place / SITE) for place in places]
            )
        )
        if not found:
            said.append(f"{requirement.name} not installed")
        elif not requirement.specifier.contains(found[0].version, prereleases=True):
            said.append(f"{requirement} not satisfied by version {found[0].version}")
    return said


def test_what_depends_on_onnxruntime_finds_it(in_store: Nix, hip: Path, tmp_path: Path) -> None:
    """Dependents are checked against METADATA: by its own name the wheel is not what they ask for."""
    library = shared(
        tmp_path / "a.so", "extern int hip_init(void); int g(void){return hip_init();}", needed=[hip]
    )
    members: Members = {"onnxruntime/__init__.py": b"", "onnxruntime/capi/a.so": library}
    wheel = make_wheel(tmp_path / "wheel", members, name="onnxruntime_rocm", version="1.22.2.post3", tag=TAG)
    write(wheel, tmp_path / "out")
    plain = in_store.build(
        f"{in_store.packages()}.python3Packages.callPackage {tmp_path}/out/package.nix {{ }}"
    )
    asked = ("onnxruntime>=1.17", "onnxruntime==1.22.*")
    assert unmet(asked, plain) == ["onnxruntime not installed"] * 2
    built = in_store.build(f"{dropped(in_store, onnxruntime=tmp_path / 'out')}.onnxruntime")
    assert unmet(asked, built) == []
    assert unmet(["onnxruntime>=1.23"], built) == ["onnxruntime>=1.23 not satisfied by version 1.22.2.post3"]
    (found,) = importlib.metadata.distributions(name="onnxruntime", path=[str(built / SITE)])
    assert all(Path(str(path.locate())).exists() for path in found.files or ())
    assert in_store.references(built) == set(stores(in_store, "rocmPackages.clr"))


@pytest.fixture
def torch(in_store: Nix, hip: Path, tmp_path: Path) -> Path:
    """A package of a wheel that is to torch what AMD's is: libtorch.so and libc10.so in torch/lib, ROCm from outside."""
    assert in_store.root.is_dir()
    flags = ["-Wl,--enable-new-dtags,-rpath,$ORIGIN:/opt/rocm/lib"]
    source = "extern int hip_init(void); int c10(void){return hip_init();}"
    c10 = shared(tmp_path / "vendor" / "libc10.so", source, needed=[hip], flags=flags)
    source = "extern int c10(void); int at(void){return c10();}"
    library = shared(tmp_path / "vendor" / "libtorch.so", source, needed=[c10], flags=flags)
    members: Members = {
        "torch/__init__.py": b"",
        "torch/lib/libc10.so": c10,
        "torch/lib/libtorch.so": library,
    }
    wheel = make_wheel(tmp_path / "wheel", members, name="torch", version="2.9.1+rocm7.2", tag=TAG)
    write(wheel, tmp_path / "torch")
    return tmp_path / "torch"


def test_torchvision_finds_the_libraries_of_torch(in_store: Nix, torch: Path, tmp_path: Path) -> None:
    """Those of the torch of the same set, by its store path; everything is found by the loader alone."""
    library = shared(
        tmp_path / "a.so",
        "extern int at(void), c10(void); int g(void){return at() + c10();}",
        needed=[tmp_path / "vendor" / "libtorch.so", tmp_path / "vendor" / "libc10.so"],
        flags=["-Wl,--enable-new-dtags,-rpath,/mnt/build/torch/lib"],
    )
    members: Members = {"torchvision/__init__.py": b"import torch\n", "torchvision/_C.so": library}
    requires = ("torch==2.9.1", "numpy")
    wheel = make_wheel(
        tmp_path / "wheel", members, name="torchvision", version="0.24.1+rocm7.2", tag=TAG, requires=requires
    )
    write(wheel, tmp_path / "torchvision")
    scope = dropped(in_store, torch=torch, torchvision=tmp_path / "torchvision")
    own, built = (in_store.build(f"{scope}.{name}") for name in ("torch", "torchvision"))
    with map_file(str(built / SITE / "torchvision/_C.so")) as buffer:
        assert read_image(buffer, "_C.so").search_path == f"{own}/{SITE}/torch/lib"
    assert in_store.references(built) == {str(own)}
    assert unmet(requires[:1], own) == []
    check_loads(in_store, built, "torchvision/_C.so")


def test_bitsandbytes_takes_the_relinked_torch(in_store: Nix, hip: Path, torch: Path, tmp_path: Path) -> None:
    """It asks torch for its ROCm; nixpkgs' stock torch has none."""
    library = shared(
        tmp_path / "b.so", "extern int hip_init(void); int g(void){return hip_init();}", needed=[hip]
    )
    members: Members = {"bitsandbytes/__init__.py": b"", "bitsandbytes/libbitsandbytes_rocm72.so": library}
    wheel = make_wheel(
        tmp_path / "wheel", members, name="bitsandbytes", version="0.50.2", tag=TAG, requires=("torch<3",)
    )
    write(wheel, tmp_path / "bitsandbytes")
    scope = dropped(in_store, torch=torch, bitsandbytes=tmp_path / "bitsandbytes")
    assert in_store.value(f"{{ inherit ({scope}.torch) rocmSupport cudaSupport; }}") == {
        "rocmSupport": True,
        "cudaSupport": False,
    }
    built = in_store.build(f"{scope}.bitsandbytes")
    assert in_store.references(built) == set(stores(in_store, "rocmPackages.clr"))
    stock = f"{scope}.bitsandbytes.override {{ torch = {scope}.torch // {{ rocmSupport = false; }}; }}"
    run = in_store.eval(f"({stock}).drvPath", check=False)
    assert "torch of this package set was built without ROCm" in run.stderr


def test_the_plugins_of_jax_are_a_pair(in_store: Nix, hip: Path, tmp_path: Path) -> None:
    """Both of one version, which is jaxlib's; another one of either is refused."""
    library = shared(
        tmp_path / "p.so", "extern int hip_init(void); int g(void){return hip_init();}", needed=[hip]
    )

    def made(name: str, version: str, member: str, *requires: str) -> Path:
        directory = tmp_path / f"{name}-{version}"
        wheel = make_wheel(
            directory, {member: library}, name=name, version=version, tag=TAG, requires=requires
        )
        write(wheel, directory / "out")
        return directory / "out"

    pjrt = made("jax_rocm7_pjrt", "0.12.0", "jax_plugins/xla_rocm7/xla_rocm_plugin.so")
    older = made("jax_rocm7_pjrt", "0.11.0", "jax_plugins/xla_rocm7/xla_rocm_plugin.so")
    plugin = made("jax_rocm7_plugin", "0.12.0", "jax_rocm7_plugin/_rnn.so", "jax-rocm7-pjrt==0.12.0")
    nix = in_store.with_tools(jaxlib="0.12.0")
    scope = dropped(nix, jax_rocm7_pjrt=pjrt, jax_rocm7_plugin=plugin)
    built = [nix.build(f"{scope}.{name}") for name in ("jax-rocm7-plugin", "jax-rocm7-pjrt")]
    assert unmet(["jax-rocm7-pjrt==0.12.0", "jax-rocm7-plugin"], *built) == []
    other = f"{dropped(nix, jax_rocm7_pjrt=older, jax_rocm7_plugin=plugin)}.jax-rocm7-plugin.drvPath"
    said = nix.eval(other, check=False).stderr
    assert "it is 0.11.0 and needs jaxlib of that version, the package set has 0.12.0" in said
    nix = in_store.with_tools(jaxlib="0.13.0")
    said = nix.eval(
        f"{dropped(nix, jax_rocm7_pjrt=pjrt, jax_rocm7_plugin=plugin)}.jax-rocm7-plugin.drvPath", check=False
    ).stderr
    assert "needs jaxlib of that version, the package set has 0.13.0" in said
