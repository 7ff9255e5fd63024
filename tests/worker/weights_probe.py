"""The module of module_probe's `weights` in Python: write FILE, or check FILE TWIN: each number is one higher, in TWIN not."""

import sys

import torch
import torch.nn as nn
from safetensors import safe_open
from safetensors.torch import load_model, save_model


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(10, 8)
        self.norm = nn.BatchNorm1d(8)
        self.mid = nn.Linear(8, 8).to(torch.bfloat16)
        self.lm_head = nn.Linear(8, 10, bias=False)
        self.lm_head.weight = self.wte.weight


def check(written, path):
    read = Net()
    load_model(read, path)  # strict
    with safe_open(path, framework="pt") as file:
        assert file.metadata()["format"] == "pt"
        assert file.metadata()["lm_head.weight"] == "wte.weight"
    assert read.lm_head.weight is read.wte.weight
    expected = written.state_dict()
    for name, tensor in read.state_dict().items():
        assert tensor.dtype == expected[name].dtype, name
        assert torch.equal(tensor, expected[name] + 1), name


def main():
    torch.manual_seed(5)
    written = Net()
    if sys.argv[1] == "write":
        save_model(written, sys.argv[2])
        return
    check(written, sys.argv[2])
    try:
        check(written, sys.argv[3])
    except (AssertionError, KeyError):
        return
    raise AssertionError("what Python wrote is taken for what was made of it")


if __name__ == "__main__":
    main()
