# SPDX-License-Identifier: MIT OR Apache-2.0
"""The roots and containers of tests/packages, in which a server runs, and its clients."""

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import steps
from steps import eventually

BLOCK = 64 << 10


def run(command, **more):
    """As steps.run, but a failure ends the script."""
    try:
        return steps.run(command, **more)
    except RuntimeError as error:
        sys.exit(str(error))


class Client:
    """One connection of NBD."""

    def __init__(self, machine):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(machine.path("/run/larder/try.nbd"))
        self.get(18)
        self.sock.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 1, 3) + b"try")
        self.size = struct.unpack(">QH", self.get(10))[0]

    def get(self, count):
        data = b""
        while len(data) < count:
            part = self.sock.recv(count - len(data))
            if not part:
                raise OSError("the server closed the connection")
            data += part
        return data

    def ask(self, command, offset, length, data=b""):
        self.sock.sendall(struct.pack(">IHHQQI", 0x25609513, 0, command, offset, offset, length) + data)
        error = struct.unpack(">IIQ", self.get(16))[1]
        if error:
            raise OSError(error, f"command {command} at {offset}")
        return self.get(length) if command == 0 else b""


def block(number):
    return struct.pack(">Q", number) * (BLOCK // 8)


class Load:
    """Writes and reads blocks until it is stopped."""

    def __init__(self, machine):
        self.client, self.latest, self.count, self.error, self.ended = Client(machine), {}, 0, None, threading.Event()
        self.thread = threading.Thread(target=self.work)
        self.thread.start()

    def work(self):
        try:
            places = self.client.size // BLOCK
            while not self.ended.is_set():
                place = self.count * 7 % places
                self.client.ask(1, place * BLOCK, BLOCK, block(self.count))
                self.latest[place] = self.count
                for other in (place, self.count * 3 % places):
                    if other in self.latest and self.client.ask(0, other * BLOCK, BLOCK) != block(self.latest[other]):
                        raise OSError(f"wrong bytes in block {other}")
                self.count += 1
                time.sleep(0.005)
            self.client.ask(3, 0, 0)
        except OSError as error:
            self.error = error

    def stop(self):
        self.ended.set()
        self.thread.join()
        return self.error is None and self.count > 10

    def same(self, machine):
        """Whether another connection reads what this one wrote."""
        client = Client(machine)
        return all(client.ask(0, place * BLOCK, BLOCK) == block(number) for place, number in self.latest.items())


class Bare:
    """A root in which no systemd runs."""

    kind = "without systemd"

    def __init__(self, root):
        self.root, self.server = root, None
        run(["mount", "-t", "proc", "proc", root / "proc"])
        run(["mount", "--bind", "/dev", root / "dev"])

    def close(self):
        if self.server and self.server.poll() is None:
            self.server.kill()
            self.server.wait()
        for mounted in ("dev", "proc"):
            subprocess.run(["umount", "-l", self.root / mounted], check=False)

    def call(self, command):
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
        return subprocess.run(self.enter() + ["sh", "-c", command], text=True, env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def enter(self):
        return ["chroot", str(self.root)]

    def path(self, name):
        return str(self.root / name.lstrip("/"))

    def start(self):
        self.call("install -d -o larder -g larder /run/larder")
        self.server = subprocess.Popen(
            self.enter() + ["setpriv", "--reuid=larder", "--regid=larder", "--init-groups", "larder", "serve",
                            "/etc/larder/try.toml"], stdout=subprocess.DEVNULL, stderr=open(f"{self.root}/server.log", "w"))

    def pid(self):
        return self.server.pid if self.server.poll() is None else 0

    def stop(self):
        self.server.send_signal(signal.SIGTERM)
        return self.server.wait(60) == 0

    def clean(self):
        """What the server and this script made."""
        self.call("rm -rf /var/lib/larder /run/larder /server.log")


class Booted(Bare):
    """A root in which systemd is the first process."""

    kind = "with systemd"

    def __init__(self, root):
        self.root, self.server = root, None
        # The newer systemd refuses the older hierarchy of control groups.
        environment = os.environ | {"UNIFIED_CGROUP_HIERARCHY": "1"}
        self.console = open(f"{root}.console", "w")
        self.nspawn = subprocess.Popen(
            ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--console=pipe", "--resolv-conf=copy-host",
             f"--directory={root}", "--boot"], env=environment, stdin=subprocess.DEVNULL, stdout=self.console,
            stderr=self.console)
        self.leader = None
        until = time.time() + 120
        while time.time() < until:
            time.sleep(1)
            children = Path(f"/proc/{self.nspawn.pid}/task/{self.nspawn.pid}/children")
            self.leader = children.read_text().split()[0] if children.exists() and children.read_text() else None
            if self.leader and self.call("systemctl is-system-running").stdout.strip() in ("running", "degraded"):
                return
        self.close()
        sys.exit(f"{root}: systemd did not start in 120 s; its output is in {root}.console")

    def close(self):
        if self.nspawn.poll() is None and self.leader:
            self.call("systemctl poweroff")
        try:
            self.nspawn.wait(60)
        except subprocess.TimeoutExpired:
            self.nspawn.kill()
            self.nspawn.wait()
        self.console.close()

    def enter(self):
        return ["nsenter", f"--target={self.leader}", "--mount", "--uts", "--ipc", "--pid", "--cgroup", "--root", "--wd"]

    def path(self, name):
        return f"/proc/{self.leader}/root{name}"

    def start(self):
        return self.call("systemctl enable --now larder@try")

    def pid(self):
        return int(self.call("systemctl show -P MainPID larder@try").stdout.strip() or 0)

    def runs(self, pid):
        return self.call(f"kill -0 {pid}").returncode == 0

    def stop(self):
        return self.call("systemctl stop larder@try && ! systemctl is-failed larder@try").returncode == 0


class Image:
    """A container of the image, whose storage is below PLACE."""

    def __init__(self, archive, place):
        self.place, self.server = place, None
        self.storage = ["buildah", "--root", place / "storage", "--runroot", place / "run", "--storage-driver", "vfs"]
        # The engine's own filter of system calls forbids io_uring.
        self.container = run([*self.storage, "from", "--quiet", "--security-opt", "seccomp=unconfined",
                              f"oci-archive:{archive}"]).strip()

    def path(self, name):
        return str(self.place / "volume" / Path(name).name)

    def start(self):
        volume = self.place / "volume"
        volume.mkdir()
        (volume / "origin.img").write_bytes(b"")
        os.truncate(volume / "origin.img", 64 << 20)
        for path in (volume, volume / "origin.img"):
            os.chown(path, 990, 990)
        log = open(self.place / "log", "w")
        self.server = subprocess.Popen(
            [*self.storage, "run", "--isolation", "chroot", "-v", f"{volume}:/var/lib/larder", self.container, "--",
             "/usr/bin/larder", "serve", "--origin", "/var/lib/larder/origin.img", "--flash", "/var/lib/larder/flash.img",
             "--flash-size", "32MiB", "--listen", "nbd+unix:/var/lib/larder/try.nbd", "--name", "try"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def pid(self):
        """Of the server; the engine passes no signal on to it."""
        below = [self.server.pid]
        for pid in below:
            if Path(f"/proc/{pid}/comm").read_text().strip() == "larder":
                return pid
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                below += [int(child) for child in children.read_text().split()]
        return 0

    def stop(self):
        pid = self.pid()
        if pid:
            os.kill(pid, signal.SIGTERM)
        return self.server.wait(60) == 0

    def close(self):
        if self.server and self.server.poll() is None:
            self.server.kill()
            self.server.wait()
        run([*self.storage, "rm", "--all"])
        run([*self.storage, "rmi", "--all"])


def served(machine):
    def answers():
        try:
            return Client(machine).size == 64 << 20
        except OSError:
            return False
    return eventually(answers)
