# SPDX-License-Identifier: MIT OR Apache-2.0
"""Changed pages that flash alone has: what becomes of them when somebody dies."""

from __future__ import annotations

import time

from checks import amcheck, digest, expect, expect_no_damage, give_back
from cluster import EMPTY, LEFT, Cluster, Failed, status
from lab import BOUNDED, FULL, Lab, expect_start, read_by_key, scenario


def absorbed(cluster: Cluster) -> str:
    """Every row of a table is another one, on flash alone; the table's digest."""
    cluster.sql("create table if not exists x (n int primary key, v int, pad text) with (autovacuum_enabled = off)")
    cluster.sql("insert into x select g, 0, repeat(md5(g::text), 7) from generate_series(1, 5000) g "
                "on conflict do nothing")
    # Hints are set and pages whole in the log before.
    cluster.sql("vacuum (freeze) x")
    cluster.sql("checkpoint")
    cluster.sql("update x set v = v + 1")
    data = digest(cluster, "x")
    for _ in range(3):
        read_by_key(cluster)
    if not status(cluster)["pages_dirty"]:
        raise Failed(f"flash has taken no changed page: {status(cluster)}")
    return data


QUIET = {"autovacuum": "off", "checkpoint_timeout": "1h", "max_wal_size": "4GB", "bgwriter_lru_maxpages": "0"}


@scenario(30, "changed pages on flash, two kills without a checkpoint between, and the memory gone", BOUNDED)
def two_kills(lab: Lab) -> None:
    """What the first recovery found on flash, and did not write, nobody else would bring to the disk."""
    cluster = lab.warm(**QUIET)
    for _ in range(3):
        data = absorbed(cluster)
        cluster.kill_all()
        expect_start(cluster, LEFT)
        cluster.kill_all()
        cluster.forget_memory()
        expect_start(cluster, EMPTY)
        expect("the digest of x", digest(cluster, "x"), data)
        amcheck(cluster)
    expect_no_damage(cluster, 0)


def reload(cluster: Cluster, name: str, value: str) -> None:
    """Changes a setting of the running server."""
    cluster.settings[name] = value
    cluster.configure(library=True)
    cluster.sql("select pg_reload_conf()")
    until = time.monotonic() + 30
    while cluster.sql(f"show {name}") != value:
        if time.monotonic() > until:
            raise Failed(f"{name} does not become {value}")
        time.sleep(0.1)
    # The checkpointer logs it before it counts.
    cluster.sql("select pg_sleep(1)")


@scenario(33, "as 30, with changes that recovery need not write: full_page_writes was off, and is on again", BOUNDED)
def without_images(lab: Lab) -> None:
    """Pages that were changed while it was off get no image when they change again, until the next checkpoint."""
    cluster = lab.warm(**QUIET)
    cluster.sql("create table x (n int, v int, pad text) with (autovacuum_enabled = off, fillfactor = 25)")
    cluster.sql("insert into x select g, 0, repeat(md5(g::text), 7) from generate_series(1, 1500) g")
    # Else pages count as full, and are pruned; the redo of that writes the free space map.
    cluster.sql("alter table x set (fillfactor = 100)")
    digest(cluster, "x")
    catalogs = cluster.sql("select string_agg(oid::regclass::text, ', ') from pg_class "
                           "where relkind = 'r' and relnamespace = 'pg_catalog'::regnamespace")
    for fsync in ("on", "off"):
        # Nothing but x is to change from here on: whatever else recovery writes may have all of flash drained.
        cluster.sql(f"vacuum (freeze) {catalogs}")
        cluster.sql("checkpoint")
        # Rows change side by side in their pages: no page is new.
        reload(cluster, "full_page_writes", "off")
        cluster.sql("update x set v = v + 1")
        reload(cluster, "full_page_writes", "on")
        cluster.sql("update x set v = v + 1")
        data = digest(cluster, "x")
        for _ in range(6):
            read_by_key(cluster)
        if not status(cluster)["pages_dirty"]:
            raise Failed(f"flash has taken no changed page: {status(cluster)}")
        cluster.kill_all()
        # Before it recovers a server flushes all of its files, and flash is drained by that; but not with fsync off.
        cluster.settings["fsync"] = fsync
        expect_start(cluster, LEFT)
        cluster.kill_all()
        cluster.forget_memory()
        cluster.settings["fsync"] = "on"
        expect_start(cluster, EMPTY)
        expect(f"the digest of x (recovered with fsync {fsync})", digest(cluster, "x"), data)
        amcheck(cluster)
        cluster.sql("vacuum x")
        digest(cluster, "x")
    expect_no_damage(cluster, 0)


@scenario(31, "changed pages on flash when fsync, then full_page_writes, is turned off: the disk gets them", BOUNDED)
def durability_off(lab: Lab) -> None:
    """From then on nothing is kept back; and again when they are on."""
    cluster = lab.warm(**QUIET)
    for name in ("fsync", "full_page_writes"):
        for value in ("off", "on"):
            data = absorbed(cluster) if value == "off" else digest(cluster, "x")
            reload(cluster, name, value)
            cluster.sql("update t set v = v + 1 where n % 10 = 0")
            read_by_key(cluster)
            if value == "off":
                expect("changed pages on flash", status(cluster)["pages_dirty"], 0)
        cluster.kill_all()
        cluster.forget_memory()
        cluster.start(library=False)
        expect("the digest of x without the library", digest(cluster, "x"), data)
        amcheck(cluster)
        cluster.stop()
        expect_start(cluster, EMPTY)
        lab.use(cluster)
    expect_no_damage(cluster, 0)


@scenario(32, "changed pages on flash, the server dead, started without the library", BOUNDED)
def bare_with_changed(lab: Lab) -> None:
    """Redo has all of them in the log."""
    cluster = lab.warm(**QUIET)
    for end in (cluster.kill_all, lambda: cluster.stop("immediate"), cluster.stop):
        data = absorbed(cluster)
        end()
        cluster.start(library=False)
        expect("the digest of x without the library", digest(cluster, "x"), data)
        amcheck(cluster)
        cluster.kill_all()
        expect_start(cluster, EMPTY)
        expect("the digest of x", digest(cluster, "x"), data)
        lab.use(cluster)
    expect_no_damage(cluster, 0)


@scenario(42, "a relation's file read through the server (pg_read_binary_file): what flash alone has is in it", BOUNDED + FULL)
def file_read(lab: Lab) -> None:
    """pg_rewind takes blocks of a running server so."""
    cluster = lab.warm(**QUIET)
    content = "select md5(pg_read_binary_file(pg_relation_filepath('x')))"
    for _ in range(2):
        absorbed(cluster)
        before = cluster.sql(content)
        cluster.sql("vacuum (freeze) x")
        if not status(cluster)["pages_dirty"]:
            absorbed(cluster)
        cluster.sql("checkpoint")
        read = cluster.sql(content)
        expect("the file has changed", read != before, True)
        cluster.stop()
        give_back(cluster)
        cluster.start(library=False) if lab.policy == "bounded" else cluster.start()
        expect("the file as the disk has it", cluster.sql(content), read)
        cluster.stop()
        cluster.start()
        lab.use(cluster)
    expect_no_damage(cluster, 0)
