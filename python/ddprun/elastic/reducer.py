"""A new reducer in a DistributedDataParallel that stays.

A new DDP would broadcast all parameters (834 ms for 100 million); a new reducer in the old one takes 1 to 34 ms. All ranks must
begin with the same buckets: survivors have rebuilt theirs in the order in which gradients came in the first step, a new rank has
the initial ones. So survivors send their *layout*, and all ranks begin with it. Sums are then added in the same order as before,
so the trained parameters have the same bits as without the fault.
"""

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

_PARTS = ("_build_params_for_reducer", "_build_debug_param_to_name_mapping", "_ddp_init_helper", "_get_ddp_logging_data")


def missing_parts():
    missing = [f"DistributedDataParallel.{name}" for name in _PARTS if not hasattr(DistributedDataParallel, name)]
    wanted = ((dist.Reducer, "_rebuild_buckets"), (dist.Logger, "set_runtime_stats_and_log"))
    return missing + [f"{owner.__name__}.{name}" for owner, name in wanted if not hasattr(owner, name)]


def rebuild(ddp):
    """Rebuilds the buckets, if that is due. Returns whether it was. A collective."""
    was_due = ddp.reducer._rebuild_buckets()
    if was_due:
        ddp.logger.set_runtime_stats_and_log()  # layout_of() reads what this writes; otherwise a forward pass does it
    return was_due


def layout_of(ddp):
    """The buckets that the reducer has rebuilt: lists of parameters' numbers, in its order; None = it has not."""
    if getattr(ddp, "reducer", None) is None:
        return None
    data = ddp._get_ddp_logging_data()
    if not data.get("has_rebuilt_buckets"):
        return None
    return [[int(one) for one in bucket.split()] for bucket in data["rebuilt_per_bucket_param_indices"].split(",")]


def trained(module):
    """Whether each of its parameters is trained."""
    return [one.requires_grad for one in module.parameters()]


def set_trained(module, flags):
    """flags: trained() of a module alike."""
    for one, is_trained in zip(module.parameters(), flags):
        one.requires_grad_(is_trained)


def reform(ddp, layout, flags):
    """layout: layout_of() a peer's, or None where no peer has one. flags: trained() of the module when it was wrapped. The reducer
    is for these for good: it knows nothing of those that a script has frozen since, or has begun to train."""
    ddp.reducer = ddp.logger = None  # takes its hooks off the parameters
    now = trained(ddp.module)
    set_trained(ddp.module, flags)
    try:
        _make(ddp, layout)
    finally:
        set_trained(ddp.module, now)


def _make(ddp, layout):
    parameters, expects_sparse = ddp._build_params_for_reducer()
    names = ddp._build_debug_param_to_name_mapping(parameters)
    original = dist._compute_bucket_assignment_by_size

    def given(*arguments, **named):
        _, limits = original(*arguments, **named)
        return list(reversed(layout)), [limits[0] if limits else 0] * len(layout)  # DDP reverses what it gets
    if layout is not None:
        dist._compute_bucket_assignment_by_size = given
    try:
        ddp._ddp_init_helper(parameters, expects_sparse, names, ddp.static_graph)
    finally:
        dist._compute_bucket_assignment_by_size = original
    if ddp.static_graph:
        ddp._static_graph_delay_allreduce_enqueued = False  # the new reducer learns the graph in its first step
        ddp.reducer._set_static_graph()
        ddp.logger._set_static_graph()
    for hook, state in getattr(ddp, "_comm_hooks", []):
        dist._register_comm_hook(ddp.reducer, state, hook)
