"""Which device a run uses, and what the hardware is called."""

from __future__ import annotations

import platform
from pathlib import Path

import torch

from eans.arguments import shown
from eans.errors import UsageError


def choose_device(device: str) -> torch.device:
    """``auto`` takes a GPU when there is one."""
    if isinstance(device, str) and device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device) if isinstance(device, (str, torch.device)) else None
    except RuntimeError:
        chosen = None
    if chosen is None or chosen.type not in ("cpu", "cuda"):
        raise UsageError(f"unknown device {shown(device)} (auto, cpu or cuda)")
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"device '{device}' was asked for, but PyTorch sees no CUDA GPU; use --device cpu")
    return chosen


def hardware_name(device: torch.device) -> str:
    """The name of the GPU or processor."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")  # where Python itself knows no more than the architecture
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else platform.processor() or platform.machine()
