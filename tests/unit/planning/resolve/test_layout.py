"""plan.layout: where an installer puts the members of a wheel."""

from __future__ import annotations

import pytest

from relink.loader.python import PythonFacts
from relink.planning.resolve.layout import VIRTUAL_ROOT, Layout, find_site_directory
from relink.wheel.naming import parse_wheel_name

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
