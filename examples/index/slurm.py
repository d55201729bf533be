"""Build an index on Slurm: jobs become Dask workers, and `relink index build` gives them its tasks.

Usage: python slurm.py [--show] RECIPE SITE
"""

from __future__ import annotations

import subprocess
import sys

from dask_jobqueue.slurm import SLURMCluster

MEMORY_GIB = 16


def cluster() -> SLURMCluster:
    """Return the cluster; nothing is queued before it is scaled."""
    return SLURMCluster(
        cores=1,
        processes=1,
        memory=f"{MEMORY_GIB}GiB",
        walltime="02:00:00",
        # relink declares the memory of each task; without this, large wheels may meet on one worker.
        worker_extra_args=["--resources", f"memory={MEMORY_GIB << 30}"],
    )


def main(words: list[str]) -> int:
    """Print the job script, or build."""
    with cluster() as started:
        if "--show" in words:
            print(started.job_script())
            return 0
        recipe, site = words
        started.adapt(minimum=1, maximum=40)
        started.wait_for_workers(1)  # as long as the queue takes
        command = ["relink", "index", "build", recipe, "-o", site, "--scheduler", started.scheduler_address]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
