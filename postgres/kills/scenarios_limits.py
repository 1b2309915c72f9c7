# SPDX-License-Identifier: MIT OR Apache-2.0
"""What runs out, is away, or stays behind: descriptors, room, a tablespace, a log collector."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from pathlib import Path

from checks import amcheck, digest, expect, expect_no_damage
from cluster import BIN, EMPTY, LEFT, STOPPED, Failed, as_user, give, make_status, status
from lab import FULL, Lab, expect_data, expect_log, expect_start, scenario
from options import Skipped
from scenarios_flash import mounted
from scenarios_full import changed, expect_both, expect_refused
from scenarios_kept_back import QUIET, absorbed

TABLES = 150
DESCRIPTORS = 110


@scenario(43, "killed in the middle of CREATE INDEX: pages of the index are on flash before the log has them", FULL)
def index_killed(lab: Lab) -> None:
    """The transaction is open, so nothing has flushed the log that says what it made."""
    cluster = lab.warm(**QUIET)
    wanted = changed(lab, cluster)
    words = [str(BIN / "psql"), "-Xqc", "begin; create index made on x (v, n); select pg_sleep(60)"]

    def make() -> None:
        subprocess.run(as_user(words), env=cluster.env(), check=False, capture_output=True, cwd="/")

    for _ in range(3):
        cluster.sql("checkpoint")
        maker = threading.Thread(target=make)
        maker.start()
        until = time.monotonic() + 60
        while "t" != cluster.sql("select exists (select from pg_stat_activity where wait_event = 'PgSleep')"):
            if time.monotonic() > until:
                raise Failed("the index is not made")
            time.sleep(0.1)
        cluster.kill_all()
        maker.join()
        at = cluster.log_size()
        expect_start(cluster, LEFT)
        expect_both(cluster, wanted, at)


@scenario(44, "a tablespace is not mounted at a start: refused, and nothing is forgotten", FULL)
def tablespace_away(lab: Lab) -> None:
    """After a kill, and after the memory is lost."""
    cluster = lab.warm(**QUIET)
    space, away = cluster.home / "space", cluster.home / "away"
    space.mkdir()
    give(space)
    cluster.sql(f"create tablespace s location '{space}'")
    cluster.sql("alter table t set tablespace s")
    for lost in (False, True):
        wanted = changed(lab, cluster)
        cluster.kill_all()
        if lost:
            cluster.forget_memory()
        space.rename(away)
        space.mkdir()
        give(space)
        expect_refused(cluster, "pg_tblspc")
        space.rmdir()
        away.rename(space)
        at = cluster.log_size()
        cluster.start()
        expect_both(cluster, wanted, at)
        lab.use(cluster)


@scenario(45, "fewer descriptors than the server would use, and many tables")
def few_descriptors(lab: Lab) -> None:
    """Each backend has as many files open as it can; the library's own come on top."""
    cluster = lab.cluster(**QUIET)
    cluster.around = ["prlimit", f"--nofile={DESCRIPTORS}"]
    cluster.start()
    make_status(cluster)
    limits = Path(f"/proc/{cluster.postmaster()}/limits").read_text()
    expect("descriptors", re.search(r"Max open files +(\d+)", limits)[1], str(DESCRIPTORS))  # type: ignore[index]
    at = cluster.log_size()
    all_of = [f"many{n}" for n in range(TABLES)]
    for name in all_of:
        cluster.sql(f"create table {name} as select n, 0 v from generate_series(1, 5000) n")
    for turn in range(1, 4):
        # All by one backend.
        cluster.sql("".join(f"update {name} set v = v + n;" for name in all_of))
        cluster.sql("checkpoint")
        sums = cluster.sql(" union ".join(f"select sum(v) from {name}" for name in all_of))
        expect("the sums", sums, str(turn * 5000 * 5001 // 2))
    if not status(cluster)["writes_entered"] + status(cluster)["writes_absorbed"]:
        raise Failed(f"nothing came to flash: {status(cluster)}")
    if "PANIC" in cluster.log_from(at):
        raise Failed("the server had a PANIC")
    expect_no_damage(cluster, at)
    cluster.kill_all()
    cluster.start()
    expect("the sums", cluster.sql(" union ".join(f"select sum(v) from {name}" for name in all_of)), sums)
    amcheck(cluster)


@scenario(46, "others fill what is left of flash's file system while the server runs")
def filled(lab: Lab) -> None:
    """All that the library needs there is allotted at start."""
    with mounted(["-t", "tmpfs", "-o", "size=80m,mode=0700", "tmpfs"], lab.options.base / f"filled-{lab.policy}") as flash:
        cluster = lab.warm(**QUIET, larder__flash_directory=str(flash))
        subprocess.run(f"cat /dev/zero > {flash}/filler", shell=True, check=False, capture_output=True)
        at = cluster.log_size()
        first = cluster.postmaster()
        for n in range(60):
            cluster.sql(f"create table made{n} as select 1 a; create index on made{n} (a)")
        wanted = (absorbed(cluster), digest(cluster)) if lab.policy != "through" else ("", digest(cluster))
        cluster.sql("checkpoint")
        expect("the postmaster", cluster.postmaster(), first)
        if "PANIC" in cluster.log_from(at):
            raise Failed("the server had a PANIC")
        cluster.kill_all()
        expect_start(cluster, LEFT)
        expect_data(cluster, wanted[1], at)
        cluster.stop()
        expect_start(cluster, STOPPED)
        expect_data(cluster, wanted[1], at)
        cluster.kill_all()


@scenario(47, "a log collector outlives the server: the next start has the flash")
def collector(lab: Lab) -> None:
    """A program that a backend began keeps the server's standard error open, for which the collector waits."""
    cluster = lab.warm()
    cluster.stop()
    cluster.settings |= {"logging_collector": "on", "log_directory": str(cluster.home / "collected")}
    expect_start(cluster, STOPPED)
    cluster.sql("copy (select 1) to program 'sleep 600 >/dev/null </dev/null &'")
    data = digest(cluster)
    try:
        cluster.tool("pg_ctl", "-D", str(cluster.data), "-w", "-s", "-m", "fast", "stop", limit=200)
        left = list(cluster.processes().values())
        if not any("logger" in title for title in left):
            raise Failed(f"the collector has gone: {left}")
        expect_start(cluster, STOPPED)
        expect("the table's digest", digest(cluster), data)
    finally:
        for pid, title in cluster.processes().items():
            if title.startswith("sleep"):
                os.kill(pid, 9)


@scenario(48, "/dev/shm is too small: a warning and no cache, or refused where pages are on flash alone")
def small_shm(lab: Lab) -> None:
    """As in a container; and as before when there is room again."""
    if os.geteuid() != 0:
        raise Skipped("only root can mount")
    cluster = lab.warm(**QUIET)
    wanted = changed(lab, cluster) if lab.policy == "full" else ("", digest(cluster))
    cluster.stop()
    mount = 'mount -t tmpfs -o size=3m,mode=1777 tmpfs /dev/shm && exec "$@"'
    cluster.around = ["unshare", "-m", "sh", "-c", mount, "sh"]
    if lab.policy == "full":
        expect_refused(cluster, "KiB of shared memory: No space left on device")
    else:
        at = cluster.log_size()
        expect_start(cluster, "")
        expect_log(cluster, "KiB of shared memory: No space left on device", at)
        expect("caching", status(cluster)["caching"], False)
        if "No space left on device" not in str(status(cluster)["reason"]):
            raise Failed(f"no reason: {status(cluster)}")
        expect("the table's digest", digest(cluster), wanted[1])
        cluster.stop()
    cluster.around = []
    at = cluster.log_size()
    expect_start(cluster, STOPPED if lab.policy == "full" else EMPTY)
    if lab.policy == "full":
        expect_both(cluster, wanted, at)
    else:
        expect_data(cluster, wanted[1], at)
