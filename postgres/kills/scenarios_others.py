# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attacks of another local user who has a shell: that user cannot read, change or stop the server or its cache."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from checks import digest, expect
from cluster import BIN, LEFT, STOPPED, USER, Cluster, Failed, give, status
from lab import DISK, Lab, expect_data, expect_log, expect_start, scenario
from options import Skipped
from scenarios_flash import FLASH, flash_of
from scenarios_full import expect_refused
from scenarios_kept_back import QUIET

OTHER = os.environ.get("KILLS_OTHER") or "nobody"
# The mark of a memory with a header; numbers follow that no memory has.
HEADER = b"LARDMEM1" + b"\xff" * 4088
WAYS_LEAST = 30
# One that every user may run: that of this process may be in root's home.
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin")


def other() -> pwd.struct_passwd:
    """The other user."""
    if os.geteuid() != 0:
        raise Skipped("only root can become another user")
    if OTHER == USER:
        raise Skipped(f"KILLS_OTHER is {OTHER}, as the servers' user")
    if PYTHON is None:
        raise Skipped("there is no python3 in /usr/bin")
    try:
        return pwd.getpwnam(OTHER)
    except KeyError as error:
        raise Skipped(f"there is no user {OTHER}; set KILLS_OTHER") from error


def as_other(words: list[str], text: str = "", user: pwd.struct_passwd | None = None) -> str:
    """Runs something as the other user; what it printed."""
    user = user or other()
    done = subprocess.run(
        words, input=text, capture_output=True, text=True, check=False, cwd="/", timeout=120,
        user=user.pw_uid, group=user.pw_gid, extra_groups=[],
    )
    if done.returncode != 0:
        raise Failed(f"{words}: {done.stderr}")
    return done.stdout


def prefix_of(cluster: Cluster) -> str:
    """The first part of the names of the server's memory, taken from the name of the present one."""
    return "-".join(str(cluster.shared_files()[0]).split("-")[:3])


def tried(lab: Lab, cluster: Cluster, table: str, own: bool = False) -> dict[str, tuple[str, str]]:
    """The result and the text of each way, see other.py; `own`: the server's own user tries those that only look."""
    first = cluster.postmaster()
    words = {
        "when": "running" if first else "stopped", "looks": own, "postmaster": first,
        "children": [pid for pid in cluster.processes() if pid != first],
        "data": str(cluster.data), "flash": str(flash_of(cluster)), "home": str(cluster.home),
        "library": str(lab.options.library), "server": str(BIN / "postgres"), "port": cluster.port,
        "table": table,
        "memory": [str(file) for file in cluster.shared_files()] if first else [],
    }
    script = lab.options.base / "other.py"
    shutil.copy(Path(__file__).with_name("other.py"), script)
    script.chmod(0o644)
    try:
        found = as_other([str(PYTHON), str(script)], json.dumps(words), pwd.getpwnam(USER) if own else None)
    finally:
        script.unlink()
    return dict(json.loads(found))


def expect_refusals(lab: Lab, cluster: Cluster, table: str) -> int:
    """Every way is refused to the other user, and those that look work for the server's own; the number of ways."""
    found = tried(lab, cluster, table)
    if worked := [name for name, (result, _) in found.items() if result == "done"]:
        raise Failed(f"{OTHER} can: {', '.join(worked)}")
    if failed := [f"{name} ({text})" for name, (result, text) in found.items() if result != "refused"]:
        raise Failed(f"{OTHER} was not refused, but got another error: {', '.join(failed)}")
    # Otherwise a refusal would prove nothing: the way may look in the wrong place.
    own = tried(lab, cluster, table, own=True)
    if failed := [f"{name} ({text})" for name, (result, text) in own.items() if result != "done"]:
        raise Failed(f"{USER} cannot: {', '.join(failed)}")
    return len(found)


def searchable(lab: Lab) -> Path:
    """A directory of the server's user that others can search, unlike the data directory."""
    above = lab.place().home
    above.mkdir(mode=0o755)
    give(above)
    return above


@contextmanager
def squatted(prefix: str) -> Iterator[None]:
    """The other user makes files of every kind under the names that earlier or later memories of the server may have."""
    user = other()
    made = {
        "": "file", "-0": "header", "-1": "directory", "-2": "link", "-3": "fifo", "-4": "all may write",
        "-5": "socket", "-00000000000000ff": "file", "x": "file",
    }
    script = f"""
import os, socket, sys
prefix, made = {prefix!r}, {made!r}
os.umask(0)
for suffix, what in made.items():
    path = prefix + suffix
    if what == "directory": os.mkdir(path, 0o777)
    elif what == "link": os.symlink("/etc/passwd", path)
    elif what == "fifo": os.mkfifo(path, 0o666)
    elif what == "socket": socket.socket(socket.AF_UNIX).bind(path)
    else:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600 if what == "file" else 0o666)
        os.write(file, {HEADER!r})
print("made", flush=True)
sys.stdin.readline()
for suffix, what in made.items():
    (os.rmdir if what == "directory" else os.unlink)(prefix + suffix)
"""
    process = subprocess.Popen(
        [str(PYTHON), "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
        user=user.pw_uid, group=user.pw_gid, extra_groups=[],
    )
    try:
        if process.stdout is None or process.stdout.readline() != "made\n":
            raise Failed(f"{OTHER} cannot make names in /dev/shm")
        yield
    finally:
        process.communicate("end\n", timeout=60)
    if process.returncode != 0:
        raise Failed(f"{OTHER}'s names were not there any more")


@scenario(49, "another local user tries what a shell can, while the server runs and while it is stopped")
def another_user(lab: Lab) -> None:
    """Nothing is read, changed or stopped; the next starts are as warm as without that user."""
    other()
    cluster = lab.warm(**QUIET, unix_socket_permissions="0700", larder__flash_directory=str(searchable(lab) / "flash"))
    table = cluster.sql("select pg_relation_filepath('t')")
    wanted, prefix = digest(cluster), prefix_of(cluster)
    ways = expect_refusals(lab, cluster, table)
    expect("the table's digest", digest(cluster), wanted)
    cluster.stop()
    ways += expect_refusals(lab, cluster, table)
    if ways < WAYS_LEAST:
        raise Failed(f"only {ways} ways were tried")
    at = cluster.log_size()
    with squatted(prefix):
        expect_start(cluster, STOPPED)
        expect("the table's digest", digest(cluster), wanted)
        cluster.kill_all()
        expect_start(cluster, LEFT)
    expect_data(cluster, wanted, at)


@scenario(50, "another user made the flash directory, or may write to it or above it: refused, and the database is served")
def foreign_flash(lab: Lab) -> None:
    """Under `full` too, since no page is only on flash yet. No page is in that user's file."""
    user = other()
    above = searchable(lab)
    for name, mode in (("loose", 0o777), ("sticky", 0o1777)):
        (above / name).mkdir()
        (above / name).chmod(mode)
    script = "umask 0; mkdir -p $0 && : >$0/larder.flash && mkfifo $0/larder.kept"
    for name, why in (
        ("loose/larder", "has mode 0777"), ("sticky/larder", f"belongs to the user with id {user.pw_uid}"),
        ("sticky", "has mode 1777"),
    ):
        at = above / name
        as_other(["sh", "-c", script, str(at)])
        cluster = lab.cluster(larder__flash_directory=str(at))
        log = cluster.log_size()
        expect_start(cluster, "")
        expect_log(cluster, why, log)
        cluster.sql("create table t as select g, repeat('secret', 100) from generate_series(1, 10000) g")
        cluster.sql("checkpoint")
        cluster.stop()
        if (at / FLASH).stat().st_size != 0:
            raise Failed(f"something was written to {at / FLASH}")


@scenario(51, "the flash file or one beside it became readable or writable for others: refused until that is corrected")
def opened_flash(lab: Lab) -> None:
    """The message says how."""
    cluster = lab.warm(**QUIET)
    wanted = digest(cluster)
    cluster.stop()
    for name, mode in ((FLASH, 0o644), ("larder.kept", 0o660), ("", 0o722)):
        path = flash_of(cluster) / name
        before = path.stat().st_mode & 0o7777
        path.chmod(mode)
        why = f"has mode {mode:04o}; accepted:"
        if lab.policy == "full":
            expect_refused(cluster, why)
        else:
            at = cluster.log_size()
            expect_start(cluster, "")
            expect_log(cluster, why, at)
            expect("caching", status(cluster)["caching"], False)
            cluster.stop()
        path.chmod(before)
    # A server that ran without a cache changed pg_control.
    expect_start(cluster, STOPPED if lab.policy == "full" else "empty")
    expect("the table's digest", digest(cluster), wanted)
