"""Calls each collective of torch.distributed and prints its result, or its error's type: every_collective.py elastic|torch.

Each line is NAME: RESULT of rank 1. With a group of elastic.init_process_group() they are those of torch's own group.
"""

import os
import sys
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
warnings.simplefilter("ignore")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed._functional_collectives as functional  # noqa: E402

if sys.argv[1] == "elastic":
    from ddprun import elastic
    elastic.init_process_group("gloo")
else:
    dist.init_process_group("gloo")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
OTHER = (RANK + 1) % SIZE


def own(size=2, dtype=torch.float32):
    return (torch.arange(size) + 10 * RANK + 1).to(dtype)


def empty(size=2):
    return torch.zeros(size)


def list_of(size=2):
    return [empty(size) for _ in range(SIZE)]


CALLS = {}


def call(function):
    CALLS[function.__name__] = function
    return function


def of_operation(operation, dtype):
    def reduce():
        tensor = own(dtype=dtype)
        dist.all_reduce(tensor, op=operation)
        return tensor
    return reduce


for name in ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"):
    for dtype in (torch.float32, torch.int64, torch.bfloat16):
        CALLS[f"all_reduce {name} {dtype}"] = of_operation(getattr(dist.ReduceOp, name), dtype)


def with_output(function, output, *arguments, **named):
    """The output after a collective, and after the same without waiting at once."""
    def run():
        first = output()
        function(first, *(one() for one in arguments), **named)
        second = output()
        work = function(second, *(one() for one in arguments), async_op=True, **named)
        work.wait()
        return first, second
    return run


CALLS.update({
    "broadcast": with_output(dist.broadcast, own, src=1),
    "reduce": with_output(dist.reduce, own, dst=1),
    "all_gather": with_output(dist.all_gather, list_of, own),
    "all_gather_into_tensor": with_output(dist.all_gather_into_tensor, lambda: empty(2 * SIZE), own),
    "reduce_scatter": with_output(dist.reduce_scatter, empty, lambda: [own() + one for one in range(SIZE)]),
    "reduce_scatter_tensor": with_output(dist.reduce_scatter_tensor, empty, lambda: own(2 * SIZE)),
    "all_to_all": with_output(dist.all_to_all, list_of, lambda: [own() + one for one in range(SIZE)]),
    "all_to_all_single": with_output(dist.all_to_all_single, lambda: empty(2 * SIZE), lambda: own(2 * SIZE)),
    "all_reduce_coalesced": with_output(dist.all_reduce_coalesced, lambda: [own(), own(3)]),
    "all_gather_coalesced": with_output(dist.all_gather_coalesced, lambda: [[empty(), empty(3)] for _ in range(SIZE)],
                                        lambda: [own(), own(3)]),
})


@call
def all_to_all_single_uneven():
    sizes = [one + 1 for one in range(SIZE)]
    output = empty(sizes[RANK] * SIZE)
    dist.all_to_all_single(output, own(sum(sizes)), [sizes[RANK]] * SIZE, sizes)
    return output


@call
def gather():
    outputs = list_of() if RANK == 1 else None
    dist.gather(own(), outputs, dst=1)
    return outputs


@call
def barriers():
    dist.monitored_barrier()
    group = dist.new_group(backend="gloo")
    total = own()
    dist.all_reduce(total, group=group)
    dist.destroy_process_group(group)
    return total


@call
def types_of_devices():
    return torch.device("cpu") in dist.group.WORLD._device_types  # torch.distributed.checkpoint asks


@call
def scatter():
    output = empty()
    dist.scatter(output, [own() + one for one in range(SIZE)] if RANK == 0 else None, src=0)
    return output


@call
def objects():
    gathered, told, dealt = [None] * SIZE, [{"rank": RANK}, "x"], [None]
    dist.all_gather_object(gathered, ("rank", RANK))
    dist.broadcast_object_list(told, src=0)
    dist.scatter_object_list(dealt, list(range(SIZE)) if RANK == 0 else None, src=0)
    collected = [None] * SIZE if RANK == 1 else None
    dist.gather_object(RANK, collected, dst=1)
    return gathered, told, dealt, collected


@call
def messages():
    got = empty()
    if RANK == 0:
        dist.send(own(), 1)
        dist.recv(got, 1)
    elif RANK == 1:
        dist.recv(got)
        dist.send(own(), 0)
    return got


@call
def messages_beside():
    got = empty()
    works = [dist.isend(own(), OTHER), dist.irecv(got, (RANK - 1) % SIZE)]
    for work in works:
        work.wait()
    again = empty()
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, own(), OTHER), dist.P2POp(dist.irecv, again, (RANK - 1) % SIZE)]):
        work.wait()
    return got, again


@call
def barriers():
    dist.barrier()
    work = dist.barrier(async_op=True)
    work.wait()
    return work.is_completed()


@call
def futures():
    tensor = own()
    future = dist.all_reduce(tensor, async_op=True).get_future()
    return future.wait()


@call
def of_some_ranks():
    group = dist.new_group([0, 1])
    if RANK > 1:
        return None
    tensor = own()
    dist.all_reduce(tensor, group=group)
    return tensor, dist.get_rank(group), dist.get_world_size(group), dist.get_process_group_ranks(group)


@call
def functional_ones():
    group = dist.group.WORLD
    return [functional.all_reduce(own(), "sum", group) + 0, functional.all_gather_tensor(own(), 0, group) + 0,
            functional.reduce_scatter_tensor(own(2 * SIZE), "sum", 0, group) + 0, functional.broadcast(own(), 1, group) + 0,
            functional.all_to_all_single(own(2 * SIZE), None, None, group) + 0]


@call
def meshes():
    from torch.distributed.device_mesh import init_device_mesh
    mesh = init_device_mesh("cpu", (SIZE,))
    tensor = own()
    dist.all_reduce(tensor, group=mesh.get_group())
    return tensor


@call
def tensors_of_a_mesh():
    try:
        from torch.distributed.tensor import DTensor, Replicate, Shard
    except ImportError:
        from torch.distributed._tensor import DTensor, Replicate, Shard
    from torch.distributed.device_mesh import init_device_mesh
    mesh = init_device_mesh("cpu", (SIZE,))
    whole = DTensor.from_local(own(), mesh, [Shard(0)])
    return whole.full_tensor(), (whole * 2).redistribute(mesh, [Replicate()]).to_local(), whole.sum().full_tensor()


def main():
    for name, function in CALLS.items():
        try:
            result = repr(function())
        except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
            result = type(error).__name__
        if RANK == 1:
            print(f"{name}: {' '.join(result.split())}", flush=True)
    dist.barrier()


if __name__ == "__main__":
    main()
