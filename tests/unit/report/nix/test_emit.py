"""The text that is emitted, and the file that is written; tests/nix has it formatted, evaluated and built by Nix."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.report.nix.emit import nix_string, package_nix, write_package
from relink.report.nix.package import Dependency, Package, Source
from relink.system.errors import UsageError
from relink.vendors.rocm.vendor import rocm
from relink.wheel.naming import parse_wheel_name

ALWAYS = frozenset(range(10, 16))


def needs(*names: str, pythons: frozenset[int] = ALWAYS) -> tuple[Dependency, ...]:
    return tuple(Dependency(name, name, pythons) for name in names)


ABOUT = {
    "description": "Demonstration",
    "homepage": "https://example.org",
    "changelog": "https://example.org/changes",
    "license": "MIT",
}
PLAIN = Package(
    wheel=parse_wheel_name("demo-1.0-cp312-cp312-linux_x86_64.whl"),
    source=Source(
        "fetchurl",
        {
            "url": "https://example.org/demo%2Brocm.whl",
            "name": "demo.whl",
            "hash": "sha256-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        },
    ),
    pythons=(12,),
    major=7,
    vendor=rocm,
    inputs={"pkgs.numactl": ("libnuma.so.1",), "rocmPackages.clr": ("libamdhip64.so.7",)},
    meta=ABOUT,
    dependencies=needs("numpy", "packaging", pythons=frozenset([12])),
    imports=("demo",),
    settings={"relinkGpus": ("gfx1030", "gfx1100")},
)
WRITTEN = """\
{
  lib,
  buildPythonPackage,
  fetchurl,
  autoRelinkHook,
  pypaInstallHook,
  pythonOlder,
  pythonAtLeast,
  wheelUnpackHook,
  rocmPackages,
  numactl,
  numpy,
  packaging,
}:

buildPythonPackage {
  pname = "demo";
  version = "1.0";
  pyproject = false;

  __structuredAttrs = true;

  disabled = pythonOlder "3.12" || pythonAtLeast "3.13";

  src = fetchurl {
    url = "https://example.org/demo%2Brocm.whl";
    name = "demo.whl";
    hash = "sha256-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
  };

  nativeBuildInputs = [
    autoRelinkHook
    pypaInstallHook
    wheelUnpackHook
  ];

  buildInputs = [
    numactl
    rocmPackages.clr
  ];

  dependencies = [
    numpy
    packaging
  ];

  relinkGpus = [
    "gfx1030"
    "gfx1100"
  ];

  pythonImportsCheck = [ "demo" ];

  meta = {
    description = "Demonstration";
    homepage = "https://example.org";
    changelog = "https://example.org/changes";
    license = lib.licenses.mit;
    sourceProvenance = [ lib.sourceTypes.binaryNativeCode ];
    platforms = [ "x86_64-linux" ];
    # The wheel needs libamdhip64.so.7.
    broken = lib.versions.major rocmPackages.clr.version != "7";
    maintainers = [ ];
  };
}
"""
INDEX = Source(
    "fetchPypi",
    {
        "pname": "demo",
        "format": "wheel",
        "dist": "py3",
        "python": "py3",
        "abi": "none",
        "platform": "any",
        "hash": "sha256-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    },
)


def attribute(package: Package, name: str) -> str:
    """The lines of one attribute."""
    text = package_nix([package])
    start = text.index(f"\n  {name} =") + 1
    return text[start : text.index(";\n", start) + 1]


def test_what_is_written() -> None:
    assert package_nix([PLAIN]) == WRITTEN


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    """A FIFO would keep whoever opens it waiting."""
    written = write_package([PLAIN], tmp_path)
    written.write_text("# mine\n")
    with pytest.raises(UsageError, match=r"package\.nix: is there already; .* or pass --force"):
        write_package([PLAIN], tmp_path)
    assert written.read_text() == "# mine\n"
    assert write_package([PLAIN], tmp_path, force=True).read_text() == WRITTEN
    written.unlink()
    os.mkfifo(written)
    with pytest.raises(UsageError, match="is there already"):
        write_package([PLAIN], tmp_path)
    assert write_package([PLAIN], tmp_path, force=True).read_text() == WRITTEN
    assert os.listdir(tmp_path) == ["package.nix"]


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        UsageError, match=r"file/x: cannot be written to \(Not a directory\); name another by --output"
    ):
        write_package([PLAIN], tmp_path / "file" / "x")


def test_a_name_from_the_wheel_stays_in_its_comment() -> None:
    package = replace(PLAIN, unknown=("libx.so\n}: builtins.abort \x1bé",))
    assert "# nixpkgs is not known to have libx.so\\n}: builtins.abort \\x1bé.\n" in package_nix([package])


def test_one_release_for_several_pythons() -> None:
    newer = replace(
        PLAIN,
        pythons=(13,),
        source=INDEX,
        dependencies=needs("audioop-lts", "numpy", pythons=frozenset([13])),
    )
    text = package_nix([PLAIN, newer])
    for part in (
        '\nlet\n  version = "1.0";\n  srcs = {\n    "3.12" = fetchurl {\n      url = ',
        '\n    "3.13" = fetchPypi {\n      pname = "demo";\n      inherit version;\n',
        "\n  };\nin\nbuildPythonPackage {\n",
        "\n  inherit version;\n",
        "\n  disabled = !(srcs ? ${python.pythonVersion});\n\n  src = srcs.${python.pythonVersion};\n",
        '\n  ++ lib.optionals (pythonOlder "3.13") [ packaging ]',
        '\n  ++ lib.optionals (pythonAtLeast "3.13") [ audioop-lts ]',
    ):
        assert part in text
    others = (
        replace(PLAIN, wheel=parse_wheel_name("demo-2.0-cp312-cp312-linux_x86_64.whl")),
        PLAIN,
        replace(newer, pythons=(13, 14, 15)),
        replace(newer, major=6),
    )
    for other in others:
        with pytest.raises(
            UsageError, match="one package takes the wheels of one release, one for each Python"
        ):
            package_nix([PLAIN, other])


def test_what_the_package_set_must_have() -> None:
    """Each with its reason in a comment: nixpkgs prints no more than that the package is broken, and where it is."""
    plugin = replace(
        PLAIN,
        dependencies=needs("jax-rocm7-pjrt", "torch"),
        same_version=("jaxlib",),
        inputs={"rocmPackages.clr": ("libamdhip64.so.7",)},
    )
    text = package_nix([plugin])
    assert (
        """
    # The wheel needs libamdhip64.so.7.
    # jaxlib has to be of the same version.
    # jax-rocm7-pjrt has to be of the same version.
    # torch has to be built for ROCm (config.rocmSupport).
    broken =
      lib.versions.major rocmPackages.clr.version != "7"
      || jaxlib.version != finalAttrs.version
      || jax-rocm7-pjrt.version != finalAttrs.version
      || !(torch.rocmSupport or false);
"""
        in text
    )
    assert (
        "    # nixpkgs does not have it; relink nix writes a package of its wheel, too.\n    jax-rocm7-pjrt\n"
        in text
    )
    assert "  jaxlib,\n" in text
    assert "buildPythonPackage (finalAttrs: {\n" in text
    assert "broken" not in package_nix([replace(PLAIN, major=None)])


def test_of_the_package_index_with_all_that_can_be_said() -> None:
    unknown = Dependency("nowhere", None, ALWAYS)
    more = replace(
        PLAIN,
        source=INDEX,
        pythons=tuple(ALWAYS),
        inputs={"pkgs.zstd": ("libzstd.so.1",)},
        unknown=("libnowhere.so.1",),
        dependencies=(*needs("numpy"), unknown),
        settings={"relinkStub": ("auto",), "relinkFlags": ("--no-preload",)},
        meta={"description": 'With "quotes"', "license": "MIT OR (Apache-2.0 AND LicenseRef-AMD)"},
    )
    text = package_nix([more])
    for part in (
        "  zstd, # the library: callPackage ./package.nix { inherit (pkgs) zstd; }\n",
        '  src = fetchPypi {\n    pname = "demo";\n    inherit (finalAttrs) version;\n    format = "wheel";\n',
        "  buildInputs = [\n    # nixpkgs is not known to have libnowhere.so.1.\n    zstd\n  ];\n",
        "  dependencies = [\n    # nixpkgs is not known to have nowhere.\n    numpy\n  ];\n",
        '  relinkStub = [ "auto" ];\n\n  relinkFlags = [ "--no-preload" ];\n',
        '    description = "With \\"quotes\\"";\n',
        "    license = [\n      lib.licenses.mit\n      lib.licenses.asl20\n    ];\n",
    ):
        assert part in text
    assert "disabled" not in text
    assert "broken" not in text
    one = package_nix([replace(more, meta={"license": "EUPL-1.2"})])
    assert "    license = lib.licenses.eupl12;\n" in one
    assert "    # nixpkgs is not known to have its licence.\n" in package_nix([replace(more, meta={})])
    file = replace(more, source=Source(None, {"path": "./demo.whl"}))
    assert "\n  src = ./demo.whl;\n" in package_nix([file])


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({15, 14}, 'lib.optionals (pythonAtLeast "3.14") [ x ]'),
        ({10, 11}, 'lib.optionals (pythonOlder "3.12") [ x ]'),
        ({12, 13}, 'lib.optionals (pythonAtLeast "3.12" && pythonOlder "3.14") [ x ]'),
        ({10, 15}, 'lib.optionals (pythonOlder "3.11" || pythonAtLeast "3.15") [ x ]'),
        (set(ALWAYS), "[ x ]"),
    ],
)
def test_markers_are_conditions(asked: set[int], text: str) -> None:
    package = replace(PLAIN, pythons=tuple(ALWAYS), dependencies=needs("x", pythons=frozenset(asked)))
    assert attribute(package, "dependencies") == f"  dependencies = {text};"


@pytest.mark.parametrize(
    ("pythons", "text"),
    [
        ((10,), 'pythonOlder "3.10" || pythonAtLeast "3.11"'),
        ((12, 13, 14, 15), 'pythonOlder "3.12"'),
        ((10, 12), 'pythonAtLeast "3.11" && pythonOlder "3.12" || pythonAtLeast "3.13"'),
    ],
)
def test_pythons_without_a_wheel(pythons: tuple[int, ...], text: str) -> None:
    """Also those between two that a compressed tag names."""
    package = replace(PLAIN, pythons=pythons, dependencies=())
    assert attribute(package, "disabled") == f"  disabled = {text};"


def test_lists_of_dependencies_are_joined() -> None:
    newest = needs("y", pythons=frozenset([15]))
    older = needs("v", "w", pythons=frozenset([10]))
    package = replace(PLAIN, pythons=tuple(ALWAYS))
    short = replace(package, dependencies=(*needs("x"), *newest))
    assert (
        attribute(short, "dependencies")
        == '  dependencies = [ x ] ++ lib.optionals (pythonAtLeast "3.15") [ y ];'
    )
    three = replace(package, dependencies=(*older, *needs("x"), *newest))
    assert attribute(three, "dependencies") == (
        '  dependencies = [\n    x\n  ]\n  ++ lib.optionals (pythonOlder "3.11") [\n    v\n    w\n  ]\n'
        '  ++ lib.optionals (pythonAtLeast "3.15") [ y ];'
    )
    two = replace(package, dependencies=(*older, *newest))
    assert attribute(two, "dependencies") == (
        '  dependencies =\n    lib.optionals (pythonOlder "3.11") [\n      v\n      w\n    ]\n'
        '    ++ lib.optionals (pythonAtLeast "3.15") [ y ];'
    )


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("a", '"a"'),
        ('a"b\\c', r'"a\"b\\c"'),
        ("${builtins.abort 1}", r'"\${builtins.abort 1}"'),
        ("$$", r'"\$\$"'),
        ("a\n\r\t", r'"a\n\r\t"'),
    ],
)
def test_strings(text: str, literal: str) -> None:
    assert nix_string(text) == literal


@pytest.mark.parametrize("text", ["a\0b", "\udcff"])
def test_strings_that_nix_does_not_have(text: str) -> None:
    with pytest.raises(UsageError, match="cannot be said in Nix"):
        nix_string(text)


def forms() -> dict[str, list[Package]]:
    """A package of each form that can be written, by a name: what is there and what is not, on one line and on several."""
    anyone = replace(PLAIN, pythons=tuple(ALWAYS), dependencies=())
    newest, older = frozenset([15]), frozenset([10, 11])
    long = "x" * 60
    several = [
        PLAIN,
        replace(PLAIN, pythons=(13,), source=INDEX, dependencies=needs("numpy", pythons=frozenset([13]))),
    ]
    metas = {
        "no-meta": {},
        "licences": {"license": "MIT OR Apache-2.0 AND BSD-3-Clause WITH LLVM-exception"},
        "quotes": {
            "description": 'A "quoted" ${text} \\ with $ and ' + long,
            "homepage": f"https://{long}{long}",
        },
    }
    dependencies = {
        "sibling": needs("jax-rocm7-pjrt", "torch"),
        "unknown": (Dependency("nowhere", None, ALWAYS),),
        "newest": needs("a", pythons=newest),
        "newest-two": needs("a", "b", pythons=newest),
        "one-and-newest": (*needs("x"), *needs("a", pythons=newest)),
        "one-and-long": (*needs("x"), *needs(long, pythons=newest)),
        "two-and-newest": (*needs("x", "y"), *needs("a", pythons=newest)),
        "one-and-two": (*needs("x"), *needs("a", "b", pythons=newest)),
        "three-lists": (*needs("x"), *needs("a", pythons=newest), *needs("b", pythons=older)),
        "two-conditions": (*needs("a", pythons=newest), *needs("b", pythons=older)),
        "two-long-conditions": (*needs("a", "c", pythons=newest), *needs("b", pythons=older)),
        "a-gap": needs("a", pythons=older | newest),
    }
    inputs: dict[str, dict[str, tuple[str, ...]]] = {
        "no-inputs": {},
        "one-input": {"rocmPackages.clr": ()},
        "library": {"pkgs.zlib": ()},
        "shadowed": {"pkgs.zstd": (), "rocmPackages.clr": ()},
    }
    settings = {
        "setting": {"relinkStub": ["auto"]},
        "long-setting": {"relinkAllowMissing": ["l" * 72]},
        "longer-setting": {"relinkAllowMissing": ["l" * 90]},
        "settings": {"relinkGpus": ["gfx1030", "gfx1100"], "relinkFlags": ["--no-preload"]},
    }
    brokens = {
        "plugin": replace(anyone, same_version=("jaxlib",)),
        "plugins": replace(anyone, same_version=("jaxlib",), dependencies=needs("jax-rocm7-pjrt")),
        "torch": replace(anyone, dependencies=needs("torch")),
        "plugin-torch": replace(anyone, major=None, same_version=("jaxlib",), dependencies=needs("torch")),
        "no-hip": replace(anyone, major=None),
    }
    sources = {
        "index": replace(PLAIN, source=INDEX),
        "file": replace(PLAIN, source=Source(None, {"path": "./demo-1.0-py3-none-any.whl"})),
        "long-file": replace(PLAIN, source=Source(None, {"path": f"../{long}/{long}.whl"})),
        "least": replace(PLAIN, pythons=(12, 13, 14, 15)),
        "no-import": replace(PLAIN, imports=()),
        "imports": replace(PLAIN, imports=("a", "b")),
    }
    rows = {"plain": [PLAIN], "several": several}
    rows["several-requirements"] = [
        replace(package, dependencies=needs(*names, pythons=frozenset(package.pythons)))
        for package, names in zip(several, (("numpy", "x"), ("audioop-lts", "numpy", "y")), strict=True)
    ]
    rows["several-plugins"] = [replace(package, same_version=("jaxlib",)) for package in several]
    rows["several-files"] = [
        replace(package, source=Source(None, {"path": f"./{package.pythons[0]}.whl"})) for package in several
    ]
    rows |= {name: [replace(anyone, meta=meta)] for name, meta in metas.items()}
    rows |= {name: [replace(anyone, dependencies=found)] for name, found in dependencies.items()}
    rows |= {name: [replace(anyone, inputs=found)] for name, found in inputs.items()}
    rows |= {name: [replace(anyone, settings=found)] for name, found in settings.items()}
    rows |= {name: [package] for name, package in (brokens | sources).items()}
    return rows


RECORDED = Path(__file__).with_name("formatted.json")


def test_nixfmt_leaves_every_form_as_it_is() -> None:
    """What nixfmt 1.4.0 left as it was is recorded, by hash: RELINK_NIXFMT names the program, which records anew what it leaves.

    nixpkgs has it (`nix-shell -p nixfmt`), and no package index that continuous integration reaches.
    """
    texts = {name: package_nix(packages) for name, packages in forms().items()}
    hashes = {name: hashlib.sha256(text.encode()).hexdigest()[:16] for name, text in texts.items()}
    assert len(texts) == 39
    if nixfmt := os.environ.get("RELINK_NIXFMT"):
        version = subprocess.run([nixfmt, "--version"], capture_output=True, text=True, check=True).stdout
        assert version.strip() == "nixfmt 1.4.0"
        for name, text in texts.items():
            made = subprocess.run([nixfmt, "-"], input=text, capture_output=True, text=True, check=False)
            assert (name, made.stdout) == (name, text)
        RECORDED.write_text(json.dumps(hashes, indent=1) + "\n")
    assert json.loads(RECORDED.read_text()) == hashes
