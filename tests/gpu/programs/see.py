"""Writes down what a worker sees: the GPUs of the driver and, when asked, of torch; its variables and its CPUs."""

import ctypes
import json
import os
import sys
import time
import uuid

NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE


def uuids_of_the_driver():
    """Asks the driver without torch, in a tenth of the time; None if there is no driver."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    status = cuda.cuInit(0)
    if status == NO_DEVICE:
        return []
    count = ctypes.c_int()
    if status != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return [f"cuInit: {status}"]
    found = []
    ask_uuid = getattr(cuda, "cuDeviceGetUuid_v2", None) or cuda.cuDeviceGetUuid
    for number in range(count.value):
        device, sixteen = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        cuda.cuDeviceGet(ctypes.byref(device), number)
        ask_uuid(sixteen, device)
        found.append(f"GPU-{uuid.UUID(bytes=bytes(sixteen))}")
    return found


def torch_sees():
    import torch  # pylint: disable=import-outside-toplevel
    number = int(os.environ["LOCAL_RANK"])
    seen = {"available": torch.cuda.is_available(), "count": torch.cuda.device_count(), "name": None, "sum": None}
    if number < seen["count"]:
        torch.cuda.set_device(number)
        seen.update(name=torch.cuda.get_device_name(), sum=torch.ones(3, device="cuda").sum().item())
    return seen


def main():
    line = {"event": "saw", "t": time.monotonic(), "rank": int(os.environ["RANK"]), "local_rank": int(os.environ["LOCAL_RANK"]),
            "world": int(os.environ["WORLD_SIZE"]), "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "cpus": sorted(os.sched_getaffinity(0)), "uuids": uuids_of_the_driver(),
            "torch": torch_sees() if "--torch" in sys.argv else None}
    with open(sys.argv[1], "ab", buffering=0) as sink:
        sink.write((json.dumps(line) + "\n").encode())


main()
