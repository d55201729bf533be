"""What the proofs cost: resolving, binding and planning onnxruntime-rocm on a full ROCm, beyond reading the wheel.

RELINK_REAL_WHEELS names a directory with the wheel, RELINK_REAL_PREFIX_FULL a prefix of Debian's ROCm 7.2.4 (…/usr).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

from benchmarks.common import Skipped, directory
from relink.loader.target import find_target
from relink.planning.case import Case
from relink.planning.options import Options
from relink.planning.reading import open_wheel
from relink.planning.wheel_plan import plan_wheel
from relink.providers.prefix import open_prefix

_TIMES = 5


def plan_of_onnxruntime_rocm() -> Iterator[str]:
    """Processor seconds of one core, since that is what it takes on a machine that does other things too."""
    wheels = sorted(
        directory("RELINK_REAL_WHEELS", "a directory of wheels").glob("onnxruntime_rocm-*-cp312-*.whl")
    )
    if not wheels:
        raise Skipped("onnxruntime_rocm is not in RELINK_REAL_WHEELS")
    prefix = directory("RELINK_REAL_PREFIX_FULL", "a full ROCm prefix")
    interpreter = prefix / "lib" / "x86_64-linux-gnu" / "ld-linux-x86-64.so.2"
    planning = []
    with ExitStack() as stack:
        target = find_target(interpreter=str(interpreter))
        start = time.process_time()
        wheel = open_wheel(wheels[0], stack, target)
        reading = time.process_time() - start
        for _ in range(_TIMES):
            start = time.process_time()
            providers = (open_prefix(str(prefix), target),)
            planned = plan_wheel(Case(wheel, target, providers, Options(), "run"))
            planning.append(time.process_time() - start)
    plan = planned.plan
    objects = max(len(file.closure) for file in plan.files)
    symbols = sum(table.count for table in wheel.tables.values())
    yield f"{plan.wheel.name} {plan.wheel.version}: {len(plan.files)} ELF files, the largest closure {objects} objects"
    yield f"  reading the wheel              {reading:.2f} s of one core ({symbols} symbols in its own files)"
    yield f"  resolving, binding, planning   {min(planning):.2f} s (worst {max(planning):.2f})"
    yield f"  ratio: {min(planning) / reading:.2f} of what reading takes"


BENCHMARKS = (plan_of_onnxruntime_rocm,)
