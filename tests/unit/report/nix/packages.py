"""Packages for Nix: one that was proved, and one from the table alone."""

from __future__ import annotations

from dataclasses import replace

from relink.report.nix.model import (
    About,
    File,
    Index,
    Package,
    PathEntry,
    Replaced,
    RunPath,
    Source,
    StubFile,
)

PLAIN = Package(
    pname="demo",
    version="1.0",
    source=Source(
        "demo-1.0-cp312-cp312-manylinux_2_34_x86_64.whl",
        "sha256-AAAA=",
        url="https://example.org/demo%2Brocm.whl",
    ),
    python="3.12",
    rocm=7,
    proved=True,
    libraries=(("rocmPackages.clr", ("libamdhip64.so.7",)),),
    files=(
        File(
            "site-packages",
            "demo/a.so",
            RunPath("runpath", (PathEntry(text="$ORIGIN"), PathEntry(attribute="rocmPackages.clr"))),
            (Replaced("libx.so.1", "libx.so.7"),),
        ),
    ),
    undefined=("Py*",),
    again="--gpu gfx1030",
    about=About("Demonstration", "https://example.org", "MIT", "https://example.org/changes", program="demo"),
    dependencies=("numpy", "packaging"),
    imports=("demo",),
    gpus=("gfx1030", "gfx1100"),
)
PACKAGES = {
    "plain": PLAIN,
    "table": replace(
        PLAIN,
        proved=False,
        python=None,
        source=Source(
            "demo-1.0-py3-none-any.whl",
            "sha256-AAAA=",
            index=Index("demo", "1.0", "py3", "py3", "none", "any"),
        ),
        libraries=(*PLAIN.libraries, ("extraLibraries.hipsparselt", ("libhipsparselt.so.0",))),
        stubs=(
            StubFile(
                "site-packages", "demo.libs/relink-stubs/librccl.so.1", "librccl.so.1", "0" * 64, "f0VMRg=="
            ),
        ),
        dependencies=("3to2", "numpy"),
        siblings=("jax-rocm7-pjrt",),
        same_version=("jaxlib",),
        gpus=(),
        about=About('With "quotes"', license="MIT OR (Apache-2.0 AND 0BSD)"),
    ),
}
