"""go_on_in_python.py FOLDER with_state|without_state: from each checkpoint of programs_probe's `all_points` in FOLDER torch takes
the next step, and has the next checkpoint's parameters then. docs/CPP.md shows how."""

import sys
from pathlib import Path

import torch
from safetensors import safe_open

RATES = {"0": 0.1, "2": 0.05}  # by layer


def read(path):
    with safe_open(path, "pt") as file:
        return file.metadata(), {name: file.get_tensor(name) for name in file.keys()}


def part(tensors, prefix):
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def optimizer_of(model, metadata, tensors):
    """With what ddprun's has: states are numbered in the order of these names."""
    parameters = dict(model.named_parameters())
    names = metadata["optimizer_parameters"].split("\n")
    groups = [{"params": [parameters[name]], "lr": RATES[name.split(".")[0]]} for name in names]
    optimizer = torch.optim.AdamW(groups, weight_decay=0)
    states = {}
    for name, tensor in part(tensors, "optimizer.").items():
        number, _, field = name.partition(".")
        if number.isdigit():
            states.setdefault(int(number), {})[field] = tensor.float() if field == "step" else tensor
    optimizer.load_state_dict({"state": states, "param_groups": optimizer.state_dict()["param_groups"]})
    return optimizer


def main():
    folder, how = sys.argv[1:]
    files = sorted(Path(folder).glob("checkpoint-*.safetensors"))
    assert len(files) == 9, files
    x = torch.arange(64, dtype=torch.float).view(-1, 1) / 64
    for before, after in zip(files, files[1:]):
        metadata, tensors = read(before)
        assert metadata["optimizer"].startswith("AdamW with betas 0.9 and 0.999"), metadata
        assert "--batch_size 32" in metadata["options"].split("\n"), metadata
        model = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        model.load_state_dict(part(tensors, "model."))
        optimizer = optimizer_of(model, metadata, tensors if how == "with_state" else {})
        (model(x) - x * 3 - 1).square().mean().backward()
        optimizer.step()
        for name, tensor in part(read(after)[1], "model.").items():
            apart = (tensor - model.state_dict()[name]).abs().max().item()
            if apart > 1e-6:
                sys.exit(f"{after.name}: {name} is {apart} apart")


if __name__ == "__main__":
    main()
