"""Stand-ins of hosts whose ROCm nobody may change: a supercomputer with modules, and what its users install.

Names of files, sonames, symbols, variables and directories are those of the reports that each function names. Each library has a
few functions, which return a number. Nothing of relink is imported.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.cc import shared
from tests.support.wheels import make_wheel
from tests.support.works import TAG

RCCL, SMI, HIP = "librccl.so.1", "librocm_smi64.so", "libamdhip64.so"
WINDOW = "ncclCommWindowRegister"
BESIDE = "-Wl,--enable-new-dtags,-rpath,$ORIGIN"
LOAD = (
    b"import ctypes, os\nlib = ctypes.CDLL(os.path.join(os.path.dirname(__file__), 'lib.so'), os.RTLD_NOW)\n"
)


def rocm(opt: Path, release: str) -> Path:
    """``/opt/rocm-RELEASE`` as AMD's packages make it: HIP, SMI under .so.7, RCCL 2.26."""
    prefix = opt / f"rocm-{release}"
    (prefix / ".info").mkdir(parents=True)
    (prefix / ".info/version").write_text(f"{release}-1\n")
    major = release.partition(".")[0]
    hip = shared(prefix / f"lib/{HIP}.{major}", "int hipMalloc(void){return 40;}")
    shared(prefix / f"lib/{SMI}.7", "int rsmi_init(void){return 7;}")
    source = "int hipMalloc(void); int ncclGetVersion(void){return 22600 + hipMalloc() - 40;}"
    shared(prefix / f"lib/{RCCL}", source, needed=[hip], flags=[BESIDE])
    return prefix


def module_variables(prefix: Path) -> dict[str, str]:
    """What ``module load rocm/RELEASE`` of HPE's programming environment sets (``module show`` in ROCm/jax#268)."""
    release = prefix.name.partition("-")[2]
    return {
        "LOADEDMODULES": f"craype-x86-trento:libfabric/1.22.0:PrgEnv-gnu/8.6.0:rocm/{release}",
        "CRAY_ROCM_DIR": str(prefix),
        "CRAY_ROCM_PREFIX": str(prefix),
        "CRAY_ROCM_VERSION": release,
        "ROCM_PATH": str(prefix),
        "HIP_LIB_PATH": f"{prefix}/lib",
        "LD_LIBRARY_PATH": f"{prefix}/lib/roctracer:{prefix}/lib/rocprofiler:{prefix}/lib",
    }


def jax_wheel(directory: Path, *, smi: str = "1", window: bool = True, dw: bool = True) -> Path:
    """A plugin of JAX that was built with another ROCm than the host has.

    lumi-ai-factory/laifs-container-recipes#31: it wants librocm_smi64.so.1, libdw.so.1, and a function that RCCL has since 2.27.
    ROCm/jax#268: librocm_smi64.so.6.
    """
    built = directory / "built-with"
    hip = shared(built / f"{HIP}.7", "int hipMalloc(void){return 0;}")
    needed = [hip, shared(built / f"{SMI}.{smi}", "int rsmi_init(void){return 0;}")]
    nccl = f"int ncclGetVersion(void){{return 0;}} int {WINDOW}(void *p){{return 0;}}"
    needed.append(shared(built / RCCL, nccl))
    source = "int hipMalloc(void), rsmi_init(void), ncclGetVersion(void);"
    source += "int run(void){return hipMalloc() + rsmi_init();} int version(void){return ncclGetVersion();}"
    if dw:
        needed.append(shared(built / "libdw.so.1", "int dwfl_begin(void){return 0;}"))
        source += "int dwfl_begin(void); int trace(void){return dwfl_begin();}"
    if window:
        source += f"int {WINDOW}(void *); int window(void){{return {WINDOW}(0);}}"
    member = shared(directory / "built/lib.so", source, needed=needed, flags=["-Wl,-rpath,/opt/rocm/lib"])
    return make_wheel(
        directory / "fetched",
        {"jaxdemo/__init__.py": LOAD, "jaxdemo/lib.so": member},
        name="jaxdemo",
        tag=TAG,
    )


def torch_wheel(directory: Path) -> Path:
    """A torch with HIP 6.1 inside of it, as pytorch.org's: without numbers in the names (vllm-project/vllm#8042)."""
    lib = directory / "torch-lib"
    plain = shared(lib / f"{HIP}", "int hipMalloc(void){return 1;}", soname=HIP)
    c10 = shared(
        lib / "libc10_hip.so",
        "int hipMalloc(void); int c10(void){return hipMalloc();}",
        needed=[plain],
        flags=[BESIDE],
    )
    hip = shared(lib / f"{HIP}", "int hipMalloc(void){return 1;}", soname=f"{HIP}.6")
    init = LOAD.replace(b"'lib.so'), os.RTLD_NOW", b"'lib', 'libc10_hip.so'), os.RTLD_GLOBAL")
    files: dict[str, bytes | Path] = {
        "torch/__init__.py": init,
        f"torch/lib/{HIP}": hip,
        "torch/lib/libc10_hip.so": c10,
    }
    return make_wheel(directory / "fetched", files, name="torch", tag=TAG)


def vllm_wheel(directory: Path, prefix: Path) -> Path:
    """An extension of torch that was built on the host, with a function that its HIP has and torch's has not."""
    hip = prefix / f"lib/{HIP}.6"
    source = "int hipGetFuncBySymbol(void), c10(void); int run(void){return hipGetFuncBySymbol() + c10();}"
    c10 = directory / "torch-lib/libc10_hip.so"
    member = shared(
        directory / "built/vllm.so", source, needed=[c10, hip], flags=["-Wl,-rpath,/opt/rocm/lib"]
    )
    files: dict[str, bytes | Path] = {"vllm/__init__.py": b"import torch\n" + LOAD, "vllm/lib.so": member}
    return make_wheel(directory / "fetched", files, name="vllm", tag=TAG, requires=("torch",))


def wsl(root: Path) -> Path:
    """``/opt/rocm`` within WSL as AMD's packages leave it: the HSA runtime of hsa-runtime-rocr4wsl-amdgpu, and no libroctx64."""
    script = root / "hsa.map"
    root.mkdir(parents=True, exist_ok=True)
    script.write_text("ROCR_1 { global: *; };")
    source = "int hsa_init(void){return 1000;}"
    shared(root / "opt/rocm/lib/libhsa-runtime64.so.1", source, flags=[f"-Wl,--version-script={script}"])
    (root / "opt/rocm/.info").mkdir()
    (root / "opt/rocm/.info/version").write_text("7.2.0-43\n")
    return root / "opt/rocm"


def marking_wheel(directory: Path) -> Path:
    """A package of which a library marks ranges for a profile (ROCm/legacy-rocm-build#6053: libroctx64.so.4 is not there)."""
    roctx = shared(directory / "built-with/libroctx64.so.4", "int roctxRangePushA(const char *m){return 0;}")
    source = 'int roctxRangePushA(const char *); int push(void){return roctxRangePushA("x");}'
    member = shared(directory / "built/lib.so", source, needed=[roctx], flags=["-Wl,-rpath,/opt/rocm/lib"])
    files: dict[str, bytes | Path] = {"marks/__init__.py": LOAD, "marks/lib.so": member}
    return make_wheel(directory / "fetched", files, name="marks", tag=TAG)
