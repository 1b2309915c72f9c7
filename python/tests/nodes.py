# SPDX-License-Identifier: MIT OR Apache-2.0
"""A cluster of Ray on this machine: nodes with one processor each, which a test can kill.

Each process of a node has the node's mark in its environment, so that exactly these are ended: ``ray stop`` would end every
cluster of the machine.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

MARK = "LARDER_TEST_NODE"
PATIENCE_SECONDS = 120
# The second node has an address of its own, by which errors name it. The first has the machine's, as Ray replaces 127.0.0.1 by it.
SECOND = "127.0.0.2"
# A dead node, which refuses connections, is noticed within five seconds; a slow one is not taken for dead.
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "30000",
    "RAY_health_check_failure_threshold": "5",
}


def free_port():
    with socket.socket() as one:
        one.bind(("", 0))
        return one.getsockname()[1]


class Cluster:
    """Two nodes. The tests' own process is connected to the first."""

    def __init__(self):
        import ray

        self.addresses = {"head": ray.util.get_node_ip_address(), "second": SECOND}
        self.mark = uuid.uuid4().hex
        # Paths of sockets have at most 107 bytes.
        self.directory = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
        self.address = f"{self.addresses['head']}:{free_port()}"
        self.started = []

    def start(self, node):
        """Starts a node."""
        where = ["--address", self.address]
        if node == "head":
            port = self.address.rpartition(":")[2]
            where = ["--head", "--port", port, "--include-dashboard=false"]
        ray = Path(sys.executable).with_name("ray")
        words = [ray, "start", *where, "--node-ip-address", self.addresses[node], "--num-cpus=1", "--block"]
        words += ["--object-store-memory", str(100 << 20), "--temp-dir", self.directory / node]
        words += ["--min-worker-port=0", "--max-worker-port=0", "--disable-usage-stats"]
        for agent in ("--dashboard-agent-listen-port", "--dashboard-agent-grpc-port", "--runtime-env-agent-port"):
            words += [agent, str(free_port())]
        environment = {**os.environ, **SETTINGS, MARK: f"{self.mark}-{node}"}
        with open(self.directory / f"{node}.log", "ab") as log:
            self.started.append(subprocess.Popen(
                [str(word) for word in words], env=environment, stdout=log, stderr=log, start_new_session=True
            ))

    def connect(self):
        """Connects this process, once the head runs."""
        import ray

        os.environ["RAY_ADDRESS"] = self.address
        host, _, port = self.address.rpartition(":")
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
                ray.init(address=self.address, log_to_driver=False, logging_level="ERROR")
                return
            except (OSError, RuntimeError, ValueError):
                failed = self.started[0].poll() is not None or time.monotonic() > end
                assert not failed, (self.directory / "head.log").read_text()
                time.sleep(0.5)

    def wait(self, nodes):
        """Waits until so many nodes are alive."""
        import ray

        end = time.monotonic() + PATIENCE_SECONDS
        while sum(node["Alive"] for node in ray.nodes()) != nodes:
            assert time.monotonic() < end, (self.directory / "second.log").read_text()
            time.sleep(0.1)

    def processes(self, node=""):
        """The processes of a node, or of all."""
        mark = f"{MARK}={self.mark}-{node}".encode()
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                    found[int(entry.name)] = (entry / "comm").read_text().strip()
            except OSError:
                continue
        return found

    def kill(self, node):
        """Kills the raylet of a node, as a power loss would; its workers end themselves."""
        raylets = [pid for pid, name in self.processes(node).items() if name == "raylet"]
        assert len(raylets) == 1
        os.kill(raylets[0], signal.SIGKILL)

    def end(self, node=""):
        """Ends all processes of a node, or of all."""
        end = time.monotonic() + PATIENCE_SECONDS
        while pids := self.processes(node):
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            for one in self.started:
                one.poll()
            assert time.monotonic() < end, pids
            time.sleep(0.05)

    def stop(self):
        """Ends the cluster, whatever became of it."""
        import ray

        os.environ.pop("RAY_ADDRESS", None)
        ray.shutdown()
        self.end()
        shutil.rmtree(self.directory, ignore_errors=True)
