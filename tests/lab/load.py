#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Loads on a file system whose power will be cut, and the judge of what they left.

    load.py run   DIR LEDGERS KIND SEED   below DIR, until the power goes
    load.py check DIR LEDGERS             all kinds, at the next boot; a line each, exit 1 on a loss

The ledgers lie outside of the disks under test, on a share of the host: a line there is what the file
system acknowledged (an fsync, a commit), or what was about to be begun. What was begun and not
acknowledged may be there or not, sector by sector; everything else must be as acknowledged.

files   in-place overwrites, replacements by rename, and read-backs past the page cache
sqlite  transactions; the whole table must be that of the last one committed, or of the one begun
git     commits of a work tree, `git fsck`, the last acknowledged one an ancestor of HEAD
fio     fio's own verification of files written with a queue of direct writes
"""

import os
import random
import struct
import sys

BLOCK = 4096
SECTOR = 512
SLOTS = 48
ROWS = 600
# What stands in a ledger only after the file system acknowledged it.
ACKNOWLEDGED = ("created", "wrote", "commit", "done")
# The dm-log-writes device that is told of each such line, if any.
MARK = os.environ.get("LEDGER_MARK")


class Ledger:
    """Lines that outlive the guest: each is one write to the host before it returns."""

    def __init__(self, path):
        self.path = path
        self.count = 0
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)

    def lines(self):
        with open(self.path, encoding="ascii") as file:
            return [line.split() for line in file if line.endswith("\n")]

    def say(self, *words):
        os.write(self.fd, (" ".join(str(w) for w in words) + "\n").encode())
        self.count += 1
        if MARK and words[0] in ACKNOWLEDGED:
            # In the log of all writes: up to here so many lines of this ledger.
            mark = f"{os.path.basename(self.path)}:{self.count}"
            run_command(["dmsetup", "message", MARK, "0", "mark", mark])


def block(slot, version, number):
    """What version `version` of a block holds: nothing else ever holds the same."""
    return struct.pack("<III4s", slot, version, number, b"lrdr") * (BLOCK // 16)


def sync_dir(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


class Files:
    """Per slot the candidates of what the file may be: lists of allowed versions of each block."""

    def __init__(self, ledger):
        self.candidates = {}
        self.version = 0
        for words in ledger.lines():
            self.take(*words)

    def take(self, what, slot, *numbers):
        slot, numbers = int(slot), [int(n) for n in numbers]
        if what == "create":  # version blocks
            self.candidates.setdefault(slot, [None]).append([{numbers[0]}] * numbers[1])
        elif what == "created":
            self.candidates[slot] = self.candidates[slot][-1:]
        elif what == "write":  # version first count
            for i in range(numbers[1], numbers[1] + numbers[2]):
                self.candidates[slot][0][i] = self.candidates[slot][0][i] | {numbers[0]}
        elif what == "wrote":
            for i in range(numbers[1], numbers[1] + numbers[2]):
                self.candidates[slot][0][i] = {numbers[0]}
        elif what == "seen":  # which candidate, at a boot: it must not change again
            self.candidates[slot] = [self.candidates[slot][numbers[0]]]
        elif what == "block":  # number version
            self.candidates[slot][0][numbers[0]] = {numbers[1]}
        if numbers and what in ("create", "write"):
            self.version = max(self.version, numbers[0])


def name(directory, slot):
    return os.path.join(directory, f"d{slot % 6}", f"f{slot}")


def held(data, slot, number, allowed):
    """The one version that a block holds whole, 0 if a mix of allowed ones, None if it is wrong."""
    for version in allowed:
        if data == block(slot, version, number):
            return version
    for at in range(0, BLOCK, SECTOR):
        part = data[at : at + SECTOR]
        if not any(part == block(slot, v, number)[:SECTOR] for v in allowed):
            return None
    return 0


def uncached(path):
    """The file's bytes as the block device has them now."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    with os.fdopen(fd, "rb") as file:
        return file.read()


def judge(directory, slot, candidates):
    """Which candidate the file is, what each unsure block holds, and else what is wrong."""
    path = name(directory, slot)
    data = uncached(path) if os.path.exists(path) else None
    wrong = "is not there"
    for which, blocks in enumerate(candidates):
        if data is None or blocks is None:
            if data is None and blocks is None:
                return which, [], None
            continue
        if len(data) != len(blocks) * BLOCK:
            wrong = f"has {len(data)} bytes, not {len(blocks) * BLOCK}"
            continue
        sure = []
        for number, allowed in enumerate(blocks):
            piece = data[number * BLOCK : (number + 1) * BLOCK]
            version = held(piece, slot, number, allowed)
            if version is None:
                found = struct.unpack("<III4s", piece[:16])
                wrong = f"block {number} holds {found}, not a version of {sorted(allowed)}"
                break
            if version and len(allowed) > 1:
                sure.append((number, version))
        else:
            return which, sure, None
    return None, [], f"{path}: {wrong}"


def check_files(directory, ledger):
    state, wrong, unsure = Files(ledger), [], 0
    for slot, candidates in sorted(state.candidates.items()):
        which, sure, what = judge(directory, slot, candidates)
        if what:
            wrong.append(what)
            continue
        unsure += len(candidates) > 1 or bool(sure)
        if os.environ.get("CHECK_ONLY"):
            continue
        os.sync() if sure or len(candidates) > 1 else None
        if len(candidates) > 1:
            ledger.say("seen", slot, which)
        for number, version in sure:
            ledger.say("block", slot, number, version)
    return f"{len(state.candidates)} files ({unsure} in flight)", wrong


def run_files(directory, ledger, seed):
    chance, state = random.Random(seed), Files(ledger)

    def say(*words):
        ledger.say(*words)
        state.take(*[str(w) for w in words])

    for number in range(6):
        os.makedirs(os.path.join(directory, f"d{number}"), exist_ok=True)
    sync_dir(directory)
    missing = [s for s in range(SLOTS) if state.candidates.get(s, [None])[0] is None]
    while True:
        slot = missing.pop(0) if missing else int(SLOTS * chance.random() ** 2)
        version = state.version + 1
        path = name(directory, slot)
        candidates = state.candidates.get(slot, [None])
        if candidates[0] is None or chance.random() < 0.1:
            count = 1 << chance.randrange(2, 9)
            say("create", slot, version, count)
            with open(path + ".new", "wb") as file:
                file.write(b"".join(block(slot, version, i) for i in range(count)))
                file.flush()
                os.fsync(file.fileno())
            os.rename(path + ".new", path)
            sync_dir(os.path.dirname(path))
            say("created", slot, version)
        elif chance.random() < 0.4:
            blocks = len(candidates[0])
            count = min(blocks, 1 << chance.randrange(0, 7))
            first = chance.randrange(0, blocks - count + 1)
            say("write", slot, version, first, count)
            fd = os.open(path, os.O_WRONLY)
            new = b"".join(block(slot, version, i) for i in range(first, first + count))
            os.pwrite(fd, new, first * BLOCK)
            os.fsync(fd) if chance.random() < 0.5 else os.fdatasync(fd)
            os.close(fd)
            say("wrote", slot, version, first, count)
        else:
            what = judge(directory, slot, candidates)[2]
            if what:
                print(f"VIOLATION files: while running: {what}", flush=True)
                ledger.say("running", slot)
                sys.exit(1)


def rows_of(number):
    """What transaction `number` writes: rows and lengths."""
    chance = random.Random(number)
    return [(chance.randrange(ROWS), 100 + chance.randrange(6000)) for _ in range(4)]


def blob(row, number, length):
    return (struct.pack("<II", row, number) * (length // 8 + 1))[:length]


def transactions(ledger):
    begun = max((int(w[1]) for w in ledger.lines() if w[0] == "begin"), default=0)
    done = max((int(w[1]) for w in ledger.lines() if w[0] in ("commit", "seen")), default=0)
    return begun, done


def database(directory):
    import sqlite3  # here, since a guest that is emulated starts slowly

    base = sqlite3.connect(os.path.join(directory, "base.sqlite"), isolation_level=None)
    base.execute("PRAGMA synchronous=FULL")
    return base


def check_sqlite(directory, ledger):
    begun, done = transactions(ledger)
    if not done:
        return "no transaction", []
    base = database(directory)
    try:
        wrong = [str(r[0]) for r in base.execute("PRAGMA integrity_check") if r[0] != "ok"]
        there = base.execute("SELECT n FROM last").fetchone()[0]
        if not done <= there <= max(begun, done):
            wrong.append(f"holds transaction {there}; {done} was committed, {begun} begun")
        want = {row: (n, length) for n in range(1, there + 1) for row, length in rows_of(n)}
        for row, n, data in base.execute("SELECT row, n, data FROM rows"):
            number, length = want.pop(row, (0, 0))
            if n != number or data != blob(row, number, length):
                wrong.append(f"row {row} is that of transaction {n}, not {number}")
        wrong += [f"row {row} is not there" for row in want]
        base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        base.close()
    except base.DatabaseError as error:
        return f"{done} transactions", [f"sqlite: {error}"]
    if there > done and not os.environ.get("CHECK_ONLY"):
        os.sync()
        ledger.say("seen", there)
    return f"{there} transactions", wrong


def run_sqlite(directory, ledger, seed):
    done = transactions(ledger)[1]
    base = database(directory)
    base.execute("PRAGMA journal_mode=" + ("WAL" if seed % 2 else "DELETE"))
    base.execute("PRAGMA cache_size=-256")
    base.execute("CREATE TABLE IF NOT EXISTS rows (row INTEGER PRIMARY KEY, n INTEGER, data BLOB)")
    base.execute("CREATE TABLE IF NOT EXISTS last (one INTEGER PRIMARY KEY, n INTEGER)")
    sync_dir(directory)
    while True:
        done += 1
        ledger.say("begin", done)
        base.execute("BEGIN IMMEDIATE")
        for row, length in rows_of(done):
            new = (row, done, blob(row, done, length))
            base.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)", new)
        base.execute("INSERT OR REPLACE INTO last VALUES (1, ?)", (done,))
        base.execute("COMMIT")
        # In DELETE mode the commit is the unlink of the journal: durable with its directory.
        sync_dir(directory)
        ledger.say("commit", done)


def run_command(command):
    import subprocess  # here, since a guest that is emulated starts slowly

    return subprocess.run(command, capture_output=True, text=True, check=False)


def git(directory, *words):
    settings = ["-c", "core.fsync=all", "-c", "gc.auto=0", "-c", "user.name=t", "-c", "user.email=t@t"]
    return run_command(["git", "-C", directory, *settings, *words])


def check_git(directory, ledger):
    commits = [w[1] for w in ledger.lines() if w[0] == "commit"]
    if not commits:
        return "no commit", []
    wrong = []
    for words in (
        ["fsck", "--full", "--strict", "--no-dangling", "--no-progress"],
        ["merge-base", "--is-ancestor", commits[-1], "HEAD"],
    ):
        result = git(directory, *words)
        if result.returncode:
            text = (result.stdout + result.stderr).strip().replace("\n", "; ")
            wrong.append(f"git {words[0]} says {result.returncode}: {text}")
    return f"{len(commits)} commits", wrong


def run_git(directory, ledger, seed):
    chance = random.Random(seed)
    if not ledger.lines():
        # A cut in the middle of `git init` leaves what git does not take for a repository.
        run_command(["rm", "-rf", os.path.join(directory, ".git")])
    git(directory, "init", "-q", "-b", "main")
    for lock in ("index.lock", "HEAD.lock", "refs/heads/main.lock"):
        if os.path.exists(os.path.join(directory, ".git", lock)):
            os.unlink(os.path.join(directory, ".git", lock))
    # The index is no promise of a commit: it may be older than HEAD, or torn.
    git(directory, "reset", "-q")
    while True:
        for _ in range(2):
            with open(os.path.join(directory, f"t{chance.randrange(40)}"), "wb") as file:
                file.write(chance.randbytes(chance.randrange(1, 20_000)))
        git(directory, "add", "-A")
        result = git(directory, "commit", "-q", "-m", "x")
        if result.returncode:
            print(f"git commit: {result.stderr}", flush=True)
            sys.exit(3)
        # git makes no directory durable.
        os.sync()
        with open(os.path.join(directory, ".git/refs/heads/main"), encoding="ascii") as file:
            ledger.say("commit", file.read().strip())


def fio(directory, number, version, *words):
    command = ["fio", "--name=f", f"--filename={directory}/fio{number}", "--size=1m", "--bsrange=4k-32k"]
    command += ["--rw=randwrite", "--direct=1", "--ioengine=libaio", "--iodepth=8", "--fallocate=none"]
    command += ["--verify=crc32c", "--verify_state_save=0", f"--randseed={version}", "--verify_fatal=1"]
    return run_command(command + list(words))


def check_fio(directory, ledger):
    state = {}
    for what, number, version in (w[:3] for w in ledger.lines()):
        state[number] = (what, version)
    wrong, good = [], 0
    for number, (what, version) in sorted(state.items()):
        if what != "done":
            continue
        good += 1
        result = fio(directory, number, version, "--verify_only")
        if result.returncode:
            text = (result.stderr or result.stdout).strip().splitlines()
            wrong.append(f"fio{number} version {version}: {'; '.join(text[:3])}")
    return f"{good} fio files", wrong


def run_fio(directory, ledger, seed):
    version = max((int(w[2]) for w in ledger.lines()), default=0)
    while True:
        version += 1
        number = version % 3
        ledger.say("begin", number, version)
        result = fio(directory, number, version, "--do_verify=0", "--fsync=32", "--end_fsync=1")
        if result.returncode:
            print(f"fio: {result.stderr}", flush=True)
            sys.exit(3)
        sync_dir(directory)
        ledger.say("done", number, version)


def check(directory, ledgers):
    bad = False
    for kind in ("files", "sqlite", "git", "fio"):
        if not os.path.exists(os.path.join(ledgers, kind)):
            continue
        ledger = Ledger(os.path.join(ledgers, kind))
        what, wrong = globals()[f"check_{kind}"](os.path.join(directory, kind), ledger)
        for line in wrong[:5]:
            print(f"VIOLATION {kind}: {line}")
        print(f"{what}, {len(wrong)} wrong" if wrong else what, flush=True)
        bad = bad or bool(wrong)
    return bad


def main():
    verb, directory, ledgers = sys.argv[1:4]
    if verb == "check":
        sys.exit(1 if check(directory, ledgers) else 0)
    kind, seed = sys.argv[4], int(sys.argv[5])
    os.makedirs(os.path.join(directory, kind), exist_ok=True)
    sync_dir(directory)
    ledger = Ledger(os.path.join(ledgers, kind))
    globals()[f"run_{kind}"](os.path.join(directory, kind), ledger, seed)


main()
