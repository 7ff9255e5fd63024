#!/usr/bin/env python3
"""Whether healthy nodes are ever taken for dead: three hosts made of namespaces, under bad conditions.

false_alarms_bench.py [--lease SECONDS] [--minutes N] [--loss PERCENT] [--hogs N] [--stall-every SECONDS]

Runs a job of three elastic nodes while packets between the hosts are lost, processes that use all the CPU
compete with it, and the rendezvous service is stopped (SIGSTOP) for 1.2 leases now and then: longer than any lease
may last, and short enough to come back within the service loss timeout (10 s). Exit status 1 when a node counted as
lost or a worker was restarted; 77 where there are no namespaces.
"""

import argparse
import os
import signal
import subprocess
import sys
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "cluster"))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))

import cluster  # noqa: E402
from bed import Bed, TimelineError  # noqa: E402

PORT = 29400
NODES = 3
HOG = [sys.executable, "-c", "while True: pass"]


def start(bed, lease):
    """The job's agents and the pid of its service."""
    conf = f"lease={lease:g},last_call_timeout=30"
    agents = [bed.agent(f"agent{host}", ["--nnodes", f"1:{NODES}", "--rdzv_backend", "c10d", "--rdzv_endpoint",
                                         f"n1:{PORT}", "--rdzv_conf", conf, "--max_restarts", 3], host=host)
              for host in range(1, NODES + 1)]
    bed.next_workers(0, NODES, NODES, alive=agents)
    return agents, bed.event("service_started")["service_pid"]


def watch(bed, agents, service, arguments):
    """Looks on until the end; returns the events that should not have come."""
    end = time.monotonic() + arguments.minutes * 60
    stalls = 0
    wrong = []
    while not wrong and time.monotonic() < end:
        pause = min(arguments.stall_every, end - time.monotonic())
        wrong = look(bed, agents, pause)
        if not wrong and time.monotonic() < end:
            stalls += 1
            os.kill(service, signal.SIGSTOP)
            wrong = look(bed, agents, 1.2 * arguments.lease)
            os.kill(service, signal.SIGCONT)
    return wrong, stalls


def look(bed, agents, seconds):
    def alarms():
        return [line for name in ("node_lost", "round_closing", "worker_exit") for line in bed.events.find(name)]
    try:
        return bed.wait(alarms, "nothing", seconds, alive=agents)
    except TimelineError as error:
        return [] if "nothing" in str(error) and not any(agent.ended() for agent in agents) else [str(error)]


def run(arguments):
    hosts = cluster.Cluster(NODES)
    bed = Bed(hosts)
    hogs = [subprocess.Popen(HOG) for _ in range(arguments.hogs)]  # pylint: disable=consider-using-with
    try:
        agents, service = start(bed, arguments.lease)
        if arguments.loss:
            hosts.lose(arguments.loss)
        began = time.monotonic()
        wrong, stalls = watch(bed, agents, service, arguments)
        print(f"lease {arguments.lease:g} s, {arguments.loss} % of packets lost, {arguments.hogs} busy processes, "
              f"{stalls} stalls of the service, {(time.monotonic() - began) / 60:.1f} min, {NODES} nodes: "
              f"{len(wrong)} false alarms", flush=True)
        if wrong:
            print(bed.story())
    finally:
        for hog in hogs:
            hog.kill()
        bed.stop()
        bed.close()
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lease", type=float, default=5.0, help="seconds")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--loss", type=int, default=5, help="percent of all packets")
    parser.add_argument("--hogs", type=int, default=os.cpu_count(), help="processes that use all the CPU they get")
    parser.add_argument("--stall-every", type=float, default=60.0, help="seconds between two stops of the service")
    arguments = parser.parse_args()
    return cluster.run_inside(lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
