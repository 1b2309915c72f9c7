#!/usr/bin/python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""The load in the guest of tests/libvirt: writes blocks of a file without the page cache, and verifies each of them.

Each block repeats its number and its version. The version of a block that a round wrote and synced is recorded in a table,
so that the next boot verifies what the earlier one synced. Results are lines on the serial console that begin with `load:`.
"""

import glob
import json
import mmap
import os
import random
import struct
import subprocess
import sys
import threading
import time

BLOCK, BLOCKS, WRITES = 16 << 10, 1024, 128


def tell(text):
    with open("/dev/ttyS0", "w", encoding="ascii") as console:
        console.write(f"\nload: {text}\n")


def content(block, version):
    return struct.pack("<QQ", block, version) * (BLOCK // 16)


class Load:
    def __init__(self, folder):
        self.table_path = os.path.join(folder, "load.table")
        self.file = os.open(os.path.join(folder, "load.data"), os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
        self.memory = mmap.mmap(-1, BLOCK)
        self.versions, self.stopped = {}, False
        if os.path.exists(self.table_path):
            with open(self.table_path, encoding="ascii") as table:
                self.versions = {int(block): version for block, version in json.load(table).items()}

    def write(self, block, version):
        self.memory[:] = content(block, version)
        os.pwrite(self.file, self.memory, block * BLOCK)

    def read(self, block):
        os.preadv(self.file, [self.memory], block * BLOCK)
        return self.memory[:]

    def wrong(self, newer):
        """Blocks that differ from the table; with NEWER a block may hold a version that no table records."""
        bad = []
        for block, version in self.versions.items():
            got = self.read(block)
            found = struct.unpack("<QQ", got[:16])[1]
            if got != content(block, found) or not (found == version or newer and found > version):
                bad.append(block)
        return bad

    def record(self):
        with open(self.table_path + ".new", "w", encoding="ascii") as table:
            json.dump(self.versions, table)
            table.flush()
            os.fsync(table.fileno())
        os.rename(self.table_path + ".new", self.table_path)

    def round(self, number):
        for block in random.sample(range(BLOCKS), WRITES):
            self.versions[block] = time.time_ns()
            self.write(block, self.versions[block])
        os.fsync(self.file)
        bad = self.wrong(newer=False)
        self.record()
        tell(f"round {number} {'ok' if not bad else f'wrong: {bad[:8]}'}")


def prepare():
    """What an init does: file systems, and the power button."""
    for kind, place in (("proc", "/proc"), ("sysfs", "/sys"), ("tmpfs", "/run")):
        subprocess.run(["mount", "-t", kind, kind, place], check=True)
    subprocess.run(["modprobe", "-a", "button", "evdev"], check=False)


def wait_for_button(load, path):
    with open(path, "rb", buffering=0) as events:
        while True:
            _, _, kind, code, value = struct.unpack("qqHHi", events.read(24))
            if (kind, code, value) == (1, 116, 1):
                load.stopped = True


def main():
    prepare()
    load = Load(sys.argv[1])
    for path in glob.glob("/dev/input/event*"):
        threading.Thread(target=wait_for_button, args=(load, path), daemon=True).start()
    bad = load.wrong(newer=True)
    tell(f"start, {len(load.versions)} blocks of earlier boots, {len(bad)} wrong")
    number = 0
    while not load.stopped:
        number += 1
        try:
            load.round(number)
        except OSError as error:
            tell(f"round {number} failed: {error}")
            break
    messages = subprocess.run(["dmesg"], capture_output=True, text=True, check=False).stdout
    errors = [line for line in messages.splitlines() if "I/O error" in line or "EXT4-fs error" in line]
    tell(f"end, {len(errors)} errors in the kernel's log")
    os.close(load.file)
    os.sync()
    subprocess.run(["mount", "-o", "remount,ro", "/"], check=False)
    subprocess.run(["busybox", "poweroff", "-f"], check=False)


main()
