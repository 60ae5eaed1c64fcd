"""The same seed gives the same bits, from one version of the code to the next.

``fixtures/final-weights.json`` holds what `final_weights` printed. A change that alters the bits on purpose writes it
anew: ``python tests/test_final_weights.py``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from final_weights import ENVIRONMENT

FIXTURE = Path(__file__).parent / "fixtures" / "final-weights.json"


def trained() -> dict[str, Any]:
    """What `final_weights` prints here and now."""
    script = Path(__file__).with_name("final_weights.py")
    environment = {**os.environ, **ENVIRONMENT, "EANS_KERNELS": "auto", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def test_final_weights_are_those_of_before() -> None:
    expected, found = json.loads(FIXTURE.read_text("utf-8")), trained()
    assert list(found["runs"]) == list(expected["runs"])
    for name, run in found["runs"].items():
        # 24 steps do not carry a difference in rounding far; a difference in the method, they do.
        assert run["squares"] == pytest.approx(expected["runs"][name]["squares"], rel=1e-3), name
    if found["machine"] != expected["machine"]:
        pytest.skip("bits are not compared: this processor or these libraries round differently from the fixture's")
    assert found["runs"] == expected["runs"]


if __name__ == "__main__":
    FIXTURE.write_text(json.dumps(trained(), indent=1) + "\n", "utf-8")
