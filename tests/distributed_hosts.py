"""Two hosts with addresses of their own, that lose each other or die: ``make test-hosts``, as root, some minutes.

The hosts are network namespaces of this machine, joined by a pair of virtual cards; they share its disk. What is sent
stays between the two. This file is collected only where it is named.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import helpers_ranks as ranks
from helpers_runs import ring_graph, write_graph
from test_restarts import SETTINGS, result

CARD = "eans0"  # of each host
ADDRESSES = ("10.111.0.1", "10.111.0.2")
LONG = {"train.steps": 600, "train.checkpoint_every": 40, "train.valid_every": 200}
ANSWER_SECONDS = 6
BOUND = 120.0  # seconds that anything may take here


class Hosts:
    """Two network namespaces, and the agents of ``torchrun`` in them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names = [f"eans-{os.getpid()}-{number}" for number in (1, 2)]
        self.agents: list[subprocess.Popen[bytes]] = []

    def make(self) -> None:
        for name in self.names:
            ip("netns", "add", name)
        ip("link", "add", CARD, "netns", self.names[0], "type", "veth", "peer", "name", CARD, "netns", self.names[1])
        for name, address in zip(self.names, ADDRESSES, strict=True):
            ip("-n", name, "address", "add", f"{address}/24", "dev", CARD)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", CARD, "up")

    def remove(self) -> None:
        """End all that runs in the namespaces, and take them away, with the cards."""
        for host, name in enumerate(self.names):
            self.kill(host)
            subprocess.run(["ip", "netns", "delete", name], check=False)
        for agent in self.agents:
            agent.wait(BOUND)

    def link(self, host: int, state: str) -> None:
        """Pull the cable of a host out (``down``), or put it back (``up``)."""
        ip("-n", self.names[host], "link", "set", CARD, state)

    def kill(self, host: int) -> None:
        """The agent and its workers, at once."""
        listed = subprocess.run(["ip", "netns", "pids", self.names[host]], capture_output=True, text=True, check=False)
        if listed.stdout:
            subprocess.run(["kill", "-KILL", *listed.stdout.split()], check=False)

    def start(self, host: int, job: str, *train: str, restarts: int = 0) -> subprocess.Popen[bytes]:
        """The agent of a host; what it and its workers say goes to a file."""
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
        meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint={ADDRESSES[0]}:29400", f"--rdzv-id={job}"]
        local = [f"--local-addr={ADDRESSES[host]}", f"--rdzv-conf=is_host={1 - host}", f"--max-restarts={restarts}"]
        environment = ranks.environment(
            GLOO_SOCKET_IFNAME=CARD, EANS_ANSWER_SECONDS=str(ANSWER_SECONDS), TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1"
        )
        with self.said_file(host, job).open("ab") as said:
            agent = subprocess.Popen(
                ["ip", "netns", "exec", self.names[host], *torchrun, *meeting, *local, "-m", "eans", "train", *train],
                env=environment,
                stdout=said,
                stderr=said,
            )
        self.agents.append(agent)
        return agent

    def start_both(self, job: str, *train: str, restarts: int = 0) -> list[subprocess.Popen[bytes]]:
        return [self.start(host, job, *train, restarts=restarts) for host in range(2)]

    def said_file(self, host: int, job: str) -> Path:
        return self.folder / f"said-{job}-{host + 1}.txt"

    def said(self, host: int, job: str) -> str:
        return self.said_file(host, job).read_text(errors="replace")

    def told(self, host: int, job: str) -> list[str]:
        """The lines of ours."""
        return [line for line in self.said(host, job).splitlines() if line.startswith("eans: ")]


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def wait(done: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + BOUND
    while not done():
        assert time.monotonic() < end, f"{what}: not within {BOUND:g} s"
        time.sleep(0.02)


def ended(agents: list[subprocess.Popen[bytes]]) -> list[int]:
    """How each of them ended, when all have."""
    wait(lambda: all(agent.poll() is not None for agent in agents), "the agents end")
    return [agent.wait() for agent in agents]


def training(folder: Path, out: str) -> list[str]:
    """The arguments of ``eans train``."""
    settings = [f"--set={key}={value}" for key, value in {**SETTINGS, **LONG}.items()]
    return ["default/transe/eans", "--data", str(folder / "graph"), "--out", str(folder / out), *settings]


def come_far(folder: Path, out: str) -> None:
    """Wait for some checkpoints of a run, and see that it has not ended."""
    latest = folder / out / "checkpoint" / "LATEST"
    wait(lambda: latest.is_file() and int(latest.read_text().strip().removeprefix("step-")) >= 120, "a checkpoint")
    assert not (folder / out / "metrics.json").exists()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the graph, and a run of two ranks on one host that nothing disturbed."""
    if os.geteuid() or not shutil.which("ip"):
        pytest.exit("tests/distributed_hosts.py makes network namespaces: run it as root, with ip of iproute2", 2)
    folder = tmp_path_factory.mktemp("hosts")
    write_graph(ring_graph(), folder / "graph")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "eans"]
    done = subprocess.run(
        [*torchrun, "train", *training(folder, "one-host")], env=ranks.environment(), capture_output=True, text=True,
        timeout=BOUND,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def hosts(folder: Path) -> Iterator[Hosts]:
    hosts = Hosts(folder)
    try:
        hosts.make()
        yield hosts
    finally:
        hosts.remove()


def test_two_hosts_have_the_bits_of_one(hosts, folder):
    agents = hosts.start_both("together", *training(folder, "together"))
    assert ended(agents) == [0, 0], hosts.said(0, "together") + hosts.said(1, "together")
    assert result(folder, "together") == result(folder, "one-host")


def test_a_host_cut_off_ends_the_run_with_a_line_on_each_and_resume_goes_on(hosts, folder):
    agents = hosts.start_both("cut", *training(folder, "cut"))
    come_far(folder, "cut")
    hosts.link(1, "down")
    wait(lambda: all(hosts.told(host, "cut") for host in range(2)), "a line on each host")
    hosts.link(1, "up")  # which the other agent waits for
    assert all(ended(agents))
    assert hosts.told(0, "cut") == ["eans: error: rank 1 of 2 is gone, or does not answer"]
    (line,) = hosts.told(1, "cut")
    assert line.startswith("eans: error: rank 1 of 2 lost another rank")
    again = hosts.start_both("resumed", "--resume", str(folder / "cut"))
    assert ended(again) == [0, 0], hosts.said(0, "resumed") + hosts.said(1, "resumed")
    assert result(folder, "cut") == result(folder, "one-host")


def test_a_host_cut_off_and_back_the_agents_start_the_ranks_again(hosts, folder):
    agents = hosts.start_both("back", *training(folder, "back"), restarts=3)
    come_far(folder, "back")
    hosts.link(1, "down")
    wait(lambda: bool(hosts.told(0, "back")), "the first host notices")
    hosts.link(1, "up")
    assert ended(agents) == [0, 0], hosts.said(0, "back") + hosts.said(1, "back")
    assert "resuming at step" in hosts.said(0, "back")
    assert result(folder, "back") == result(folder, "one-host")


def test_a_host_killed_and_started_again_the_run_goes_on(hosts, folder):
    """The new agent has counted no restart, the other one has."""
    agents = hosts.start_both("killed", *training(folder, "killed"), restarts=3)
    come_far(folder, "killed")
    hosts.kill(1)
    assert agents[1].wait(BOUND) != 0
    again = hosts.start(1, "killed", *training(folder, "killed"), restarts=3)
    assert ended([agents[0], again]) == [0, 0], hosts.said(0, "killed") + hosts.said(1, "killed")
    assert "resuming at step" in hosts.said(0, "killed")
    assert result(folder, "killed") == result(folder, "one-host")
