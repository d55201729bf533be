"""Where members are installed and how paths are shown; which provider serves a library."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from relink.loader.python import PythonFacts
from relink.loader.seen_files import Files
from relink.loader.tables import Tables
from relink.loader.target import find_target
from relink.planning.resolve.context import VIRTUAL_ROOT, Layout, ResolveContext, find_site_directory
from relink.providers.prefix import NIX_STORE, open_prefix
from relink.vendors.rocm.vendor import rocm
from relink.wheel.naming import parse_wheel_name
from tests.support.cc import shared
from tests.support.elf_builder import SUPPORTED, WHY_NOT
from tests.support.two_prefixes import HELP, HSA, TwoPrefixes, build_two_prefixes

HERE = Layout("/env", "lib/python3.12/site-packages")
SITE = "/env/lib/python3.12/site-packages"


@pytest.mark.parametrize(
    ("member", "path"),
    [
        ("a.so", f"{SITE}/a.so"),
        ("pkg/lib/liba.so.1", f"{SITE}/pkg/lib/liba.so.1"),
        ("pkg-1.0.dist-info/RECORD", f"{SITE}/pkg-1.0.dist-info/RECORD"),
        ("pkg-1.0.data/purelib/pkg/a.so", f"{SITE}/pkg/a.so"),
        ("pkg-1.0.data/platlib/pkg/a.so", f"{SITE}/pkg/a.so"),
        ("pkg-1.0.data/scripts/tool", "/env/bin/tool"),
        ("pkg-1.0.data/headers/pkg.h", "/env/include/site/python3.12/pkg/pkg.h"),
        ("pkg-1.0.data/data/share/x.so", "/env/share/x.so"),
        ("pkg-1.0+rocm7.data/data/lib/x.so", "/env/lib/x.so"),
        ("pkg-1.0.data/other/x.so", "/env/x.so"),
        ("pkg-1.0.data/x.so", f"{SITE}/pkg-1.0.data/x.so"),
        # a package's own directory that is only called so
        ("model.data/scripts/x.so", f"{SITE}/model.data/scripts/x.so"),
        ("pkg/pkg-1.0.data/scripts/x.so", f"{SITE}/pkg/pkg-1.0.data/scripts/x.so"),
    ],
)
def test_where_a_member_goes(member: str, path: str) -> None:
    assert HERE.path_of(member) == path


def test_by_default_nothing_there_exists() -> None:
    assert Layout().path_of("a.so") == f"{VIRTUAL_ROOT}/lib/python3/site-packages/a.so"
    assert (
        Layout(site="lib/python3.11/site-packages").site_packages
        == f"{VIRTUAL_ROOT}/lib/python3.11/site-packages"
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"{SITE}/pkg/a.so", "$WHEEL/pkg/a.so"),
        (
            f"RUNPATH entry $ORIGIN of {SITE}/a.so and {SITE}",
            "RUNPATH entry $ORIGIN of $WHEEL/a.so and $WHEEL",
        ),
        ("/env/bin/tool", "$PREFIX/bin/tool"),
        ("/opt/rocm/lib", "/opt/rocm/lib"),
    ],
)
def test_what_a_reader_sees(text: str, shown: str) -> None:
    assert HERE.shown(text) == shown


THREADED = PythonFacts(
    "/p", "cpython", (3, 13), free_threaded=True, installs_into="/e/lib/python3.13t/site-packages"
)
DEBIAN = PythonFacts("/p", "cpython", (3, 11), installs_into="/usr/local/lib/python3.11/dist-packages")
ODD = PythonFacts("/p", "cpython", (3, 12), installs_into="/somewhere")


@pytest.mark.parametrize(
    ("tag", "python", "expected"),
    [
        ("cp313-cp313t", None, "python3.13t/site-packages"),
        ("cp313-cp313t", THREADED, "python3.13t/site-packages"),
        ("cp312-cp312", THREADED, "python3.12/site-packages"),
        ("cp39-abi3", None, "python3/site-packages"),
        ("cp39-abi3", DEBIAN, "python3.11/dist-packages"),
        ("cp311-cp311", DEBIAN, "python3.11/dist-packages"),
        ("py3-none", DEBIAN, "python3.11/dist-packages"),
        ("py3-none", ODD, "python3.12/site-packages"),
        ("cp311.cp312-none", None, "python3/site-packages"),
        ("cp312-none", None, "python3.12/site-packages"),
    ],
)
def test_the_site_packages_of_the_targets_python(tag: str, python: PythonFacts | None, expected: str) -> None:
    name = parse_wheel_name(f"demo-1.0-{tag}-linux_x86_64.whl")
    assert find_site_directory(name, python) == f"lib/{expected}"


pytestmark = pytest.mark.skipif(not SUPPORTED, reason=WHY_NOT)


@pytest.fixture
def both(tmp_path: Path) -> TwoPrefixes:
    return build_two_prefixes(tmp_path)


def test_what_comes_of_one_closure_counts_as_one_prefix(both: TwoPrefixes) -> None:
    """Each store path of a Nix closure is a provider, and the runtimes lie in several; so they do where each is named."""
    shared(both.second / "lib" / HSA, "int hsa(void){return 1;}")
    target = find_target()
    first, second = (open_prefix(str(path), target) for path in (both.first, both.second))
    context = ResolveContext(target, Tables(Files()), (first, second), {}, vendor=rocm)
    of_one = tuple(replace(provider, closure="/store/x") for provider in (first, second))
    packages = tuple(replace(provider, kind=NIX_STORE) for provider in (first, second))
    mixed = (first, replace(second, kind=NIX_STORE))
    identity = context.files.open(str(both.second / "lib" / HELP)).identity
    assert identity is not None
    driver = str(both.second / "lib" / HSA)
    for providers, expected in (
        ((first, second), (None, driver, False)),
        (of_one, (driver, None, True)),
        (packages, (driver, None, False)),
        (mixed, (None, driver, False)),
    ):
        context = replace(context, providers=providers)
        assert context.provider_path(HELP) == str(both.first / "lib" / HELP)
        assert (
            context.provider_path(HSA),
            context.withheld_path(HSA),
            context.is_providers(identity, HELP),
        ) == expected
