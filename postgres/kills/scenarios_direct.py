# SPDX-License-Identifier: MIT OR Apache-2.0
"""Relation files that the server opens with O_DIRECT (`debug_io_direct = data`, PostgreSQL 16 and newer)."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from checks import amcheck, digest, expect, expect_no_damage, same_bare
from cluster import BIN, EMPTY, LEFT, Cluster, Failed, run, status
from lab import ROWS, Lab, read_by_key, scenario
from load import TABLES, Churn, Ledger
from options import Skipped

DIRECT_SINCE = 16
ROUNDS = 3


def major() -> int:
    """The version of the server."""
    return int(run([str(BIN / "postgres"), "--version"], {}).split()[2].split(".")[0])


def opened_direct(cluster: Cluster) -> bool:
    """Whether a process of the server has the table's file open with O_DIRECT."""
    path = cluster.data / cluster.sql("select pg_relation_filepath('t')")
    for pid in cluster.processes():
        for link in (Path("/proc") / str(pid) / "fd").iterdir():
            try:
                if Path(os.readlink(link)) != path:
                    continue
                flags = (link.parent.parent / "fdinfo" / link.name).read_text().split("flags:")[1].split()[0]
            except OSError:
                continue
            return bool(int(flags, 8) & os.O_DIRECT)
    return False


@scenario(58, "debug_io_direct = data (16 and newer): loads that are killed, prewarmed and copied tables, contents right")
def direct(lab: Lab) -> None:
    """Frames, private memory and pages of flash are all written past the page cache, and read past it."""
    if major() < DIRECT_SINCE:
        raise Skipped(f"PostgreSQL {major()} has no direct I/O")
    cluster = lab.warm(debug_io_direct="data")
    # It has the file open that it has just read.
    if not opened_direct(cluster):
        raise Failed("the server does not open relation files with O_DIRECT")
    cluster.sql(TABLES)
    cluster.sql("create extension pg_prewarm")
    clients = (Ledger(cluster, "postgres"), Churn(cluster, "postgres"))
    draw = random.Random(lab.options.seed)
    at = 0
    for turn in range(ROUNDS):
        for client in clients:
            client.start()
        # Flash is full before the end, so that pages are evicted from it while clients write.
        cluster.sql(f"update t set v = v + n % {turn + 2} where n % 2 = 0")
        read_by_key(cluster)
        for statement in ("checkpoint", f"create table copy{turn} as select * from t where n % 3 = {turn}", "vacuum t"):
            cluster.sql(statement)
        for mode in ("buffer", "read", "prefetch"):
            cluster.sql(f"select pg_prewarm('t', '{mode}')")
        time.sleep(draw.uniform(0.5, 2))
        wanted = digest(cluster)
        found = status(cluster)
        if not found["hits"] or not found["pages_cached"]:
            raise Failed(f"flash had no hit, so nothing was tested: {found}")
        cluster.kill_all()
        for client in clients:
            client.stop()
        # A kill in the middle of a write to the log, or to pg_control, makes the next start cold.
        how = cluster.start()[1]
        expect("the cache at the start", how in (LEFT, EMPTY if lab.policy != "full" else LEFT), True)
        expect("the table's digest", digest(cluster), wanted)
        for client in clients:
            client.check()
        amcheck(cluster)
        expect_no_damage(cluster, at)
        at = cluster.log_size()
    expect("rows", cluster.sql("select count(*) from t"), str(ROWS))
    same_bare(cluster)
