#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""A PostgreSQL server of its own: made, started, stopped, killed, asked.

The kills, the suites and the mix make their servers with it; the suites, which are a shell script, by its
commands. A server refuses to run as root, so root runs it as another user. What belongs to a cluster is
found by its working directory, which is the data directory for every process of a server.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

BIN = Path(os.environ.get("PG_BIN", "/usr/lib/postgresql/15/bin"))
USER = os.environ.get("KILLS_USER") or os.environ.get("TPCC_USER") or "postgres"
# The settings of a start; they override those of postgresql.conf.
CONF = "start.conf"
CACHING = re.compile(r"larder: caching: \d+ MiB of flash, (\d+) pages in it \(([^)]*)\)")
EMPTY, STOPPED, LEFT = "empty", "warm after a stop", "as the last start left it"
RECOVERED = "recovered from flash"
# As the extension has it, in databases without the extension.
STATUS = "create function larder_status() returns text as '{}', 'larder_status' language c strict"


class Failed(Exception):
    """What must not be."""


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

    def __init__(self, home: Path, port: int, library: Path | None = None, **settings: str) -> None:
        self.home = home
        self.data = home / "data"
        self.log = home / "server.log"
        self.port = port
        self.library = library
        # More of the environment of all that it runs.
        self.variables: dict[str, str] = {}
        # A command that runs what starts the server.
        self.around: list[str] = []
        # The postmaster that was seen last.
        self.last = 0
        # Segments in /dev/shm of servers that were killed.
        self.segments: set[Path] = set()
        self.settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(home),
            "port": str(port),
            **settings,
        }

    def create(self, checksums: str = "on", configuration: str = "") -> Cluster:
        """An empty one."""
        self.home.mkdir(mode=0o755, exist_ok=True)
        give(self.home)
        words = ["-N", "-A", "trust", "-U", "postgres", "--no-locale", "-E", "UTF8"]
        if checksums == "on":
            words.append("--data-checksums")
        self.tool("initdb", *words, "-D", str(self.data))
        with open(self.data / "postgresql.conf", "a", encoding="utf8") as file:
            file.write(f"{configuration}\ninclude '{CONF}'\n")
        return self

    def env(self) -> dict[str, str]:
        """What its tools need."""
        return {
            "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(self.home), "TMPDIR": str(self.home), "LC_ALL": "C",
            "PGHOST": str(self.home), "PGPORT": str(self.port), "PGUSER": "postgres",
            "PGDATABASE": "postgres", "PGCONNECT_TIMEOUT": "30", **self.variables,
        }

    def tool(self, name: str, *words: str, limit: float = 600) -> str:
        """Runs one of PostgreSQL's."""
        return run(as_user([str(BIN / name), *words]), self.env(), limit)

    def sql(self, text: str, database: str = "postgres") -> str:
        """What a statement, or several, returns: lines with bars."""
        return self.tool("psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", text)

    def configure(self, library: bool) -> None:
        """Writes the settings down."""
        settings = dict(self.settings)
        if self.library:
            settings["shared_preload_libraries"] = str(self.library) if library else ""
        lines = [f"{key} = '{value}'\n" for key, value in settings.items()]
        (self.data / CONF).write_text("".join(lines), encoding="utf8")
        give(self.data / CONF)

    def start(self, library: bool = True, preload: bool = False, seconds: int = 180) -> tuple[int, str]:
        """Starts it; the pages that are cached then, and where they are from (empty: there is no cache)."""
        self.configure(library and not preload)
        at = self.log_size()
        words = [str(BIN / "pg_ctl"), "-D", str(self.data), "-w", "-t", str(seconds), "-s", "-l", str(self.log), "start"]
        if preload:
            words = ["env", f"LD_PRELOAD={self.library}", *words]
        try:
            run([*self.around, *as_user(words)], self.env(), seconds + 20)
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

    def stop(self, mode: str = "fast", seconds: int = 180) -> None:
        """Stops it, and waits until the last process has gone (a log collector goes last)."""
        self.tool("pg_ctl", "-D", str(self.data), "-w", "-t", str(seconds), "-s", "-m", mode, "stop", limit=seconds + 20)
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
            if number == signal.SIGKILL:
                self.note_segments(pid)
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def note_segments(self, pid: int) -> None:
        """A killed server leaves its segments; `destroy` removes them."""
        try:
            maps = (Path("/proc") / str(pid) / "maps").read_text()
        except OSError:
            return
        self.segments.update(Path(name) for name in re.findall(r"/dev/shm/PostgreSQL\.\d+", maps))

    def kill_all(self) -> None:
        """SIGKILL to all at once: none sees another's death."""
        self.signal_all(signal.SIGSTOP)
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
        if self.postmaster():
            try:
                # A stop, unlike a kill, removes the server's own segments (`/dev/shm/PostgreSQL.*`).
                self.stop("immediate")
            except Failed:
                pass
        self.kill_all()
        if (self.data / "global/pg_control").exists():
            self.forget_memory()
        for segment in self.segments:
            segment.unlink(missing_ok=True)
        shutil.rmtree(self.home)


def make_status(cluster: Cluster, database: str = "postgres") -> None:
    """Makes the function that the next one calls."""
    cluster.sql(STATUS.format(cluster.library), database)


def status(cluster: Cluster, database: str = "postgres") -> dict[str, int]:
    """The library's counters."""
    found: dict[str, int] = json.loads(
        # Without the notice that states why nothing is cached.
        cluster.sql("set client_min_messages = warning; select larder_status()", database))
    return found


def main() -> None:
    """The commands. What they run has the environment of this one."""
    parser = argparse.ArgumentParser(prog="cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    create = commands.add_parser("create", help="an empty cluster in HOME/data, without checksums unless initdb makes them")
    create.add_argument("--conf", type=Path, help="a file to append to its configuration")
    start = commands.add_parser("start", help="starts it; its log is HOME/server.log")
    start.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of this start")
    start.add_argument("--log", type=Path, help="another log")
    stop = commands.add_parser("stop", help="stops it")
    stop.add_argument("--mode", default="fast")
    for command in (create, start, stop):
        command.add_argument("home", type=Path, metavar="HOME")
        command.add_argument("--port", type=int, required=True, help="the number in the name of its socket, in HOME")
    for command in (start, stop):
        command.add_argument("--seconds", type=int, default=300, help="no longer than that")
    words = parser.parse_args()
    settings = dict(setting.split("=", 1) for setting in getattr(words, "set", []))
    cluster = Cluster(words.home, words.port, **settings)
    cluster.variables = dict(os.environ)
    if words.command == "create":
        cluster.create("off", words.conf.read_text(encoding="utf8") if words.conf else "")
    elif words.command == "start":
        cluster.log = words.log or cluster.log
        cluster.start(seconds=words.seconds)
    else:
        cluster.stop(words.mode, words.seconds)


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        sys.exit(f"cluster: {error}")
