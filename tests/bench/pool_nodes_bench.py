#!/usr/bin/env python3
"""Claims in a pool of many nodes: pool_nodes_bench against a real etcd of one member and of three, all on this machine.

    pool_nodes_bench.py --build build/release [--nodes 10,100,1000] [--seconds 10] [--threads 10] [--members 3]

Prints a table. Work is processor time; that of a claim is what a second with claims takes more than one without, by their
number. A claim is refused when its node is out of touch with etcd for longer than its lease: then there is more to do
than this machine can. Exit status 0; else a pool could not be made. Never because of a time.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import etcd  # noqa: E402


def begin(count, folder):
    """With fsync, as an operator runs it."""
    made = []
    for name in (f"m{i}" for i in range(count)):
        os.mkdir(os.path.join(folder, name))
        made.append(etcd.Etcd(os.path.join(folder, name), name=name, alone=False, fsync=True))
    etcd.together(made)
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    parser.add_argument("--nodes", default="10,100,1000")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=10)
    parser.add_argument("--members", type=int, default=3)
    arguments = parser.parse_args()
    if not etcd.program():
        print("no etcd: apt-get install etcd-server")
        return 0
    print("| etcd members | nodes | GPUs | claims/s | refused | accounts with other claims | claim p50, p99 ms "
          "| ms per registration | claims/s, work of one with a look first: nodes, etcd, ms "
          "| work until a node is one of all: nodes, etcd, ms | work of a claim: nodes, etcd, ms "
          "| of a second's rest of a node, ms |\n|---|---|---|---|---|---|---|---|---|---|---|---|")
    failed = 0
    for count in arguments.nodes.split(","):
        with tempfile.TemporaryDirectory(prefix="tnr-bench-") as folder:
            members = begin(arguments.members, folder)
            store = "etcd://" + ",".join(f"{one.host}:{one.port}" for one in members)
            try:
                done = subprocess.run([f"{arguments.build}/bin/pool_nodes_bench", store, count, str(arguments.seconds),
                                       str(arguments.threads), ",".join(str(one.process.pid) for one in members)],
                                      stdout=subprocess.PIPE, text=True,
                                      env={**os.environ, "TNR_LOG": "error"})
            finally:
                for member in members:
                    member.kill()
        failed |= done.returncode
        if not done.stdout:
            continue
        row = json.loads(done.stdout)
        print(f"| {arguments.members} | {row['nodes']} | {row['gpus']} | {row['claims_per_s']:.0f} | {row['failed']} | "
              f"{row['beside_others']} | {row['p50_ms']:.1f}, {row['p99_ms']:.1f} | "
              f"{row['registration_ms']:.1f} | "
              f"{row['looked_claims_per_s']:.0f}, {row['looked_claim_nodes_ms']:.2f}, {row['looked_claim_etcd_ms']:.2f} | "
              f"{row['joining_nodes_ms']:.0f}, {row['joining_etcd_ms']:.0f} | "
              f"{row['claim_nodes_ms']:.2f}, {row['claim_etcd_ms']:.2f} | "
              f"{row['resting_nodes_ms']:.2f}, {row['resting_etcd_ms']:.2f} |", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
