"""CUDA, as far as it is recognized: the names of NVIDIA's libraries and packages. relink links no wheel to them."""

from __future__ import annotations

import re

from relink.vendors.protocol import Libraries, Packages, Vendor

_LIBRARY = re.compile(r"lib(?:cuda|cudart|cublas|cublasLt|cufft|cudnn|curand|cusolver|cusparse|nvrtc)\.so")
_DRIVER = re.compile(r"lib(?:cuda|nvidia-[a-z]+|nvcuvid|nvoptix|cudadebugger)\.so\.1$")

cuda = Vendor(
    name="cuda",
    product="NVIDIA's CUDA",
    libraries=Libraries(
        torch_variable="cuda",
        words=("cuda",),
        is_own=lambda soname: _LIBRARY.match(soname) is not None,
        is_driver=lambda soname: _DRIVER.match(soname) is not None,
        driver_file="/dev/nvidiactl",
    ),
    packages=Packages(
        # Directories in site-packages; torch for CUDA depends on distributions whose names begin so.
        is_package=lambda name: name.startswith("nvidia_cu"),
        is_distribution=lambda name: name.startswith("nvidia-"),
    ),
)
"""What says that a library or a package belongs to NVIDIA's stack."""
