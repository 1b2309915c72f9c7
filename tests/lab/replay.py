#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Replays a dm-log-writes log up to sampled flushes, and judges each state as after a power cut there.

    replay.py LOG WORK LARDER POINTS SEED ORIGIN_SECTORS FLASH_SECTORS ALONE SERVE...

WORK has state.json, Larder's state file, and ledger/, see load.py; the log's marks say how many lines
of each ledger had been written. What is judged: Larder starts warm on the two ranges, the volume's
journal replays, e2fsck finds nothing, and everything acknowledged is there; with ALONE the same for the
origin by itself. It uses files and e2fsprogs, not a kernel's devices.

With LAG=N in the environment the last N entries before each point are missing: that has to be noticed.
"""

import json
import os
import random
import shutil
import struct
import subprocess
import sys
import time

FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8
MAGIC = 0x6A736677736872
HERE = os.path.dirname(os.path.abspath(__file__))


def entries(path):
    """(index, sector, sectors, flags, data or mark) of each entry."""
    with open(path, "rb") as log:
        magic, version, count, block = struct.unpack("<QQQI", log.read(28))
        assert (magic, version) == (MAGIC, 1), "not a log of dm-log-writes"
        log.seek(block)
        for index in range(count):
            sector, sectors, flags, length = struct.unpack("<QQQQ", log.read(block)[:32])
            data = b""
            if flags & MARK:
                log.seek(-block, os.SEEK_CUR)
                data = log.read(block)[32 : 32 + length].rstrip(b"\0")
            elif not flags & DISCARD and sectors:
                # The sectors of an entry are 512 bytes, whatever the log's own block is.
                data = log.read(sectors * 512)
                log.seek(-sectors * 512 % block, os.SEEK_CUR)
            yield index, sector, sectors, flags, data


class Images:
    """The two ranges, as files."""

    def __init__(self, work, origin, flash):
        self.ranges = []
        for name, first, sectors in (("origin", 0, origin), ("flash", origin, flash)):
            path = os.path.join(work, f"{name}.img")
            with open(path, "wb") as file:
                file.truncate(sectors * 512)
            self.ranges.append((first, sectors, os.open(path, os.O_RDWR)))

    def apply(self, sector, sectors, flags, data):
        for first, size, fd in self.ranges:
            if first <= sector < first + size:
                data = bytes(sectors * 512) if flags & DISCARD else data
                os.pwrite(fd, data, (sector - first) * 512)


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, check=False, **more)


def judge(work, image, ledgers, what):
    """What is wrong with the file system in an image."""
    first = run("e2fsck", "-p", image)
    if first.returncode > 1:
        return [f"{what}: e2fsck -p says {first.returncode}: {first.stdout.strip()[-300:]}"]
    second = run("e2fsck", "-f", "-n", image)
    if second.returncode:
        return [f"{what}: e2fsck -f -n says {second.returncode}: {second.stdout.strip()[-300:]}"]
    tree = os.path.join(work, "tree")
    shutil.rmtree(tree, ignore_errors=True)
    os.mkdir(tree)
    run("debugfs", "-R", f"rdump / {tree}", image)
    check = run(os.path.join(HERE, "load.py"), "check", tree, ledgers, env={**os.environ, "CHECK_ONLY": "1"})
    if check.returncode:
        return [f"{what}: {line}" for line in (check.stdout + check.stderr).splitlines() if line][:6]
    return []


def cut_ledgers(work, marks):
    """The ledgers as of the marks, with what may have been begun since."""
    sys.path.insert(0, HERE)
    ledgers = os.path.join(work, "ledger.cut")
    shutil.rmtree(ledgers, ignore_errors=True)
    os.mkdir(ledgers)
    for kind in os.listdir(os.path.join(work, "ledger")):
        with open(os.path.join(work, "ledger", kind), encoding="ascii") as file:
            lines = file.readlines()
        end = marks.get(kind, 0)
        while end < len(lines) and lines[end].split()[0] in ("create", "write", "begin"):
            end += 1
        with open(os.path.join(ledgers, kind), "w", encoding="ascii") as file:
            file.writelines(lines[:end])
    return ledgers


def serve(work, larder, words, at):
    """The volume as Larder serves it from these two ranges; whether warm; what is wrong."""
    files = {name: os.path.join(work, "at", name) for name in ("origin.img", "flash.img")}
    # A flash that other users can read is refused.
    os.chmod(files["flash.img"], 0o600)
    state = os.path.join(work, "at", "state")
    os.mkdir(state)
    with open(os.path.join(work, "state.json"), encoding="utf-8") as file:
        said = json.load(file)
    said["origin"] = os.path.realpath(files["origin.img"])
    with open(os.path.join(state, "v.json"), "w", encoding="utf-8") as file:
        json.dump(said, file)
    socket, control = os.path.join(work, "s"), os.path.join(work, "c")
    command = [larder, "serve", "--origin", files["origin.img"], "--flash", files["flash.img"]]
    command += ["--state", state, "--name", "v", "--listen", f"nbd+unix:{socket}", "--control", control]
    log = os.path.join(work, "at", "larder.log")
    with open(log, "wb") as errors:
        server = subprocess.Popen(command + words, stderr=errors)
    for _ in range(200):
        if os.path.exists(socket) or server.poll() is not None:
            break
        time.sleep(0.02)
    image = os.path.join(work, "at", "volume.img")
    copied = run("nbdcopy", f"nbd+unix:///v?socket={socket}", image)
    server.terminate()
    status = server.wait()
    with open(log, encoding="utf-8") as file:
        lines = file.read().splitlines()
    cold = [line for line in lines if "starts cold" in line]
    wrong = [f"cold: {line}" for line in cold]
    if copied.returncode or status:
        wrong.append(f"larder at entry {at} says {status}: {lines[-1:]}; nbdcopy: {copied.stderr.strip()}")
    return image, wrong


def main():
    log, work, larder, points, seed, origin, flash, alone = sys.argv[1:9]
    words = sys.argv[9:]
    loading, flushes = False, []
    for index, _, _, flags, data in entries(log):
        loading = loading or (flags & MARK and data == b"loading")
        if flags & MARK and data == b"end":
            break
        if loading and flags & (FLUSH | FUA):
            flushes.append(index)
    chance = random.Random(int(seed))
    sampled = set(chance.sample(flushes, min(int(points), len(flushes))))
    images, marks, judged, violations = Images(work, int(origin), int(flash)), {}, 0, 0
    lag, late = int(os.environ.get("LAG", 0)), []
    for index, sector, sectors, flags, data in entries(log):
        if flags & MARK:
            kind, _, count = data.decode().partition(":")
            marks[kind] = int(count or 0)
            continue
        late.append((sector, sectors, flags, data))
        if len(late) > lag:
            images.apply(*late.pop(0))
        if index not in sampled:
            continue
        at = os.path.join(work, "at")
        shutil.rmtree(at, ignore_errors=True)
        os.mkdir(at)
        for name in ("origin.img", "flash.img"):
            subprocess.run(["cp", "--sparse=always", os.path.join(work, name), at], check=True)
        ledgers = cut_ledgers(work, marks)
        wrong = []
        if alone == "1":
            copy = os.path.join(at, "alone.img")
            subprocess.run(["cp", "--sparse=always", os.path.join(at, "origin.img"), copy], check=True)
            wrong += judge(work, copy, ledgers, "origin")
        image, what = serve(work, larder, words, index)
        wrong += what or judge(work, image, ledgers, "volume")
        judged += 1
        violations += bool(wrong)
        if wrong:
            kept = os.path.join(work, f"violation-{index}")
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(at, kept)
            shutil.copytree(ledgers, os.path.join(kept, "ledger"))
            print(f"entry {index}: VIOLATION", *wrong, sep="\n  ", flush=True)
        elif judged % 20 == 0:
            print(f"{judged} of {len(sampled)} points, {violations} violations", flush=True)
    print(f"{judged} points of {len(flushes)} flushes, {violations} violations")
    sys.exit(1 if violations else 0)


main()
