"""Stand-ins for vendors' wheels and a ROCm: small libraries with the sonames, symbols, versions and search paths that count."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.cc import shared

BESIDE = "$ORIGIN"
OPEN = """import ctypes, os
here = os.path.dirname(__file__)
def open_(name, mode=0):
    return ctypes.CDLL(os.path.join(here, name), os.RTLD_NOW | mode)
"""
"""Python for a package that opens its own libraries: ``open_('lib/libx.so')``."""


def library(
    path: Path,
    *,
    exports: Sequence[str] = (),
    imports: Sequence[str] = (),
    needed: Sequence[Path | str] = (),
    node: str = "",
    search: str = "",
    old: bool = False,
    code: str = "",
    soname: str | None = None,
) -> Path:
    """Compile a library with these functions; returns its path.

    :param node: the version node of what it exports.
    :param search: its search path: a RUNPATH, or a DT_RPATH with `old`.
    """
    text = "".join(f"int {name}(void){{return 0;}}\n" for name in exports)
    text += "".join(f"extern int {name}(void);\n" for name in imports)
    if imports:
        text += f"int uses_{imports[0]}(void){{return {' + '.join(f'{name}()' for name in imports)};}}\n"
    flags = [f"-Wl,-rpath,{search}"] if search else []
    flags.append("-Wl,--disable-new-dtags" if old else "-Wl,--enable-new-dtags")
    with tempfile.TemporaryDirectory() as place:
        if node:
            script = Path(place, "versions")
            script.write_text(f"{node} {{ global: *; }};\n")
            flags.append(f"-Wl,--version-script={script}")
        return shared(path, text + code, soname=soname, needed=needed, flags=flags)


def rocm(prefix: Path, release: str = "7.2.4", hip: str = "7") -> Path:
    """Make a ROCm with HSA, comgr, HIP, rocBLAS, hipBLAS, RCCL, MIOpen and SMI; returns the prefix."""
    lib = prefix / "lib"
    (prefix / ".info").mkdir(parents=True)
    (prefix / ".info/version").write_text(f"{release}\n")
    blas, hipblas = {"7": ("5", "3"), "6": ("4", "2")}[hip]
    hsa = library(
        lib / "libhsa-runtime64.so.1",
        exports=["hsa_init", "hsa_shut_down", "hsa_amd_vmem_map"],
        node="ROCR_1",
        search=BESIDE,
    )
    library(
        lib / "libamd_comgr.so.3",
        exports=["amd_comgr_get_version"],
        node="amd_comgr_3.0",
        search=BESIDE,
    )
    runtime = library(
        lib / f"libamdhip64.so.{hip}",
        exports=["hipMalloc", "hipFree", "hipGetDeviceCount"],
        imports=["hsa_init"],
        needed=[hsa],
        node=f"hip_{hip}.0",
        search=BESIDE,
    )

    def beside(name: str, needs: Path, exports: Sequence[str], imports: Sequence[str]) -> Path:
        return library(lib / name, exports=exports, imports=imports, needed=[needs], search=BESIDE)

    rocblas = beside(f"librocblas.so.{blas}", runtime, ["rocblas_create_handle"], ["hipMalloc"])
    beside(f"libhipblas.so.{hipblas}", rocblas, ["hipblasCreate", "hipblasGemmEx"], ["rocblas_create_handle"])
    beside("librccl.so.1", runtime, ["ncclGetVersion", "ncclAllReduce"], ["hipMalloc"])
    beside("libMIOpen.so.1", rocblas, ["miopenCreate"], ["rocblas_create_handle"])
    library(lib / "librocm_smi64.so.7", exports=["rsmi_init", "rsmi_shut_down"])
    return prefix


def torch(directory: Path, hip: str, hip_exports: Sequence[str]) -> dict[str, bytes | Path]:
    """Make a torch that brings its own HIP; returns the members of its wheel, with a Python part that opens its libraries."""
    hsa = library(directory / "libhsa-runtime64.so.1", exports=["hsa_init"], node="ROCR_1")
    runtime = library(
        directory / f"libamdhip64.so.{hip}",
        exports=hip_exports,
        imports=["hsa_init"],
        needed=[hsa],
        node=f"hip_{hip}.0",
        search=BESIDE,
        old=True,
    )
    c10 = library(directory / "libc10.so", exports=["c10_init"])

    def part(name: str, exports: Sequence[str], imports: Sequence[str], *needed: Path) -> Path:
        return library(
            directory / name, exports=exports, imports=imports, needed=needed, search=BESIDE, old=True
        )

    c10_hip = part("libc10_hip.so", ["c10_hip"], ["hipMalloc"], c10, runtime)
    kernels = part("libtorch_hip.so", ["at_hip"], ["hipFree"], c10_hip, runtime)
    part("libtorch_python.so", ["thp"], [], kernels)
    members: dict[str, bytes | Path] = {f"torch/lib/{path.name}": path for path in directory.iterdir()}
    source = f"{OPEN}open_('lib/libtorch_python.so', ctypes.RTLD_GLOBAL)\n"
    return members | {
        "torch/__init__.py": source.encode(),
        "torch/version.py": f"hip = '{hip}'\n".encode(),
    }
