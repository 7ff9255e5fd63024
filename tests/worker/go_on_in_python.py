"""go_on_in_python.py FOLDER with_state|without_state PROGRAM: from each checkpoint of programs_probe's PROGRAM in FOLDER torch
takes the next step, and has the next checkpoint's parameters then. docs/CPP.md shows how."""

import io
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


def step_with_adamw(metadata, tensors, has_state):
    """The parameters after the next step of `all_points`."""
    assert metadata["optimizer"].startswith("AdamW with betas 0.9 and 0.999"), metadata
    x = torch.arange(64, dtype=torch.float).view(-1, 1) / 64
    model = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    model.load_state_dict(part(tensors, "model."))
    optimizer = optimizer_of(model, metadata, tensors if has_state else {})
    (model(x) - x * 3 - 1).square().mean().backward()
    optimizer.step()
    return model.state_dict()


def step_with_lion(metadata, tensors, has_state):
    """The parameters after the next step of `lion`, a class of the program's own whose state is an archive."""
    x = torch.arange(64, dtype=torch.float).view(-1, 1) / 64
    model = torch.nn.Linear(1, 1)
    model.load_state_dict(part(tensors, "model."))
    (model(x) - x * 3 - 1).square().mean().backward()
    archive = torch.jit.load(io.BytesIO(tensors["optimizer.archive"].numpy().tobytes()))
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for number, name in enumerate(metadata["optimizer_parameters"].split("\n")):
            average = getattr(archive.state, str(number)).average if has_state else torch.zeros(())
            parameters[name] -= 0.5 * (average * 0.9 + parameters[name].grad * 0.1).sign()
    return model.state_dict()


def main():
    folder, how, program = sys.argv[1:]
    step = {"all_points": step_with_adamw, "lion": step_with_lion}[program]
    files = sorted(Path(folder).glob("checkpoint-*.safetensors"))
    assert len(files) == 9, files
    for before, after in zip(files, files[1:]):
        metadata, tensors = read(before)
        assert "--batch_size 32" in metadata["options"].split("\n"), metadata
        expected = step(metadata, tensors, how == "with_state")
        for name, tensor in part(read(after)[1], "model.").items():
            apart = (tensor - expected[name]).abs().max().item()
            if apart > 1e-6:
                sys.exit(f"{after.name}: {name} is {apart} apart")


if __name__ == "__main__":
    main()
