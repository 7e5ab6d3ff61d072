"""Run a sweep over a Ray cluster of four nodes, of which one is killed after the first rows."""
from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mmexport.sweep.run import sweep
from mmexport.sweep.store import Store
from tests.sweep.jobs import UNDER, jobs, noted


def main(folder: Path) -> int:
    from ray.cluster_utils import Cluster
    cluster = Cluster(initialize_head=True, head_node_args={'num_cpus': 1, 'include_dashboard': False})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(3)]
    store = Store(folder / 'done.sqlite', UNDER)
    killed: list[Any] = []

    def on_row(row: dict[str, Any], done: int, of: int) -> None:
        print(f'{done}/{of}', flush=True)
        if done == 4:
            cluster.remove_node(nodes[0], allow_graceful=False)
            killed.append(nodes[0])

    try:
        sweep(jobs(24), store, folder, address=cluster.address, run_job=noted, on_row=on_row)
    finally:
        store.close()
        cluster.shutdown()
    return 0 if killed else 1


if __name__ == '__main__':
    sys.exit(main(Path(sys.argv[1])))
