#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""The ways in which another local user may try to read, change or stop a server. scenarios_others.py runs it as that user.

Standard input: the server's paths and processes, as JSON. Standard output: for each way a result and a text, as JSON. The
results: `done`, `refused` (the kernel denied access), `failed` (any other error, which shows nothing about access).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
# Calls that Python does not have, by their numbers on x86-64 and (the same table) on all newer machines.
PIDFD_OPEN, PIDFD_GETFD = 434, 438
PROCESS_VM_READV = 310 if os.uname().machine == "x86_64" else 270
PTRACE_ATTACH, PTRACE_DETACH = 16, 17
REFUSALS = (errno.EACCES, errno.EPERM)


@dataclass
class Target:
    """The server: its places, and its processes if it runs."""

    data: Path
    flash: Path
    home: Path
    port: int
    library: Path
    server: str
    table: str
    memory: list[str]
    postmaster: int
    children: list[int]


@dataclass
class Way:
    """One of the ways."""

    name: str
    # `running`, `stopped`, or both.
    when: str
    # It only looks: the server's own user succeeds, and nothing has changed.
    looks: bool
    run: Callable[[Target], None]
    # What it tries to change is missing (ENOENT) while the server is stopped.
    missing: bool = False


WAYS: list[Way] = []


def way(
    name: str, when: str = "both", looks: bool = False, missing: bool = False,
) -> Callable[[Callable[[Target], None]], Callable[[Target], None]]:
    """Enters a function into the list."""
    def enter(function: Callable[[Target], None]) -> Callable[[Target], None]:
        WAYS.append(Way(name, when, looks, function, missing))
        return function
    return enter


def call(number: int, *words: int) -> int:
    """A system call by its number."""
    done = LIBC.syscall(ctypes.c_long(number), *(ctypes.c_long(word) for word in words))
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(done)


def read(path: Path | str) -> None:
    """Reads some of a file."""
    with open(path, "rb") as file:
        file.read(16)


def write(path: Path | str) -> None:
    """Changes a file's first byte."""
    with open(path, "r+b") as file:
        file.write(b"\xff")


def memory(target: Target) -> str:
    """The server's shared memory."""
    return target.memory[0]


# The data directory.
for inside in ("global/pg_control", "pg_wal"):
    WAYS.append(Way(f"look at {inside}", "both", True, lambda target, inside=inside: print(  # type: ignore[misc]
        os.stat(target.data / inside).st_size, file=sys.stderr)))


@way("list the data directory", looks=True)
def _(target: Target) -> None:
    os.listdir(target.data)


@way("read pg_control", looks=True)
def _(target: Target) -> None:
    read(target.data / "global/pg_control")


@way("read a table's file", looks=True)
def _(target: Target) -> None:
    read(target.data / target.table)


@way("write a table's file")
def _(target: Target) -> None:
    write(target.data / target.table)


@way("make a file in the data directory")
def _(target: Target) -> None:
    (target.data / "backup_label").write_text("other")


@way("rename the data directory")
def _(target: Target) -> None:
    target.data.rename(target.home / "gone")


@way("make postmaster.pid name another process")
def _(target: Target) -> None:
    (target.data / "postmaster.pid").write_text(str(os.getpid()))


# Flash.
@way("look at the flash file", looks=True)
def _(target: Target) -> None:
    os.stat(target.flash / "larder.flash")


@way("list the flash directory", looks=True)
def _(target: Target) -> None:
    os.listdir(target.flash)


@way("read the flash file", looks=True)
def _(target: Target) -> None:
    read(target.flash / "larder.flash")


@way("write the flash file")
def _(target: Target) -> None:
    write(target.flash / "larder.flash")


@way("cut the flash file")
def _(target: Target) -> None:
    os.truncate(target.flash / "larder.flash", 0)


@way("remove the flash file")
def _(target: Target) -> None:
    (target.flash / "larder.flash").unlink()


@way("make a file in the flash directory")
def _(target: Target) -> None:
    (target.flash / "larder.kept.new").write_text("other")


@way("put a link in place of the flash file")
def _(target: Target) -> None:
    (target.flash / "link").symlink_to("/tmp/other")
    (target.flash / "link").rename(target.flash / "larder.flash")


@way("rename the flash directory")
def _(target: Target) -> None:
    target.flash.rename(target.flash.parent / "other")


@way("put a link in place of the flash directory")
def _(target: Target) -> None:
    target.flash.rmdir()
    target.flash.symlink_to("/tmp")


@way("open the flash directory to all")
def _(target: Target) -> None:
    target.flash.chmod(0o777)


@way("take the flash directory")
def _(target: Target) -> None:
    os.chown(target.flash, os.getuid(), os.getgid())


@way("lock the flash file")
def _(target: Target) -> None:
    with open(target.flash / "larder.flash", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


@way("lock the flash directory")
def _(target: Target) -> None:
    fcntl.flock(os.open(target.flash, os.O_RDONLY), fcntl.LOCK_EX)


@way("link the flash file to a place of its own")
def _(target: Target) -> None:
    os.link(target.flash / "larder.flash", f"/dev/shm/other-{os.getpid()}")


# The shared memory.
@way("read the shared memory", "running", looks=True)
def _(target: Target) -> None:
    read(memory(target))


@way("write the shared memory", "running")
def _(target: Target) -> None:
    write(memory(target))


@way("cut the shared memory", "running")
def _(target: Target) -> None:
    os.truncate(memory(target), 0)


@way("remove the shared memory", "running")
def _(target: Target) -> None:
    os.unlink(memory(target))


@way("rename the shared memory", "running")
def _(target: Target) -> None:
    os.rename(memory(target), "/dev/shm/other")


@way("put a file in place of the shared memory", "running")
def _(target: Target) -> None:
    place = Path(f"/dev/shm/other-{os.getpid()}")
    place.write_text("other")
    try:
        place.rename(memory(target))
    finally:
        place.unlink(missing_ok=True)


@way("open the shared memory to all", "running")
def _(target: Target) -> None:
    os.chmod(memory(target), 0o666)


@way("lock the shared memory", "running")
def _(target: Target) -> None:
    fcntl.flock(os.open(memory(target), os.O_RDONLY), fcntl.LOCK_EX)


@way("read the server's own segments", "running", looks=True)
def _(target: Target) -> None:
    maps = Path(f"/proc/{target.postmaster}/maps").read_text()
    read(next(line.split()[-1] for line in maps.splitlines() if "/dev/shm/PostgreSQL" in line or "larder-" in line))


# The processes.
@way("read the postmaster's memory", "running")
def _(target: Target) -> None:
    read(f"/proc/{target.postmaster}/mem")


@way("read what the postmaster has mapped", "running", looks=True)
def _(target: Target) -> None:
    read(f"/proc/{target.postmaster}/maps")


@way("read the postmaster's environment", "running", looks=True)
def _(target: Target) -> None:
    read(f"/proc/{target.postmaster}/environ")


@way("open flash through the postmaster's descriptors", "running", looks=True)
def _(target: Target) -> None:
    place = Path(f"/proc/{target.postmaster}/fd")
    read(next(place / name for name in os.listdir(place) if os.readlink(place / name).endswith("larder.flash")))


@way("take a descriptor of the postmaster", "running")
def _(target: Target) -> None:
    pidfd = call(PIDFD_OPEN, target.postmaster, 0)
    call(PIDFD_GETFD, pidfd, 3, 0)


@way("copy the postmaster's memory", "running")
def _(target: Target) -> None:
    bytes_ = ctypes.create_string_buffer(8)
    part = (ctypes.c_size_t * 2)(ctypes.addressof(bytes_), 8)
    call(PROCESS_VM_READV, target.postmaster, ctypes.addressof(part), 1, ctypes.addressof(part), 1, 0)


@way("attach a debugger to a backend", "running")
def _(target: Target) -> None:
    if LIBC.ptrace(PTRACE_ATTACH, target.children[0], None, None) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    LIBC.ptrace(PTRACE_DETACH, target.children[0], None, None)


def signals(number: signal.Signals) -> None:
    """A signal to the postmaster, and to its children."""
    def send(target: Target) -> None:
        for pid in [target.postmaster, *target.children]:
            os.kill(pid, number)
    WAYS.append(Way(f"send {number.name}", "running", False, send))


for one in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1, signal.SIGABRT):
    signals(one)


@way("give the postmaster no processor", "running")
def _(target: Target) -> None:
    os.setpriority(os.PRIO_PROCESS, target.postmaster, 19)


@way("bind the postmaster to one processor", "running")
def _(target: Target) -> None:
    os.sched_setaffinity(target.postmaster, {0})


@way("give the postmaster no descriptors", "running")
def _(target: Target) -> None:
    resource.prlimit(target.postmaster, resource.RLIMIT_NOFILE, (3, 3))


@way("make the postmaster the victim of the next lack of memory", "running")
def _(target: Target) -> None:
    Path(f"/proc/{target.postmaster}/oom_score_adj").write_text("1000")


# Sockets, and the library.
@way("connect", "running", looks=True)
def _(target: Target) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(target.home / f".s.PGSQL.{target.port}"))


@way("put a socket in place of the server's")
def _(target: Target) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(target.home / "other"))
    (target.home / "other").rename(target.home / f".s.PGSQL.{target.port}")


@way("remove the server's socket", missing=True)
def _(target: Target) -> None:
    (target.home / f".s.PGSQL.{target.port}").unlink()


@way("make the lock file of the server's socket")
def _(target: Target) -> None:
    (target.home / f".s.PGSQL.{target.port}.lock").write_text(f"{os.getpid()}\n")


@way("write the library")
def _(target: Target) -> None:
    write(target.library)


@way("write the server's log")
def _(target: Target) -> None:
    write(target.home / "server.log")


@way("start a server on the data directory", "stopped")
def _(target: Target) -> None:
    words = [target.server, "-D", str(target.data)]
    env = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60, env=env)
    if done.returncode != 0:
        text = done.stderr.strip()
        raise OSError(errno.EACCES if os.strerror(errno.EACCES) in text else 0, text)


def tried(one: Way, when: str, target: Target) -> tuple[str, str]:
    """The result of a way, and the error's text."""
    accepted = (*REFUSALS, errno.ENOENT) if one.missing and when == "stopped" else REFUSALS
    try:
        one.run(target)
    except OSError as error:
        return ("refused" if error.errno in accepted else "failed"), f"{type(error).__name__}: {error}"
    except StopIteration:
        return "failed", "there is no such mapping or descriptor"
    return "done", ""


def main() -> None:
    """All of them, or those that only look."""
    words = json.load(sys.stdin)
    when, looks = words.pop("when"), words.pop("looks")
    paths = {name: Path(words.pop(name)) for name in ("data", "flash", "home", "library")}
    target = Target(**paths, **words)
    tries = [one for one in WAYS if one.when in ("both", when) and (one.looks or not looks)]
    found = {one.name: tried(one, when, target) for one in tries}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
