"""``eans verify``."""

from __future__ import annotations

from eans.cli.options import RunArgument
from eans.errors import RunError
from eans.progress import plain_console


def verify(run: RunArgument) -> None:
    """Check every file of a run folder against its SHA-256 in manifest.json."""
    from eans.runs import RunFolder

    folder = RunFolder.open(run)
    found = folder.manifest.check() | folder.checkpoints.check()
    console = plain_console()
    for name, problem in found.items():
        console.print(f"{name}: {problem or 'intact'}", soft_wrap=True)
    if any(found.values()):
        raise RunError(f"{sum(map(bool, found.values()))} of {len(found)} files of {run} are damaged or missing")
    console.print(f"all {len(found)} files of {run} are intact", soft_wrap=True)
