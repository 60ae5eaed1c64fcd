"""Train every model by every method for a few steps and print the SHA-256 of the final parameters as JSON.

Run as a script, in a process of its own: `ENVIRONMENT` makes the arithmetic as independent of the processor as its
libraries allow, and is read when they are loaded. What is left of the processor shows in ``machine``, a hash of
elementary operations: on two machines with the same one the same code computes the same bits.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

# One thread; vector instructions that every x86-64 processor has, in PyTorch, MKL, Numba and the C library.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "NUMBA_CPU_NAME": "generic",
    "NUMBA_CPU_FEATURES": "",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX512F",
}
METHODS = (
    *("uniform", "adv", "eans", "eans+adv", "nscaching", "kbgan", "sans", "softmax", "all"),
    *("all+bce", "all+n3", "bernoulli", "frequency", "igan", "stay-positive"),
)
SETTINGS: dict[str, Any] = {
    "model.dim": 6,
    "train.steps": 24,
    "train.batch_size": 16,
    "train.valid_every": 0,
    "train.patience": 0,
    "train.keep": "last",
    "train.seed": 5,
}
MORE: dict[str, dict[str, Any]] = {
    "eans": {"sampler.negatives": 8, "sampler.reorder_every": 7, "sampler.known_true": "repeats"},
    "kbgan": {"sampler.negatives": 2, "sampler.pool": 6, "sampler.pretrain_steps": 8},
    "igan": {"sampler.negatives": 2, "sampler.pretrain_steps": 8},
    "nscaching": {"sampler.negatives": 3, "sampler.size": 5, "sampler.candidates": 4},
    "all": {},
    "none": {},
}


def machine() -> str:
    """The SHA-256 of what this machine makes of the operations that round."""
    import torch

    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randn(67, 41, generator=generator) for _ in range(2))
    results = [x.exp(), x.abs().log(), x.sigmoid(), x.tanh(), x.sin(), x.abs().sqrt(), x.abs() ** 1.7]
    results += [torch.nn.functional.conv2d(x[None, None], y[None, None, :3, :3])]
    results += [x @ y.T, x.sum(), x.logsumexp(1), torch.nn.functional.logsigmoid(x), (x * y).norm(dim=1)]
    return _sha256(results)


def _sha256(tensors: list[Any]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


def final_weights() -> dict[str, dict[str, Any]]:
    """By ``MODEL/METHOD``: the SHA-256 of the parameters after the last step, and their sum of squares."""
    from eans.models import MODELS
    from eans.recipes import load, names
    from eans.recipes.build import build_trainer, resolve
    from helpers_graphs import random_graph

    graph = random_graph(31, 4, (90, 8, 8), seed=2)
    found: dict[str, dict[str, Any]] = {}
    for model in MODELS:
        for method in METHODS:
            if f"default/{model}/{method}" not in names():
                continue
            sampler = load(f"default/{model}/{method}").sampler.name
            more = MORE.get(sampler, {"sampler.negatives": 4})
            trainer = build_trainer(resolve(load(f"default/{model}/{method}", SETTINGS | more), graph), graph)
            for _ in range(trainer.schedule.steps):
                trainer.step()
            parameters = [parameter.detach() for parameter in trainer.model.parameters()]
            squares = sum(float(parameter.double().square().sum()) for parameter in parameters)
            found[f"{model}/{method}"] = {"sha256": _sha256(parameters), "squares": squares}
    return found


if __name__ == "__main__":
    json.dump({"machine": machine(), "runs": final_weights()}, sys.stdout, indent=1)
