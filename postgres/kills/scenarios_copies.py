# SPDX-License-Identifier: MIT OR Apache-2.0
"""Copies of a data directory, and other servers: what was put back, what was taken, who follows whom."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from pathlib import Path

from checks import amcheck, digest, expect, expect_no_damage, same_bare
from cluster import EMPTY, Cluster, Failed, give, status
from lab import DISK, ROWS, Lab, change, expect_data, expect_start, read_by_key, scenario, wait_for_policy
from load import TABLES, Client, Ledger, Session


def copy(source: Path, target: Path) -> None:
    """All of a directory, as it is."""
    if target.exists():
        shutil.rmtree(target)
    subprocess.run(["cp", "-a", "--reflink=auto", str(source), str(target)], check=True)


class Updates(Client):
    """Changes random rows."""

    turn = 0

    def step(self, session: Session) -> bool:
        self.turn += 1
        first = self.turn * 7919 % ROWS
        return session.send(f"update t set v = v + 1 where n between {first} and {first + 200}")


def outside(lab: Lab) -> str:
    """A flash directory outside of the data directory."""
    flash = lab.options.base / f"{lab.name}-flash"
    if not flash.exists():
        flash.mkdir()
        give(flash)
    return str(flash)


@scenario(4, "an older copy of the data directory put back under a warm cache: empty", DISK)
def older_copy(lab: Lab) -> None:
    """After a stop, after a kill, and a copy of a dead server."""
    flash = outside(lab)
    cluster = lab.warm(larder__flash_directory=flash)
    before = cluster.home / "before"
    try:
        for turn in range(3):
            data = change(cluster)
            lab.use(cluster)
            if turn == 2:
                cluster.kill_all()
            else:
                cluster.stop()
            copy(cluster.data, before)
            cluster.start()
            change(cluster)
            lab.use(cluster)
            if turn == 0:
                cluster.stop()
            else:
                cluster.kill_all()
            copy(before, cluster.data)
            expect_start(cluster, EMPTY)
            expect_data(cluster, data)
    finally:
        cluster.kill_all()
        shutil.rmtree(flash)


@scenario(23, "a snapshot of the running server put back before its next checkpoint: empty", DISK)
def snapshot(lab: Lab) -> None:
    """pg_control is the same in both, as checkpoints alone write it. A file system with snapshots gives this."""
    flash = outside(lab)
    cluster = lab.warm(larder__flash_directory=flash, checkpoint_timeout="1h", max_wal_size="4GB")
    before = cluster.home / "before"
    try:
        data = change(cluster)
        lab.use(cluster)
        cluster.sql("checkpoint")
        cluster.signal_all(signal.SIGSTOP)
        copy(cluster.data, before)
        cluster.signal_all(signal.SIGCONT)
        change(cluster)
        lab.use(cluster)
        cluster.kill_all()
        copy(before, cluster.data)
        how = cluster.start()[1]
        try:
            expect_data(cluster, data)
        except Failed as error:
            raise Failed(f"the log says {how!r}, and: {error}") from error
        expect("the cache at the start", how, EMPTY)
    finally:
        cluster.kill_all()
        shutil.rmtree(flash)


@scenario(10, "pg_basebackup under load: sound without the library, and with it")
def base_backup(lab: Lab) -> None:
    """It reads files past shared buffers, while they change."""
    cluster = lab.warm()
    cluster.sql(TABLES)
    ledger, updates = Ledger(cluster, "postgres"), Updates(cluster, "postgres")
    ledger.start()
    updates.start()
    time.sleep(2)
    copies = [lab.place(), lab.place()]
    for other in copies:
        other.home.mkdir(mode=0o755)
        give(other.home)
        cluster.tool("pg_basebackup", "-D", str(other.data), "-X", "stream", "-c", "fast", "-d",
                     f"host={cluster.home} port={cluster.port} user=postgres")
    updates.stop()
    ledger.stop()
    ledger.check()
    for other, library in zip(copies, (False, True), strict=True):
        expect_start(other, EMPTY if library else "", library=library)
        amcheck(other)
        data = digest(other)
        read_by_key(other)
        expect("the table's digest when it is read again", digest(other), data)
        expect("rows with wrong contents", other.sql(
            "select count(*) from t where pad <> repeat(md5(n::text), 7)"), "0")
        expect_no_damage(other, 0)
        other.stop()


def standby_of(lab: Lab, primary: Cluster) -> Cluster:
    """Another server that follows it."""
    other = lab.place()
    other.home.mkdir(mode=0o755)
    give(other.home)
    primary.tool("pg_basebackup", "-D", str(other.data), "-X", "stream", "-c", "fast", "-R", "-d",
                 f"host={primary.home} port={primary.port} user=postgres")
    # What belongs to the primary's cache belongs to nobody here.
    shutil.rmtree(other.data / "larder_flash", ignore_errors=True)
    return other


def caught_up(primary: Cluster, standby: Cluster) -> None:
    """Waits until the one has replayed what the other has written."""
    at = primary.sql("select pg_current_wal_lsn()")
    until = time.monotonic() + 120
    while standby.sql(f"select pg_last_wal_replay_lsn() >= '{at}'") != "t":
        if time.monotonic() > until:
            raise Failed("the standby does not follow")
        time.sleep(0.1)


class Reads(Client):
    """Reads without end: on a standby that sets hints in pages which nobody writes."""

    def step(self, session: Session) -> bool:
        return session.send("select count(*), sum(v) from t") and session.send(
            "set enable_seqscan = off; select sum(v) from generate_series(1, 90000, 11) g join t on t.n = g")


@scenario(12, "a standby with the library, promoted after its primary was killed")
def standby(lab: Lab) -> None:
    """Synchronous, so that all acknowledged commits are there. Then kills of the standby itself."""
    primary = lab.warm()
    primary.sql(TABLES)
    other = standby_of(lab, primary)
    expect_start(other, EMPTY)
    for turn in range(3):
        updates, reads = Updates(primary, "postgres"), Reads(other, "postgres")
        updates.start()
        reads.start()
        time.sleep(4)
        updates.stop()
        reads.stop()
        caught_up(primary, other)
        expect("the table's digest on the standby", digest(other), digest(primary))
        expect_no_damage(other, 0)
        if turn == 0:
            other.kill_all()
        elif turn == 1:
            other.stop()
        if turn < 2 and not other.start()[1]:
            raise Failed("the standby started without its cache")
    primary.settings["synchronous_standby_names"] = "*"
    primary.configure(library=True)
    primary.sql("select pg_reload_conf()")
    ledger, updates = Ledger(primary, "postgres"), Updates(primary, "postgres")
    ledger.start()
    updates.start()
    time.sleep(3)
    primary.kill_all()
    updates.stop()
    ledger.stop()
    if lab.policy != "full":
        expect("the policy of a standby", status(other)["policy"], "through")
    other.tool("pg_ctl", "-D", str(other.data), "-w", "-s", "promote")
    if lab.policy != "full":
        wait_for_policy(other, lab.policy)
    # The ledger looks at the other server from now on.
    ledger.cluster = other
    if not ledger.check():
        raise Failed("the ledger has no rows")
    change(other)
    expect_data(other, digest(other))
    same_bare(other)


@scenario(24, "the killed primary, rewound to follow the promoted standby", DISK)
def rewound(lab: Lab) -> None:
    """pg_rewind changes files of a server that was stopped cleanly, or stops it so itself."""
    primary = lab.warm(wal_log_hints="on", wal_keep_size="1GB")
    other = standby_of(lab, primary)
    other.settings["wal_keep_size"] = "1GB"
    expect_start(other, EMPTY)
    caught_up(primary, other)
    other.tool("pg_ctl", "-D", str(other.data), "-w", "-s", "promote")
    other.sql("checkpoint")
    change(primary)
    lab.use(primary)
    data = change(other)
    primary.kill_all()
    other.sql("checkpoint")
    source = f"host={other.home} port={other.port} user=postgres dbname=postgres"
    primary.configure(library=True)
    primary.tool("pg_rewind", "-D", str(primary.data), "--source-server", source, "-R",
                 "--config-file", str(primary.data / "postgresql.conf"))
    expect_start(primary, EMPTY)
    caught_up(other, primary)
    expect("the table's digest on the rewound server", digest(primary), data)
    read_by_key(primary)
    expect("the table's digest when it is read again", digest(primary), data)
    expect_no_damage(primary, 0)


@scenario(25, "a copy of a stopped data directory runs beside its origin")
def beside(lab: Lab) -> None:
    """Both have the same system identifier, and kept logs."""
    cluster = lab.warm()
    lab.use(cluster)
    data = digest(cluster)
    cluster.stop()
    other = lab.place()
    other.home.mkdir(mode=0o755)
    give(other.home)
    copy(cluster.data, other.data)
    cluster.start()
    other.start()
    changed = change(cluster)
    read_by_key(other)
    expect_data(other, data)
    expect_data(cluster, changed)
    data = change(other)
    for one in (cluster, other):
        one.kill_all()
        one.start()
    expect_data(other, data)
    expect_data(cluster, changed)
