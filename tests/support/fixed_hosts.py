"""Stand-ins of hosts whose ROCm nobody may change: a supercomputer with modules, and what its users install.

Names of files, sonames, symbols, variables and directories are those of the reports that each function names. Each library has a
few functions, which return a number. Nothing of relink is imported.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.cc import cc, shared
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


def split_rocm(opt: Path) -> tuple[Path, Path, Path]:
    """A ROCm as EasyBuild and Spack install it, each part in a prefix of its own; no library of it has a search path.

    HIP and the SMI library are in the first, RCCL in the second, MIOpen, which needs both, in the third.
    """
    main, second, third = opt / "ROCm-7.0.3", opt / "RCCL-2.27", opt / "MIOpen-3.5"
    hip = shared(main / f"lib/{HIP}.7", "int hipMalloc(void){return 40;}")
    shared(main / f"lib/{SMI}.7", "int rsmi_init(void){return 7;}")
    source = "int hipMalloc(void); int ncclGetVersion(void){return 22700 + hipMalloc() - 40;}"
    rccl = shared(second / f"lib64/{RCCL}", source, needed=[hip])
    source = (
        "int hipMalloc(void), ncclGetVersion(void); int miopen(void){return hipMalloc() + ncclGetVersion();}"
    )
    shared(third / "lib/libMIOpen.so.1", source, needed=[hip, rccl])
    return main, second, third


def learning_wheel(directory: Path) -> Path:
    """A package that needs libMIOpen.so.1 and HIP."""
    built = directory / "built-with"
    hip = shared(built / f"{HIP}.7", "int hipMalloc(void){return 0;}")
    miopen = shared(built / "libMIOpen.so.1", "int miopen(void){return 0;}")
    source = "int miopen(void), hipMalloc(void); int run(void){return miopen() + hipMalloc();}"
    needed = [miopen, hip]
    member = shared(directory / "built/lib.so", source, needed=needed, flags=["-Wl,-rpath,/opt/rocm/lib"])
    files: dict[str, bytes | Path] = {"learn/__init__.py": LOAD, "learn/lib.so": member}
    return make_wheel(directory / "fetched", files, name="learn", tag=TAG)


def core(opt: Path) -> Path:
    """``/opt/rocm/core-7.14`` as AMD's packages and images have it, and no cache of ld.so (ROCm/TheRock#6716)."""
    prefix = opt / "rocm/core-7.14"
    prefix.parent.mkdir(parents=True, exist_ok=True)
    rocm(opt, "7.14.0").rename(prefix)
    hip = prefix / f"lib/{HIP}.7"
    shared(hip, "int hipMalloc(void){return 40;} int hipGetDeviceCount(int *n){*n = 1; return 0;}")
    source = "int hipGetDeviceCount(int *); int hipblasCreate(void){int n; return hipGetDeviceCount(&n);}"
    shared(prefix / "lib/libhipblas.so.3", source, needed=[hip], flags=[BESIDE])
    return prefix


def llama(directory: Path, built_with: Path, name: str = "llama.cpp") -> Path:
    """llama.cpp as cmake builds it for a ROCm elsewhere: all in one directory (ggml-org/llama.cpp#25807)."""
    root, lib = directory / name, built_with / "lib"
    base = shared(root / "libggml-base.so.0", "int ggml_base(void){return 1;}")
    source = "int hipblasCreate(void), hipGetDeviceCount(int *), ggml_base(void);"
    source += (
        "int ggml_hip(void){int n; return hipblasCreate() || hipGetDeviceCount(&n) ? 0 : n * ggml_base();}"
    )
    flags = [f"{BESIDE}:/home/build/rocm/lib"]
    needed = [base, lib / "libhipblas.so.3", lib / f"{HIP}.7"]
    hip = shared(root / "libggml-hip.so.0", source, needed=needed, flags=flags)
    main = (
        '#include <stdio.h>\nint ggml_hip(void); int main(void){printf("%d GPU\\n", ggml_hip()); return 0;}'
    )
    cc(main, root / "llama-server", *flags, "-Wl,--allow-shlib-undefined", needed=[hip])
    return root


def ollama(directory: Path) -> Path:
    """ollama's archive: the backend and its ROCm in a directory of their own, found by a variable that the program sets."""
    lib = directory / "ollama/lib/ollama"
    base = shared(lib / "libggml-base.so.0", "int ggml_base(void){return 1;}")
    hip = shared(lib / f"rocm/{HIP}.7", "int hipGetDeviceCount(int *n){*n = 1; return 0;}")
    source = "int hipGetDeviceCount(int *), ggml_base(void);"
    source += "int ggml_hip(void){int n; return hipGetDeviceCount(&n) + ggml_base();}"
    shared(lib / "rocm/libggml-hip.so", source, needed=[base, hip])
    (directory / "ollama/bin").mkdir()
    cc("int main(void){return 0;}", directory / "ollama/bin/ollama")
    return directory / "ollama"


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
