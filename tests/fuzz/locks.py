"""Lock files of uv (:mod:`relink.indexes.build.web`) of somebody else: values out of place, odd names, damaged text."""

from __future__ import annotations

import random
import re
from typing import Final

from relink.indexes.build.web import read_lock
from tests.fuzz.inputs import Scene, edited_text

__all__ = ["check_lock", "make_lock"]

_NAMES: Final = (
    "a-rocm",
    "torch",
    "numpy",
    "A_Rocm",
    "a--rocm",
    "",
    "rocm",
    "../rocm",
    "rocm\\n",
    "é-rocm",
    "-r",
)
_SCHEMES: Final = (
    "https://x/",
    "file:///",
    "http://[::1",
    "ftp://x/",
    "",
    "-r ",
    "https://x/#/",
    "https://u:p@x/%2f",
    "//x/",
)
_FILES: Final = (
    "a_rocm-1-py3-none-linux_x86_64.whl",
    "a_rocm-1-cp312-cp312-manylinux_2_28_x86_64.whl",
    "torch-2%2Brocm7-cp312-cp312-linux_x86_64.whl",
    "a_rocm-1!2-cp312.cp313-abi3.cp312-manylinux1_x86_64.any.whl",
    "a_rocm-1-py3-none-manylinux" + "1" * 400 + "_x86_64.whl",
    "a_rocm-" + "9" * 5000 + "-py3-none-linux_x86_64.whl",
    "a_rocm-1-py3-none-linux_x86_64.whl%00",
    "a_rocm-1+" + "a." * 300 + "-py3-none-linux_x86_64.whl",
    "..%2f..%2fa_rocm-1-py3-none-linux_x86_64.whl",
    "a_rocm.tar.gz",
)
_DIGESTS: Final = ("sha256:" + "a" * 64, "sha256:" + "A" * 64, "md5:0", "sha256:" + "a" * 65, "")
_SIZES: Final = ("1", "-1", "0", "9" * 25, "1.5", "true", '"1"', "0x7fffffffffffffff")


def make_lock(_: Scene, rng: random.Random) -> bytes:
    """A lock file with some packages; a third of them damaged, one in a hundred large."""
    count = 2000 if rng.random() < 0.01 else rng.randrange(4)
    text = "version = 1\n" + "".join(_package(rng) for _number in range(count))
    data = text.encode()
    return edited_text(data, rng) if rng.random() < 0.3 else data


def _package(rng: random.Random) -> str:
    """What is in order but for one row in four."""
    name = "a-rocm" if rng.random() < 0.8 else rng.choice(_NAMES)
    rows = []
    for _number in range(rng.randrange(4)):
        url, digest, size = f"https://x/{rng.choice(_FILES[:2])}", _DIGESTS[0], "1"
        if rng.random() < 0.25:
            url = f"{rng.choice(_SCHEMES)}{rng.choice(_FILES)}"
            digest, size = rng.choice(_DIGESTS), rng.choice(_SIZES)
        rows.append(f'{{ url = "{url}", hash = "{digest}", size = {size} }}')
    return f'[[package]]\nname = "{name}"\nwheels = [{", ".join(rows)}]\n'


def check_lock(scene: Scene, data: bytes) -> None:
    """A wheel has the name that its address ends in, no hash or a whole one, and no directory in its name."""
    path = scene.scratch / "uv.lock"
    path.write_bytes(data)
    for wheel in read_lock(path):
        assert re.fullmatch(r"[0-9a-f]{64}", wheel.sha256 or "")
        assert "/" not in wheel.name.filename
