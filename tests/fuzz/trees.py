"""Made-up prefixes for `relink isa` and `relink doctor`, and made-up profiles.

A prefix is written down as JSON, a step a list, so that an input is bytes here too and a failing one can be read and kept.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Final
from unittest.mock import patch

from relink.gpu.amd.survey import survey
from relink.planning.checks import machine
from relink.providers.profiles import read_profile
from relink.report.text import doctor_text
from relink.system.errors import RelinkError
from relink.system.shipped_files import shipped_directory
from tests.fuzz.inputs import Scene, damaged, edited_text, make_bundle, make_elf
from tests.unit.gpu.amd.build import code_object, kpack_archive

__all__ = ["check_toml", "check_tree", "make_toml", "make_tree"]

Step = list[str]

NAMES: Final = (
    ".info/version",
    "include/hip/hip_version.h",
    "include/rocm-core/rocm_version.h",
    "share/doc/libamdhip64-7/changelog.Debian.gz",
    "lib/libamdhip64.so.7",
    "lib/libhsa-runtime64.so.1",
    "lib/libamd_comgr.so.3",
    "lib/librocblas.so.5",
    "lib/librocfft.so.0",
    "lib/libMIOpen.so.1",
    "lib/libx.so",
    "lib64",
    "lib/x86_64-linux-gnu/libhip.so.7",
    "lib/rocblas/library/TensileLibrary.dat",
    "lib/rocblas/library/Kernels.so-000-gfx1100.hsaco",
    "lib/rocblas/library/TensileLibrary_Type_HH_gfx90a.co",
    "lib/rocblas/5.1/library/Kernels.so-000-gfx942-xnack-.hsaco",
    "lib/hipblaslt/library/hipblasltTransform.hsaco",
    "lib/hipblaslt/library/extop_gfx1100.co",
    "lib/aotriton.images/amd-gfx11xx/a.hsaco",
    "share/miopen/db/gfx90a68.db.txt",
    "lib/a.kpack",
    "lib/x_gfx1100.kpack",
    "sys/class/kfd/kfd/topology/nodes/1/properties",
    "sys/class/kfd/kfd/topology/nodes/2/properties",
    "dev/kfd",
    "dev/dri/renderD128",
    "lib/\udcff\n.so",
    "lib/" + "n" * 255,
    "lib/a/b/c/d/e/f/g/h/libdeep.so.1",
)
PLACES: Final = (
    "",
    "lib",
    "lib64",
    "lib/rocblas",
    ".info",
    "share",
    "sys",
    "lib/x86_64-linux-gnu",
    "lib/gone",
)
TARGETS: Final = (
    *(
        ".",
        "..",
        "../..",
        "../../..",
        "/",
        "/proc",
        "/proc/self",
        "/proc/self/root",
        "/proc/self/fd",
        "/sys",
        "/dev",
    ),
    *(
        "/dev/zero",
        "/dev/null",
        "/dev/random",
        "/dev/tty",
        "/proc/kmsg",
        "/proc/kcore",
        "/proc/self/mem",
        "/nowhere",
    ),
    *("self", "loop", "lib", "lib/loop", "../lib", "libx.so", "libhip.so.7", "a" * 300, "/" + "a/" * 3000),
)
TEXTS: Final = (
    b"7.2.4-1\n", b"7.2", b"9" * 5000, b"1." * 40_000, b"\xff\xfe7\0.\0002\0", b"\n" * 70_000,
    b"#define HIP_VERSION_MAJOR 7\n#define HIP_VERSION_MINOR 2\n", b"#define ROCM_VERSION_MAJOR " + b"9" * 9000,
    b"gfx_target_version 110000\nsimd_count 96\ndrm_render_minor 128\n", b"gfx_target_version " + b"9" * 20,
    b"GROUP ( /usr/lib/libc.so.6 )", b"\x1f\x8b\x08\0" + b"\0" * 60, b"",
)  # fmt: skip
GPUS: Final = ("gfx1100", "gfx1030", "gfx90a", "gfx906")
SIZES: Final = (64, 4096, 1 << 20, 1 << 32, 1 << 40, (1 << 43) - 1)
# Prefixes


def make_tree(scene: Scene, rng: random.Random) -> bytes:
    """A small prefix that is right, and on top of it what is not; each step does one thing."""
    steps: list[Step] = [["hip"]] if rng.random() < 0.8 else []
    steps += [_step(scene, rng) for _ in range(rng.choice((1, 2, 4, 8, 20)))]
    return json.dumps(steps).encode()


def _step(scene: Scene, rng: random.Random) -> Step:
    name = rng.choice(NAMES)
    match rng.randrange(11):
        case 0:
            return ["fifo", name]
        case 1 | 2:
            return ["link", rng.choice((name, f"{rng.choice(PLACES)}/loop")), rng.choice(TARGETS)]
        case 3:
            return ["device", name, str(rng.choice((0x105, 0x103, 0x108)))]  # zero, null, random
        case 4:
            return ["sparse", name, str(rng.choice(SIZES))]
        case 5:
            return ["directory", name]
        case 6:
            return ["deep", rng.choice(PLACES), str(rng.choice((3, 60, 200)))]
        case 7:
            return [
                "many",
                rng.choice(PLACES),
                rng.choice((".so", ".co", ".kpack", "")),
                str(rng.choice((10, 200))),
            ]
        case 8:
            return ["file", name, _encoded(rng.choice(TEXTS))]
        case 9:
            return ["file", name, _encoded(_packed(rng))]
        case _:
            return [
                "file",
                name,
                _encoded(make_elf(scene, rng) if rng.random() < 0.5 else make_bundle(scene, rng)),
            ]


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _packed(rng: random.Random) -> bytes:
    data = kpack_archive({"lib/libx.so#0": ["gfx1100"], "a#1": ["gfx90a:xnack-"]})
    if rng.random() < 0.3:
        data = code_object("gfx1100")
    return damaged(data, rng) if rng.random() < 0.8 else data


def _built(scene: Scene, top: Path, steps: list[Step]) -> None:
    for kind, *words in steps:
        with contextlib.suppress(
            OSError
        ):  # a step may take away what another needs, or the system may forbid it
            _STEPS[kind](scene, top, *words)


def _hip(scene: Scene, top: Path) -> None:
    (top / "lib").mkdir(exist_ok=True)
    for name in ("libhip.so.7", "libdeep.so.1"):
        (top / "lib" / name).symlink_to(scene.works.prefix / "lib" / name)


def _place(top: Path, name: str) -> Path:
    path = top / name.lstrip("/")
    if not path.parent.resolve().is_relative_to(top.resolve()):  # before anything is made
        raise OSError("a link leads out of the place where things may be made")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    return path


def _sparse(_: Scene, top: Path, name: str, size: str) -> None:
    path = _place(top, name)
    path.write_bytes(code_object("gfx1100") if int(size) % 2 else b"\x7fELF\2\1\1")
    os.truncate(path, int(size))


def _deep(_: Scene, top: Path, name: str, depth: str) -> None:
    path = _place(top, f"{name}/x/y").parent
    for _number in range(int(depth)):
        path /= "d"
        path.mkdir()
    (path / "a.co").write_bytes(code_object("gfx1100"))


def _many(_: Scene, top: Path, name: str, ending: str, count: str) -> None:
    for number in range(int(count)):
        _place(top, f"{name}/lib{number}{ending}").write_bytes(code_object(GPUS[number % len(GPUS)]))


_STEPS: Final[dict[str, Callable[..., object]]] = {
    "hip": _hip,
    "fifo": lambda _, top, name: os.mkfifo(_place(top, name)),
    "link": lambda _, top, name, target: _place(top, name).symlink_to(target),
    "device": lambda _, top, name, number: os.mknod(
        _place(top, name), 0o020666, os.makedev(*divmod(int(number), 256))
    ),
    "sparse": _sparse,
    "directory": lambda _, top, name: _place(top, name).mkdir(),
    "deep": _deep,
    "many": _many,
    "file": lambda _, top, name, data: _place(top, name).write_bytes(base64.b64decode(data)),
}


def check_tree(scene: Scene, data: bytes) -> None:
    """What `isa` and `doctor` say of it, as text and JSON."""
    top = scene.scratch / "rocm"
    top.mkdir()
    _built(scene, top, json.loads(data))
    found = survey(top, scan_limit=1 << 16)
    json.dumps(found.to_json())
    assert len(found.problems) < 1000
    for path in (top / "lib/libx.so", top / "lib/a.kpack"):
        if not os.path.isdir(path):  # a link to one, to all of this machine for example
            with contextlib.suppress(RelinkError):  # it is not there
                json.dumps(survey(path).to_json())
    with patch.object(machine, "find_target", lambda: scene.target):
        health = machine.check_machine([str(top)], str(top), {})
    json.dumps(machine.to_json(health))
    doctor_text(health)


# Profiles


def make_toml(_: Scene, rng: random.Random) -> bytes:
    """A shipped profile with pieces of TOML put in, or nothing but pieces; one in a hundred is large."""
    if rng.random() < 0.2:
        return _right(rng)
    text = b""
    if rng.random() < 0.6:
        text = edited_text(
            rng.choice(sorted(shipped_directory("profiles").glob("packages/*.toml"))).read_bytes(), rng
        )
    lines = text.splitlines(keepends=True)
    most = 2000 if rng.random() < 0.01 else 6
    for _number in range(rng.randrange(1, most)):
        lines.insert(rng.randrange(len(lines) + 1), _piece(rng, most))
    return b"".join(lines)[: 300 << 10]


def _right(rng: random.Random) -> bytes:
    """A profile that is one, with as much in it as there may be."""
    text = (
        rng.choice(sorted(shipped_directory("profiles").glob("packages/*.toml"))).read_bytes().rstrip()
        + b"\n"
    )
    for number in range(rng.choice((0, 1, 10, 500))):
        text += b'\n[[hints]]\ncode = "RLK1%d"\ntext = """%s"""\n' % (
            number % 10,
            b"a.b.c [{ " * rng.choice((1, 40)),
        )
    return text + b"# " + b"a." * rng.choice((0, 100)) + b"\n"


def _piece(rng: random.Random, most: int) -> bytes:
    count = rng.choice((1, 3, 31, 33, 63, 66, 10 * most, 20 * most))
    key = rng.choice((b"name", b"rpath.drop", b"dlopen", b'"a b"', b"'x'", b"releases", b"hints", b"a"))
    dots = b".".join([rng.choice((b"a", b'"b"', b"'c'", b"1"))] * count)
    value = rng.choice((
        b"1", b'"x"', b"'x'", b"[]", b"{}", b"true", b"nan", b"1979-05-27T07:32:00Z", b"0x" + b"f" * count, b"9" * (count * 10),
        b"[" * count + b"]" * count, b"{a=" * count + b"1" + b"}" * count, b"[" + b'"lib*.so",' * count + b"]",
        b'"""' + b"x\n" * count + b'"""' + b'"' * rng.randrange(3), b"'''" + b"'\n" * count, b'"' + b"\\u00e9" * count + b'"',
        b"[" + b"{" + dots + b"=1},]", b'"' + b"\\" * count, b'"""' + b'\\"""\n' * count, b'["' + b"*a" * count + b'"]',
    ))  # fmt: skip
    return rng.choice((
        key + b" = " + value + b"\n", dots + b" = " + value + b"\n", b"[" + dots + b"]\n", b"[[" + key + b"]]\n",
        b"# " + dots + b"\n",
        b"[[" + dots + b"]]\n" + key + b" = " + value + b"\n", value, b"[" * count, b'\\"""\n' * count, key,
    ))  # fmt: skip


def check_toml(scene: Scene, data: bytes) -> None:
    """Reading it says what it holds, or everything that is wrong with it."""
    path = scene.scratch / "profile.toml"
    path.write_bytes(data)
    error: RelinkError | None = None
    try:
        read_profile(path)
    except RelinkError as caught:
        error = caught
    if error is not None:
        assert len(error.issues) <= 100
        assert len(str(error)) < 1 << 20
        raise error
