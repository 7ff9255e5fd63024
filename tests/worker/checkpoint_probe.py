"""The model of checkpoint_probe in Python: LOGITS CHECKPOINT...

Prints, a line for each, how far its logits, with what the checkpoint has, are from those that the probe has written down, and
the bound for it.
"""

import struct
import sys

import torch
import torch.nn as nn
from safetensors import safe_open

ULP = 2.0 ** -24  # half a unit in the last place, of 1


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(20, 96), nn.GELU(), nn.Dropout(0.1), nn.Linear(96, 64), nn.GELU(), nn.Linear(64, 10))
        self.tied = self[0].weight


def bound(net, x):
    """Bounds the difference: a sum of n terms is off by n ULPs of its terms' sizes, an activation by 8; layers carry that on."""
    size, error = x.abs(), torch.zeros_like(x)
    for layer in net:
        if isinstance(layer, nn.Linear):
            weight, terms = layer.weight.abs(), layer.in_features + 1
            error = error @ weight.T
            size = size @ weight.T + layer.bias.abs()
            error = error + 2 * terms * ULP * size
        elif isinstance(layer, nn.GELU):
            error = 1.13 * error + 2 * 8 * ULP * size  # its slope is below 1.13
    return error.max().item()


def compare(expected, checkpoint):
    with safe_open(checkpoint, framework="pt") as file:
        stored = {name: file.get_tensor(name) for name in file.keys()}
    model = {name.removeprefix("model."): tensor for name, tensor in stored.items() if name.startswith("model.")}
    net = Net().eval()
    missing, unexpected = net.load_state_dict(model, strict=False)
    assert not unexpected and set(missing) <= {"0.weight"}, (missing, unexpected)  # tied has a second name
    x = torch.linspace(-1, 1, 80).view(4, 20)
    with torch.no_grad():
        print((net(x) - expected).abs().max().item(), bound(net, x))


def main():
    torch.set_num_threads(1)
    with open(sys.argv[1], "rb") as file:
        data = file.read()
    expected = torch.tensor(struct.unpack(f"{len(data) // 4}f", data)).view(-1, 10)
    for checkpoint in sys.argv[2:]:
        compare(expected, checkpoint)


if __name__ == "__main__":
    main()
