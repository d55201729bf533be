"""Build an index on Kubernetes: pods become Dask workers, and `relink index build` gives them its tasks.

Usage: python kubernetes.py [--show] IMAGE CLAIM RECIPE SITE
IMAGE has relink and Dask; CLAIM is a persistent volume claim that all pods mount at /srv, with the prefixes and the site.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from dask_kubernetes.operator import KubeCluster, make_cluster_spec

MEMORY_GIB = 16


def specification(image: str, claim: str) -> dict[str, Any]:
    """Return the specification of the cluster."""
    found: dict[str, Any] = make_cluster_spec(
        name="relink-index",
        image=image,
        n_workers=4,
        resources={"requests": {"memory": f"{MEMORY_GIB}Gi"}, "limits": {"memory": f"{MEMORY_GIB}Gi"}},
        worker_command=["dask", "worker", "--nthreads", "1", "--resources", f"memory={MEMORY_GIB << 30}"],
    )
    for pod in (found["spec"]["worker"]["spec"], found["spec"]["scheduler"]["spec"]):
        pod["volumes"] = [{"name": "srv", "persistentVolumeClaim": {"claimName": claim}}]
        for container in pod["containers"]:
            container["volumeMounts"] = [{"name": "srv", "mountPath": "/srv"}]
    return found


def main(words: list[str]) -> int:
    """Print the specification, or build."""
    show = "--show" in words
    image, claim, *rest = [word for word in words if word != "--show"]
    if show:
        print(json.dumps(specification(image, claim), indent=2))
        return 0
    recipe, site = rest
    with KubeCluster(custom_cluster_spec=specification(image, claim)) as started:
        started.wait_for_workers(1)
        command = ["relink", "index", "build", recipe, "-o", site, "--scheduler", started.scheduler_address]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
