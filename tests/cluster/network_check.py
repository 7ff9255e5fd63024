"""`ddprun test` on namespace hosts, and what is done to them."""

import json

from job import PORT
from bed import PATIENCE, SLOW

# The network's part, from the first node's start to its report.
VERDICT_SECONDS = 5 * SLOW
SLOW_RATE, SLOW_LATENCY = "100mbit", "20ms"


def node(name, finding, side=None):
    return {"id": finding, "node": name, **({"side": side} if side else {})}


def way(source, target, finding):
    return {"id": finding, "from": source, "to": target}


def nothing(_cluster):
    return []


def slow_node(i):
    def spoil(cluster):
        cluster.slow_down(i, SLOW_RATE, SLOW_LATENCY)
        return [node(f"n{i}", "node_slow", "sends")]
    return spoil


def lossy_way(source, target, percent=5):
    def spoil(cluster):
        cluster.lose_one_way(source, target, percent)
        return [way(f"n{source}", f"n{target}", "way_lossy")]
    return spoil


def cut_way(source, target):
    def spoil(cluster):
        cluster.cut_one_way(source, target)
        return [way(f"n{source}", f"n{target}", "way_cut")]
    return spoil


def two_bad_nodes(a, b):
    def spoil(cluster):
        return [finding for i in sorted((a, b)) for finding in slow_node(i)(cluster)]
    return spoil


def all_slow(hosts):
    def spoil(cluster):
        for i in range(1, hosts + 1):
            cluster.slow_down(i, SLOW_RATE, SLOW_LATENCY)
        return []
    return spoil


def start_test(bed, hosts, options=("--network_only", "--json"), first_stdout=None, tag=""):
    """`ddprun test` on hosts 1 … `hosts`."""
    words = ["test", "--nnodes", hosts, "--rdzv_backend", "c10d", "--rdzv_endpoint", f"n1:{PORT}", "--rdzv_id", "exam",
             *options]
    return [bed.run(f"test{tag}{i}", words, host=i) for i in range(1, hosts + 1)]


def report_of(text):
    """The JSON object among a node's output."""
    line = next(line for line in text.splitlines() if line.startswith('{"network"'))
    return json.loads(line)


def cut_from_endpoint(i, towards):
    """Host i doesn't get through to the endpoint's host, or no answer of that gets through to it: it is left out."""
    def spoil(cluster):
        cluster.cut_one_way(*((i, 1) if towards else (1, i)))
        return [node("one more node", "node_missing", "both")]
    return spoil


def examine(bed, hosts, tag="", wait=None):
    """Runs the network's part: (report, exit statuses). `wait`: seconds for all nodes to come, in place of the default."""
    conf = ["--rdzv_conf", f"join_timeout={wait}"] if wait else []
    nodes = start_test(bed, hosts, options=("--network_only", "--json", *conf), tag=tag)
    statuses = [agent.wait(PATIENCE) for agent in nodes]
    if not any('{"network"' in agent.text() for agent in nodes):
        raise AssertionError("there is no report in: " + "\n".join(f"{agent.name}: {agent.text()}" for agent in nodes))
    return report_of(nodes[0].text())["network"], statuses


def accusations(report):
    """The findings without their texts, sorted by host, because nodes are numbered in the order in which they join."""
    said = [{key: finding[key] for key in ("id", "node", "side", "from", "to") if key in finding}
            for finding in report["findings"]]
    return sorted(said, key=lambda finding: finding.get("node", ""))
