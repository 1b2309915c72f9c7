# SPDX-License-Identifier: MIT OR Apache-2.0
"""Statistics, `larder.prewarm` and `larder.pin` on a server whose flash is smaller than its tables."""

from __future__ import annotations

from checks import digest, expect
from cluster import Cluster, Failed
from lab import read_by_key
from switch import refusal

RELATION = "select {} from larder_stat_relations where relation = '{}'::regclass"


def of(cluster: Cluster, table: str, columns: str) -> list[int]:
    """Figures of a table."""
    found = cluster.sql(RELATION.format(columns, table))
    return [int(figure) for figure in found.split("|")] if found else []


def pages(cluster: Cluster, table: str) -> int:
    """Pages of its main fork."""
    return int(cluster.sql(f"select pg_relation_size('{table}') / current_setting('block_size')::int"))


def at_least(what: str, found: float, least: float) -> None:
    """A figure is as large as it must be."""
    if found < least:
        raise Failed(f"{what}: {found}, not at least {least}")


def settle(cluster: Cluster, table: str) -> None:
    """The disk has all of a table, and reads do not change it."""
    cluster.sql(f"vacuum (freeze, analyze) {table}")
    cluster.sql("checkpoint")


def statistics(cluster: Cluster) -> None:
    """Views have figures that belong together, and a reset sets them to zero."""
    cluster.sql("checkpoint")
    cluster.sql("update t set v = v + 1 where n % 3 = 0")
    read_by_key(cluster)
    reads, hits, cached, dirty, size = of(cluster, "t", "reads, hits, pages_cached, pages_dirty, bytes_cached")
    at_least("reads", reads, hits)
    for what, figure in (("hits", hits), ("cached pages", cached), ("dirty pages", dirty)):
        at_least(what, figure, 100)
    expect("bytes", size, 8192 * cached)
    expect("figures of relations and of the cache agree", cluster.sql(
        "select sum(r.reads) <= max(c.reads) and sum(r.pages_cached) <= max(c.flash_pages) "
        "from larder_stat_relations r, larder_stat_cache c"), "t")
    wanted = "disk_read|t\nflash_flush|t\nflash_read|t\nflash_write|t"
    # The background writer may write while the two views are read, but not each time.
    for _ in range(20):
        found = cluster.sql(
            "select operation, i.calls = sum(l.calls) and i.calls = max(l.calls_upto) and count(*) = 26 "
            "from larder_stat_io i join larder_stat_latency l using (operation) group by operation, i.calls order by 1")
        if found == wanted:
            break
    expect("buckets and calls", found, wanted)
    expect("wear", cluster.sql(
        "select bytes_written > 8192 * 100 and bytes_per_day > bytes_written and years_of_endurance > 0 "
        "and endurance_bytes = 600 * 2::numeric ^ 40 and stats_reset < now() from larder_stat_wear"), "t")
    cluster.sql("select larder.stats_reset()")
    # The background writer does not wait.
    after = cluster.sql("select hits < 100, bytes_written < 4000000, now() - stats_reset < '1 min', pages_cached > 1000 "
                        "from larder_stat_cache join larder_stat_wear using (stats_reset)")
    expect("figures after a reset", after, "t|t|t|t")


def prewarms(cluster: Cluster) -> None:
    """A table that was never read through shared buffers is on flash then; a cancel ends it."""
    cluster.sql("select larder.disable()")
    cluster.sql("create table w as select g as n, repeat(md5(g::text), 7) as pad from generate_series(1, 60000) g")
    settle(cluster, "w")
    cluster.sql("select larder.enable()")
    wanted = digest(cluster, "w")
    before = (of(cluster, "w", "pages_cached") or [0])[0]
    size = pages(cluster, "w")
    if before > size / 2:
        raise Failed(f"w is on flash before: {before} of {size} pages")
    why = refusal(cluster, "set statement_timeout = '1ms'; select larder.prewarm('w')")
    if "statement timeout" not in why:
        raise Failed(f"prewarm was not canceled: {why}")
    read = int(cluster.sql("select larder.prewarm('w')"))
    cluster.sql("select larder.prewarm('t')")
    # The rest is in the ring of VACUUM, which is a quarter of shared buffers from 17 on.
    at_least("pages of w on flash", of(cluster, "w", "pages_cached")[0], 0.75 * size)
    at_least("pages that were read", read, size / 4)
    expect("the digest of w", digest(cluster, "w"), wanted)
    expect("a relation without storage", cluster.sql("create view e as select 1; select larder.prewarm('e')"), "0")
    cluster.sql("create temp table x as select 1; select larder.prewarm('x')")
    cluster.sql("drop view e; drop table w")


def churn(cluster: Cluster) -> None:
    """Reads tables larger than flash, by key."""
    if not cluster.sql("select to_regclass('big')"):
        cluster.sql("create table big as select g as n, repeat(md5(g::text), 7) as pad from generate_series(1, 250000) g")
        cluster.sql("create index on big (n)")
        settle(cluster, "big")
    for _ in range(2):
        cluster.sql("set enable_seqscan = off; set enable_bitmapscan = off; set enable_hashjoin = off; set enable_mergejoin = off;"
                    "select count(pad) from generate_series(1, 250000, 5) g join big on n = (g * 7919::bigint) % 250000")


def pins(cluster: Cluster) -> None:
    """Pages of a pinned table stay on flash; pins are refused beyond a quarter of it."""
    cluster.sql("create table p as select g as n, repeat(md5(g::text), 7) as pad from generate_series(1, 30000) g")
    settle(cluster, "p")
    size = pages(cluster, "p")
    expect("pages that are pinned", cluster.sql("select larder.pin('p')"), str(size))
    expect("pages that the view has", of(cluster, "p", "pages_pinned"), [size])
    # Through a ring, twice: the table is larger than a quarter of shared buffers.
    wanted = digest(cluster, "p")
    cluster.sql("select larder.prewarm('p')")
    churn(cluster)
    at_least("pages of a pinned table on flash", of(cluster, "p", "pages_cached")[0], 0.75 * size)
    why = refusal(cluster, "select larder.pin('big')")
    if "a quarter of flash" not in why:
        raise Failed(f"pin of a large table: {why}")
    expect("unpin", cluster.sql("select larder.unpin('p'), larder.unpin('p')"), "t|f")
    expect("the digest of p", digest(cluster, "p"), wanted)
    churn(cluster)
    left = (of(cluster, "p", "pages_cached") or [0])[0]
    if left > 0.5 * size:
        raise Failed(f"{left} of {size} pages stay although the table is not pinned")
    cluster.sql("select larder.pin('p'); drop table p, big")
    expect("pins of a dropped table", cluster.sql("select coalesce(sum(pages_pinned), 0) from larder_stat_relations"), "0")
