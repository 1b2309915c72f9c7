# SPDX-License-Identifier: MIT OR Apache-2.0
"""A server of its own: made, started, stopped, killed, asked.

A server refuses to run as root, so root runs it as the user of KILLS_USER. What belongs to a cluster is
found by its working directory, which is the data directory for every process of a server.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

BIN = Path(os.environ.get("PG_BIN", "/usr/lib/postgresql/15/bin"))
USER = os.environ.get("KILLS_USER", "postgres")
CACHING = re.compile(r"larder: caching: \d+ MiB of flash, (\d+) pages in it \(([^)]*)\)")
EMPTY, STOPPED, LEFT = "empty", "warm after a stop", "as the last start left it"
RECOVERED = "recovered from flash"


class Failed(Exception):
    """What must not be."""


class Skipped(Exception):
    """What cannot be tried here, and why."""


@dataclass
class Options:
    """What the command line says."""

    library: Path
    base: Path
    policies: list[str]
    checksums: list[str]
    flash_size: str = "48MB"
    shared_buffers: str = "8MB"
    warehouses: int = 1
    clients: int = 8
    rounds: int = 200
    seed: int = 1
    port: int = 55100
    json: bool = False
    keep: bool = False
    only: list[str] = field(default_factory=list)
    mutant: str = ""
    # All that were made.
    clusters: list[Cluster] = field(default_factory=list)


def as_user(words: list[str]) -> list[str]:
    """The command, by the server's user."""
    return ["runuser", "-u", USER, "--", *words] if os.geteuid() == 0 else words


def give(path: Path) -> None:
    """Makes it the server's user's."""
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", f"{USER}:", str(path)], check=True)


def run(words: list[str], env: dict[str, str], limit: float = 600) -> str:
    """Runs a command; what it printed. Raises if it fails."""
    try:
        done = subprocess.run(
            words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=limit, check=False, cwd="/",
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{tool(words)}: not done after {limit:.0f} s") from error
    text = done.stdout.decode(errors="replace").strip()
    if done.returncode != 0:
        raise Failed(f"{tool(words)}: exit {done.returncode}: {text[-2000:]}")
    return text


def tool(words: list[str]) -> str:
    """The name of what a command runs."""
    return next((Path(word).name for word in words if word.startswith("/")), words[0])


class Cluster:
    """A data directory, and the server that may run in it."""

    def __init__(self, options: Options, name: str, policy: str, **settings: str) -> None:
        self.options = options
        self.home = options.base / name
        self.data = self.home / "data"
        self.log = self.home / "server.log"
        self.port = options.port + len(options.clusters)
        self.mutant = options.mutant
        # A command that runs what starts the server.
        self.around: list[str] = []
        # The postmaster that was seen last.
        self.last = 0
        options.clusters.append(self)
        self.settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.home),
            "port": str(self.port),
            "shared_buffers": options.shared_buffers,
            "max_connections": "60",
            "log_line_prefix": "%m [%p] %e ",
            "log_checkpoints": "on",
            "checkpoint_timeout": "30s",
            "min_wal_size": "32MB",
            "max_wal_size": "64MB",
            "autovacuum_naptime": "1s",
            "larder.flash_directory": "larder_flash",
            "larder.flash_size": options.flash_size,
            "larder.policy": policy,
            **settings,
        }

    def create(self, checksums: str = "on") -> Cluster:
        """An empty one."""
        self.home.mkdir(mode=0o755)
        give(self.home)
        words = ["-N", "-A", "trust", "-U", "postgres", "--no-locale", "-E", "UTF8"]
        if checksums == "on":
            words.append("--data-checksums")
        self.tool("initdb", *words, "-D", str(self.data))
        with open(self.data / "postgresql.conf", "a", encoding="utf8") as file:
            file.write("include 'kills.conf'\n")
        return self

    def env(self) -> dict[str, str]:
        """What its tools need."""
        env = {
            "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(self.home), "TMPDIR": str(self.home), "LC_ALL": "C",
            "PGHOST": str(self.home), "PGPORT": str(self.port), "PGUSER": "postgres",
            "PGDATABASE": "postgres", "PGCONNECT_TIMEOUT": "30",
        }
        if self.mutant:
            env["LARDER_PG_MUTANT"] = self.mutant
        return env

    def tool(self, name: str, *words: str, limit: float = 600) -> str:
        """Runs one of PostgreSQL's."""
        return run(as_user([str(BIN / name), *words]), self.env(), limit)

    def sql(self, text: str, database: str = "postgres") -> str:
        """What a statement, or several, returns: lines with bars."""
        return self.tool("psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", text)

    def configure(self, library: bool) -> None:
        """Writes the settings down."""
        loaded = {"shared_preload_libraries": str(self.options.library) if library else ""}
        lines = [f"{key} = '{value}'\n" for key, value in {**self.settings, **loaded}.items()]
        (self.data / "kills.conf").write_text("".join(lines), encoding="utf8")
        give(self.data / "kills.conf")

    def start(self, library: bool = True, preload: bool = False) -> tuple[int, str]:
        """Starts it; the pages that are cached then, and where they are from (empty: there is no cache)."""
        self.configure(library and not preload)
        at = self.log_size()
        words = [str(BIN / "pg_ctl"), "-D", str(self.data), "-w", "-t", "180", "-s", "-l", str(self.log), "start"]
        env = self.env()
        if preload:
            env["LD_PRELOAD"] = str(self.options.library)
            words = ["env", f"LD_PRELOAD={self.options.library}", *words]
            env.pop("LD_PRELOAD")
        try:
            run([*self.around, *as_user(words)], env, 200)
        except Failed as error:
            raise Failed(f"the server does not start: {error}") from error
        self.postmaster()
        found = CACHING.findall(self.log_from(at))
        return (int(found[-1][0]), found[-1][1]) if found else (0, "")

    def refused(self, **how: bool) -> str:
        """It must not start; the lines of its log that say why."""
        at = self.log_size()
        try:
            self.start(**how)
        except Failed:
            self.wait_gone()
            return "\n".join(line for line in self.log_from(at).splitlines() if "FATAL" in line or "HINT" in line)
        raise Failed("the server started, and should have been refused")

    def stop(self, mode: str = "fast") -> None:
        """Stops it, and waits until the last process has gone (a log collector goes last)."""
        self.tool("pg_ctl", "-D", str(self.data), "-w", "-t", "180", "-s", "-m", mode, "stop", limit=200)
        self.wait_gone()

    def postmaster(self) -> int:
        """Its process, or 0."""
        try:
            pid = int((self.data / "postmaster.pid").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return 0
        self.last = pid if pid in self.processes() else 0
        return self.last

    def processes(self) -> dict[int, str]:
        """All that run in the data directory: the title of each."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if os.readlink(entry / "cwd") != str(self.data):
                    continue
                title = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if title and (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                    found[int(entry.name)] = title.strip()
            except OSError:
                continue
        return found

    def states(self) -> str:
        """What each of its processes does at the moment, and in which call it waits."""
        def of(pid: int, name: str) -> str:
            try:
                return (Path("/proc") / str(pid) / name).read_text().strip()
            except OSError:
                return "?"
        found = []
        for pid, title in sorted(self.processes().items()):
            state = of(pid, "stat").rsplit(")", 1)[-1].split()[:1]
            waits = f"in {of(pid, 'wchan')}, call {of(pid, 'syscall')}\n{of(pid, 'stack')}"
            found.append(f"{pid} {title}: {state}, {waits}")
        return "\n".join(found)

    def signal_all(self, number: int) -> None:
        """Sends it to the postmaster, then to all others: so nobody is replaced."""
        first = self.postmaster()
        for pid in sorted(self.processes(), key=lambda pid: pid != first):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def kill_all(self) -> None:
        """SIGKILL to all at once."""
        first = self.postmaster()
        if first:
            os.kill(first, signal.SIGSTOP)
        self.signal_all(signal.SIGKILL)
        self.wait_gone()

    def wait_gone(self, limit: float = 60) -> None:
        """Until no process is left, nor what is left of a postmaster until somebody has waited for it."""
        until = time.monotonic() + limit
        while (left := self.processes()) or (self.last and Path(f"/proc/{self.last}").exists()):
            if time.monotonic() > until:
                raise Failed(f"still there after {limit:.0f} s: {left}")
            time.sleep(0.01)

    def log_size(self) -> int:
        """Bytes of the server's log by now."""
        return self.log.stat().st_size if self.log.exists() else 0

    def log_from(self, at: int = 0) -> str:
        """What the server has written to its log since."""
        if not self.log.exists():
            return ""
        with open(self.log, "rb") as file:
            file.seek(at)
            return file.read().decode(errors="replace")

    def log_tail(self, lines: int = 40) -> str:
        """The newest lines of it."""
        return "\n".join(self.log_from().splitlines()[-lines:])

    def system(self) -> int:
        """The number that identifies the cluster."""
        text = self.tool("pg_controldata", "-D", str(self.data))
        found = re.search(r"system identifier: +(\d+)", text)
        return int(found[1]) if found else 0

    def shared_files(self) -> list[Path]:
        """The cache's memory, as other servers with copies of the data directory have theirs."""
        return sorted(Path("/dev/shm").glob(f"larder-{self.system():016x}-*"))

    def forget_memory(self) -> None:
        """As another boot does: the cache's memory is gone."""
        for file in self.shared_files():
            file.unlink()

    def destroy(self) -> None:
        """Nothing of it is left."""
        if not self.home.exists():
            return
        self.kill_all()
        if (self.data / "global/pg_control").exists():
            self.forget_memory()
        shutil.rmtree(self.home)
