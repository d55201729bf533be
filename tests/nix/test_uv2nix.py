"""`relink nix --uv-lock` and `relink.lib.uvOverlay`: with what uv2nix's packages are to an overlay, and with uv2nix itself."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest

from relink.elf.image import read_image
from relink.system.safe_open import map_file
from tests.nix.conftest import PYTHON, ROOT, Nix
from tests.nix.test_build import check_built, write
from tests.support.cc import shared
from tests.support.wheels import make_wheel
from tests.support.works import TAG

LOCK = """
version = 1
requires-python = ">=3.11"

[[package]]
name = "demo"
version = "1.0"
source = {{ registry = "https://example.org/simple" }}
wheels = [ {{ url = "file://{wheel}", hash = "sha256:{digest}" }} ]
"""


def planned(wheel: Path, directory: Path) -> Path:
    """The plans that are made from a lock with this wheel."""
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (directory / "uv.lock").write_text(LOCK.format(wheel=wheel, digest=digest))
    write(wheel, directory / "plans", "--uv-lock", str(directory / "uv.lock"), url=None)
    return directory / "plans"


def overlaid(nix: Nix, wheel: Path, plans: Path, digest: str | None = None, more: str = "") -> str:
    """A package as uv2nix gives it to an overlay (lib/build.nix: fetchurl with the lock's hash; overrideAttrs), overridden."""
    sha256 = digest or hashlib.sha256(wheel.read_bytes()).hexdigest()
    sri = "sha256-" + base64.b64encode(bytes.fromhex(sha256)).decode()
    return (
        f"let pkgs = {nix.packages()}; "
        'attributes = { pname = "demo"; version = "1.0"; '
        f'sitePackages = "lib/python{PYTHON}/site-packages"; nativeBuildInputs = [ ]; '
        f'src = pkgs.fetchurl {{ name = "{wheel.name}"; url = "file://{wheel}"; hash = "{sri}"; }}; }}; '
        "package = attributes: pkgs.stdenv.mkDerivation attributes // "
        "{ overrideAttrs = change: package (attributes // change attributes); }; "
        f"overlay = ((import {ROOT}/flake.nix).outputs {{ self = {{ }}; nixpkgs.legacyPackages.x86_64-linux = pkgs; }})"
        f".lib.uvOverlay {{ plans = {plans}; }}; "
        "prev = { inherit pkgs; inherit (pkgs.python3Packages) python; demo = package attributes; other = 1; "
        f"{more} }}; "
        "set = prev // overlay set prev; in set // { changed = builtins.attrNames (overlay set prev); }"
    )


def test_a_wheel_of_the_lock_is_relinked(in_store: Nix, vendor_wheel: Path, tmp_path: Path) -> None:
    plans = planned(vendor_wheel, tmp_path)
    assert [path.name for path in plans.iterdir()] == [f"demo-cp{PYTHON.replace('.', '')}.json"]
    source = json.loads(next(plans.iterdir()).read_text())["source"]
    assert source["url"] == f"file://{vendor_wheel}"
    expression = overlaid(in_store, vendor_wheel, plans)
    assert in_store.value(f"({expression}).changed") == ["demo"]
    check_built(in_store, in_store.build(f"({expression}).demo"))


def test_another_wheel_in_the_lock(in_store: Nix, vendor_wheel: Path, tmp_path: Path) -> None:
    plans = planned(vendor_wheel, tmp_path)
    run = in_store.eval(f"({overlaid(in_store, vendor_wheel, plans, '0' * 64)}).demo.drvPath", check=False)
    assert "relink: uv.lock has another wheel of demo than demo-1.0-" in run.stderr


def test_a_library_of_torch_in_the_environment(in_store: Nix, tmp_path: Path) -> None:
    """An extension of torch is linked with the torch of uv's own set."""
    c10 = shared(tmp_path / "libc10.so", "int c10(void){return 1;}")
    library = shared(tmp_path / "a.so", "extern int c10(void); int g(void){return c10();}", needed=[c10])
    wheel = make_wheel(
        tmp_path / "other", {"demo/__init__.py": b"import torch\n", "demo/a.so": library}, tag=TAG
    )
    plans = planned(wheel, tmp_path)
    site = f"lib/python{PYTHON}/site-packages"
    torch = f"torch = pkgs.runCommand \"torch\" {{ }} ''mkdir -p $out/{site}/torch/lib; cp {c10} $out/{site}/torch/lib/; :''; "
    expression = overlaid(in_store, wheel, plans, more=torch)
    built, own = in_store.build(f"({expression}).demo"), in_store.build(f"({expression}).torch")
    with map_file(str(built / site / "demo/a.so")) as buffer:
        assert read_image(buffer, "a.so").search_path == f"{own}/{site}/torch/lib"
    said = in_store.eval(f"({overlaid(in_store, wheel, plans)}).demo.drvPath", check=False).stderr
    assert "there is no pythonPackages.torch" in said
    assert "make the package anew: `relink nix --uv-lock uv.lock" in said


def test_a_wheel_that_the_lock_lacks(vendor_wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "uv.lock").write_text(LOCK.format(wheel=vendor_wheel, digest="0" * 64))
    from relink.report.nix.uv_lock import locked_urls  # noqa: PLC0415
    from relink.system.errors import UsageError  # noqa: PLC0415

    with pytest.raises(UsageError, match=r"uv\.lock has no wheel of this hash"):
        locked_urls(tmp_path / "uv.lock", [vendor_wheel])


def test_the_templates(nix: Nix) -> None:
    """`nix flake init -t` copies what is there."""
    for name in ("nix", "uv2nix"):
        for path in (ROOT / "examples" / name).glob("*.nix"):
            nix.run("nix-instantiate", "--parse", path)
    templates = nix.value(
        f'builtins.mapAttrs (_: t: builtins.pathExists (t.path + "/flake.nix")) ((import {ROOT}/flake.nix).outputs '
        "{ self = { }; nixpkgs.legacyPackages.x86_64-linux = { }; }).templates"
    )
    assert templates == {"default": True, "uv2nix": True}


def test_a_drop_in_has_the_other_name(in_store: Nix, vendor_wheel: Path, tmp_path: Path) -> None:
    """The overlay puts a package in the place of nixpkgs' own, METADATA's name included."""
    write(vendor_wheel, tmp_path / "out")
    pkgs = in_store.packages()
    built = in_store.build(
        f"let pkgs = {pkgs}; flake = (import {ROOT}/flake.nix).outputs "
        "{ self = { }; nixpkgs.legacyPackages.x86_64-linux = pkgs; }; "
        f"overlay = flake.lib.dropIn {{ packaging = {tmp_path}/out/package.nix; }} pkgs pkgs; in "
        "((builtins.head overlay.pythonPackagesExtensions) pkgs.python3Packages { }).packaging"
    )
    (info,) = (built / f"lib/python{PYTHON}/site-packages").glob("*.dist-info")
    assert info.name == "packaging-1.0.dist-info"
    assert "\nName: packaging\n" in (info / "METADATA").read_text()
