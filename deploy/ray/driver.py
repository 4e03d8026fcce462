"""Runs a Lockstep job on a Ray cluster: starts an agent of `lockstep launch` on each node, and starts the job again after a loss.

    ray job submit --working-dir deploy/ray -- python driver.py -c /shared/job.yaml output_dir=/shared/run

Ray's TorchTrainer is not used, because it would open its own process group instead of Lockstep's.
"""

import os
import secrets
import subprocess
import sys

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

GOES_ON = {7, 75, 143}  # a node was lost; saved and stopped; ended by Ray


@ray.remote(max_retries=0)
def agent(rank, nodes, ranks_per_node, address, secret, arguments):
    command = ["lockstep", "launch", "--nnodes", str(nodes), "--node-rank", str(rank), "--master-addr", address[0],
               "--master-port", str(address[1]), "--nproc-per-node", str(ranks_per_node), *arguments]
    return subprocess.run(command, env={**os.environ, "LOCKSTEP_RDZV_SECRET": secret}, check=False).returncode


@ray.remote(num_cpus=0)
def address_here():
    import socket  # runs on the node of rank 0, not in the driver
    with socket.socket() as probe:
        probe.bind(("", 0))
        return ray.util.get_node_ip_address(), probe.getsockname()[1]


def train(nodes, ranks_per_node, resources, arguments, strategy="STRICT_SPREAD", tries=20):
    """Returns the exit code: 0, or that of an error that a new attempt would repeat."""
    ray.init(address="auto", ignore_reinit_error=True)
    others = {name: count for name, count in resources.items() if name not in ("CPU", "GPU")}
    for _ in range(tries):
        group = placement_group([resources] * nodes, strategy=strategy)
        ray.get(group.ready())

        def place(rank, group=group):
            return PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=rank)
        address = ray.get(address_here.options(scheduling_strategy=place(0)).remote())
        secret = secrets.token_hex(32)
        runs = [agent.options(scheduling_strategy=place(rank), num_cpus=resources.get("CPU", 0), num_gpus=resources.get("GPU", 0),
                              resources=others).remote(rank, nodes, ranks_per_node, address, secret, arguments)
                for rank in range(nodes)]
        try:
            code = max(ray.get(runs))
        except ray.exceptions.RayError as error:  # the node failed
            print(error, file=sys.stderr)
            code = 7
        ray.util.remove_placement_group(group)
        if code not in GOES_ON:
            return code
    return code


if __name__ == "__main__":
    sys.exit(train(int(os.environ.get("NODES", "1")), int(os.environ.get("RANKS_PER_NODE", "8")),
                   {"GPU": int(os.environ.get("RANKS_PER_NODE", "8"))}, ["train", *sys.argv[1:], "resume_from_checkpoint=true"]))
