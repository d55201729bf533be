"""PyTorch's two layouts for ROCm as its documents have them. No wheel was read: these are not recordings.

pytorch ``.ci/manywheel/build_rocm.sh`` lists the libraries that are copied into torch/lib, ``build_common.sh`` says under which
names (none has a number), that NEEDED is replaced accordingly, and which DT_RPATH is written. The names of torch's own libraries
are those of its CMake targets. What a lightweight wheel needs of the system is from ROCm/legacy-rocm-build issue 6053 and from
the same list, with the numbers that ROCm 7 has.
"""

from __future__ import annotations

from typing import Any

ROCM = {
    "libMIOpen": "1",
    "libamdhip64": "7",
    "libhipblas": "3",
    "libhipfft": "0",
    "libhsa-runtime64": "1",
    "libamd_comgr": "3",
    "librocblas": "5",
    "librocm_smi64": "7",
    "libroctx64": "4",
    "libhipblaslt": "1",
    "libhiprtc": "7",
}
HIP = ("libMIOpen", "libamdhip64", "libhipblas", "libhipfft", "libhipblaslt", "libhiprtc", "libroctx64")
"""Which of them torch's own GPU library needs, and of what it imports one symbol each."""


def _elf(soname: str | None, needed: list[str], **more: Any) -> dict[str, Any]:
    return {"soname": soname, "needed": needed, "rpath": "$ORIGIN", "imports": [], "exports": [], **more}


def torch(*, bundled: bool) -> dict[str, Any]:
    """Return a listing of the shape of a recording: with its own ROCm, or for the system's."""

    def named(name: str) -> str:
        return f"{name}.so" if bundled else f"{name}.so.{ROCM[name]}"

    elf = {
        "torch/_C.cpython-312-x86_64-linux-gnu.so": _elf(
            None, ["libtorch_python.so"], rpath="$ORIGIN:$ORIGIN/lib"
        ),
        "torch/lib/libtorch_global_deps.so": _elf("libtorch_global_deps.so", []),
        "torch/lib/libtorch_python.so": _elf("libtorch_python.so", ["libtorch.so", "libshm.so"]),
        "torch/lib/libshm.so": _elf("libshm.so", ["libtorch.so", "libc10.so"]),
        "torch/lib/libtorch.so": _elf("libtorch.so", ["libtorch_cpu.so", "libtorch_hip.so"]),
        "torch/lib/libtorch_cpu.so": _elf("libtorch_cpu.so", ["libc10.so", named("libroctx64")]),
        "torch/lib/libtorch_hip.so": _elf(
            "libtorch_hip.so", ["libc10_hip.so", "libtorch_cpu.so", *map(named, HIP)]
        ),
        "torch/lib/libc10.so": _elf("libc10.so", []),
        "torch/lib/libc10_hip.so": _elf("libc10_hip.so", ["libc10.so", named("libamdhip64")]),
    }
    imports = [["hipMalloc", "hip_4.2", named("libamdhip64")], ["hipblasCreate", None, None]]
    elf["torch/lib/libtorch_hip.so"]["imports"] = imports
    if bundled:
        for name, number in ROCM.items():  # the file is renamed, its soname is not
            elf[f"torch/lib/{name}.so"] = _elf(f"{name}.so.{number}", [])
        elf["torch/lib/libamdhip64.so"]["exports"] = [["hipMalloc", "hip_4.2"]]
        elf["torch/lib/libhipblas.so"]["exports"] = [["hipblasCreate", None]]
    version = "2.9.1+rocm7.2" if bundled else "2.9.1+rocm7.2.0.lw.git7e1940d4"
    return {
        "read": {"filename": f"torch-{version}-cp312-cp312-linux_x86_64.whl"},
        "record_issues": {},
        "members": ["torch/__init__.py"],
        "elf": elf,
    }
