"""entry_points.txt: a wheel of which installers would make different scripts is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from relink.system.errors import WheelError
from relink.wheel.archive import WheelArchive
from tests.support.wheels import make_wheel

SCRIPT = "demo-1.0.data/scripts/tool"


def open_wheel(directory: Path, text: bytes) -> None:
    members = {"demo/__init__.py": b"", SCRIPT: b"#!python\n", "demo-1.0.dist-info/entry_points.txt": text}
    with WheelArchive(make_wheel(directory, members, tag="py3-none-any")):
        pass


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"[console_scripts]\ntool = demo:main\n", "has the same path as a file of .data"),
        (b"[gui_scripts]\ntool = demo:main\n", "has the same path as a file of .data"),
        (b"[console_scripts]\nTool = demo:main\n", "has the same path as a file of .data"),
        (
            b"[console_scripts]\na = demo:b\n[gui_scripts]\na = demo:c\n",
            "has the same path as another script",
        ),
        (b"[console_scripts]\na = demo:b\na = demo:c\n", "installers read it differently"),
        (b"a = demo:b\n", "installers read it differently"),
        (b"[console_scripts]\n../a = demo:b\n", "is no script that every installer makes"),
        (b"[console_scripts]\npython = demo:b\n", "is no script that every installer makes"),
        (b"[gui_scripts]\nPython3.12 = demo:b\n", "is no script that every installer makes"),
        (b"[console_scripts]\na = demo\n", "is no script that every installer makes"),
        (b"[console_scripts]\na =\n  demo:b\n", "installers read different scripts"),
        (b"[[console_scripts]]\na = demo:b\n", "installers read"),
        (b"\xff", "installers read it differently"),
    ],
)
def test_scripts_that_installers_read_differently(tmp_path: Path, text: bytes, why: str) -> None:
    with pytest.raises(WheelError, match=why):
        open_wheel(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"# none\n",
        b"[console_scripts]\na = demo:b\nc.d-e = demo.x:f.g [more]\n\n[gui_scripts]\nh=demo:i\n",
        b"[console_scripts]\npython3-config = demo:b\npythonic = demo:c\n",
        b"[other.group]\nany thing = of it\ntool = demo:main\n",
    ],
)
def test_scripts_that_all_read_alike(tmp_path: Path, text: bytes) -> None:
    open_wheel(tmp_path, text)
