# SPDX-License-Identifier: MIT OR Apache-2.0
"""Files that are made, cut, copied, dropped; frames that hold something else than what was read into them."""

from __future__ import annotations

import os
import signal
import time

from checks import amcheck, digest, expect, expect_no_damage, same_bare
from cluster import EMPTY, LEFT, Cluster, Failed, give, make_status, status
from lab import ROWS, Lab, expect_data, expect_start, read_by_key, scenario
from scenarios_copies import caught_up, standby_of

CONTENT = "select g as n, {tag} as v, repeat(md5((g + {tag})::text), 7) as pad from generate_series({first}, {last}) g"


def rows(tag: int, first: int, last: int) -> str:
    """Rows whose contents follow from a number and a tag."""
    return CONTENT.format(tag=tag, first=first, last=last)


def expect_rows(cluster: Cluster, table: str, count: int, database: str = "postgres") -> None:
    """So many, and each as it was made; twice, with all of another table read between."""
    for _ in range(2):
        wrong = "count(*) filter (where pad <> repeat(md5((n + v)::text), 7))"
        found = cluster.sql(f"select count(*), {wrong} from {table}", database)
        expect(f"rows and wrong rows of {table}", found, f"{count}|0")
        wash(cluster)


def wash(cluster: Cluster) -> None:
    """Reads all of another table, so that frames are needed."""
    read_by_key(cluster)


@scenario(11, "databases and tables made, dropped, truncated, rewritten, moved: contents right each time")
def files_change(lab: Lab) -> None:
    """With a pool that is far smaller than the data."""
    cluster = lab.warm(shared_buffers="2MB")
    space = cluster.home / "space"
    space.mkdir()
    give(space)
    cluster.sql(f"create tablespace space location '{space}'")
    databases(cluster)
    tables(cluster)
    lab.use(cluster)
    cluster.kill_all()
    cluster.start()
    expect_rows(cluster, "r", 9_000)
    expect_rows(cluster, "moved", 20_000)
    expect_data(cluster, digest(cluster))
    same_bare(cluster)


def databases(cluster: Cluster) -> None:
    """CREATE and DROP DATABASE, in both ways, over and over."""
    cluster.sql("create database origin")
    cluster.sql("create table r (n int primary key, v int, pad text);"
                f"insert into r {rows(1, 1, 20_000)}", "origin")
    for turn in range(2):
        for strategy in ("file_copy", "wal_log"):
            cluster.sql(f"create database copy strategy {strategy} template origin")
            expect_rows(cluster, "r", 20_000, "copy")
            _changed_copy(cluster, turn)
            cluster.sql("drop database copy")
    cluster.sql("create database copy template origin tablespace space")
    expect_rows(cluster, "r", 20_000, "copy")
    cluster.sql("alter database copy set tablespace pg_default")
    _changed_copy(cluster, 5)
    cluster.sql("alter database copy set tablespace space")
    expect_rows(cluster, "r", 20_000, "copy")
    expect_rows(cluster, "r", 20_000, "origin")
    amcheck(cluster, "copy")


def _changed_copy(cluster: Cluster, tag: int) -> None:
    cluster.sql(f"update r set v = {tag + 7}, pad = repeat(md5((n + {tag + 7})::text), 7)", "copy")
    expect_rows(cluster, "r", 20_000, "copy")
    expect_rows(cluster, "r", 20_000, "origin")
    amcheck(cluster, "copy")


def tables(cluster: Cluster) -> None:
    """All that changes a table's files."""
    sql = cluster.sql
    sql("create table r (n int primary key, v int, pad text)")
    for turn in range(3):
        sql("truncate r")
        sql(f"insert into r {rows(turn, 1, 20_000)}")
        expect_rows(cluster, "r", 20_000)
        sql("delete from r where n > 4000")
        rewrites = [["vacuum r"], ["vacuum full r"], ["delete from r where n > 3000", "cluster r using r_pkey"]]
        for statement in rewrites[turn]:
            sql(statement)
        kept = [4000, 4000, 3000][turn]
        expect_rows(cluster, "r", kept)
        # New rows where the tail was.
        sql(f"insert into r {rows(turn + 10, 4001, 12_000)}")
        expect_rows(cluster, "r", kept + 8000)
        sql("delete from r where n > 9000")
        sql("vacuum r")
        sql("reindex table r")
        expect_rows(cluster, "r", kept + 5000)
        amcheck(cluster)
    sql(f"insert into r {rows(30, 20_001, 21_000)}")
    sql("create table moved (like r including all)")
    sql(f"insert into moved {rows(40, 1, 20_000)}")
    for target in ("space", "pg_default", "space"):
        sql(f"alter table moved set tablespace {target}")
        sql(f"alter index moved_pkey set tablespace {target}")
        expect_rows(cluster, "moved", 20_000)
        sql("update moved set v = v + 1, pad = repeat(md5((n + v + 1)::text), 7)")
        expect_rows(cluster, "moved", 20_000)
    for turn in range(3):
        sql(f"begin; drop table if exists again; create table again as {rows(turn, 1, 5000)}; commit")
        expect_rows(cluster, "again", 5000)
    amcheck(cluster)


@scenario(26, "new pages in the frames of old ones: relations grow without reads")
def grown(lab: Lab) -> None:
    """A frame that was read into is taken by a page that nobody read: it must not enter as the old one."""
    cluster = lab.warm(autovacuum="off", shared_buffers="2MB", larder__flash_size="16MB")
    data = digest(cluster)
    cluster.sql("create table g (n int, v int, pad text)")
    for turn in range(12):
        # Frames hold pages of t as they were read ...
        read_by_key(cluster)
        # ... then new pages, which are written, leave flash soon, and are read over.
        cluster.sql(f"insert into g {rows(turn, turn * 3000 + 1, turn * 3000 + 3000)}")
        read_by_key(cluster)
        expect("the table's digest", digest(cluster), data)
        expect_rows(cluster, "g", (turn + 1) * 3000)
    expect_data(cluster, data)


@scenario(27, "pages that were cut off and came back, beside frames that still hold the old ones")
def cut_off(lab: Lab) -> None:
    """The old bytes are as they were read, so that nothing but the epoch tells that they are old."""
    cluster = lab.cluster(autovacuum="off", shared_buffers="8MB", larder__flash_size="1MB", larder__batch_pages="4",
                          checkpoint_timeout="1h", max_wal_size="1GB", bgwriter_lru_maxpages="0")
    expect_start(cluster, EMPTY)
    make_status(cluster)
    sql = cluster.sql
    # Each is below a quarter of shared buffers, so that a scan leaves all of it there.
    for name, count, fill in (("e", 5_000, 100), ("hot", 2_800, 45), ("other", 6_500, 100)):
        sql(f"create table {name} (n int, v int, pad text) with (fillfactor = {fill})")
        sql(f"insert into {name} {rows(0, 1, count)}")
    pages = int(sql("select pg_relation_size('e') / 8192"))
    hits = 0
    for turn in range(4):
        # All of e but its first page is empty, and still there.
        sql("delete from e where n > 20")
        sql("vacuum (truncate off, freeze)")
        cluster.stop()
        cluster.start()
        # All frames are free. Hot pages, then the empty ones, as they are on the disk, side by side.
        sql("select sum(v) from hot")
        sql("select count(*) from e")
        sql("vacuum (truncate on) e")
        left = int(sql("select pg_relation_size('e') / 8192"))
        if left > pages // 2:
            raise Failed(f"the tail of e was not cut: {left} of {pages} pages")
        # The first of them come back with rows, in frames that were freed last, and are written.
        sql(f"insert into e {rows(turn, 100_001, 100_700)}")
        sql("checkpoint")
        # Flash forgets them, while no frame is taken.
        for _ in range(4):
            sql("update hot set v = v")
            sql("vacuum hot")
            sql("checkpoint")
        # Then the frames of the old ones are read over, ...
        sql("select sum(v) from other")
        hits += status(cluster)["hits"]
        # ... and nothing is left in shared buffers.
        cluster.stop()
        cluster.start()
        found = sql("select count(*), count(*) filter (where pad <> repeat(md5((n + v)::text), 7)) from e")
        expect("rows and wrong rows", found, "720|0")
        hits += status(cluster)["hits"]
        amcheck(cluster)
        sql(f"insert into e {rows(0, 21, 5_000)}")
    expect_no_damage(cluster, 0)
    if not hits:
        raise Failed("flash had no hit, so nothing was tested")


@scenario(28, "backends die while frames are full: the server begins anew, with other frames")
def anew(lab: Lab) -> None:
    """The postmaster lives on; what its memory said of frames is of no use any more."""
    cluster = lab.warm(shared_buffers="2MB")
    sql = cluster.sql
    for turn in range(6):
        data = digest(cluster)
        read_by_key(cluster)
        at = cluster.log_size()
        victim = sql("select pid from pg_stat_activity where backend_type = 'walwriter'")
        os.kill(int(victim), signal.SIGKILL)
        until = time.monotonic() + 60
        while "ready to accept connections" not in cluster.log_from(at):
            if time.monotonic() > until:
                raise Failed("the server does not come back")
            time.sleep(0.05)
        # Dirtied and cut by the one that was just begun.
        sql(f"update t set v = v + {turn + 1} where n % 3 = 0")
        sql(f"delete from t where n > {ROWS - turn * 500}")
        sql("vacuum t")
        sql(f"insert into t select g, {turn}, repeat(md5(g::text), 7) "
            f"from generate_series({ROWS - turn * 500 + 1}, {ROWS}) g")
        expect("the table changed", digest(cluster) != data, True)
        read_by_key(cluster)
        amcheck(cluster)
    expect_data(cluster, digest(cluster))
    expect("starts that the memory has seen", status(cluster)["starts"] >= 7, True)
    same_bare(cluster)


@scenario(29, "hints on a standby: pages that change in their frames, and are never written")
def hints(lab: Lab) -> None:
    """With checksums a standby sets hints and does not say so; the frame's bytes are not the disk's then."""
    primary = lab.warm(autovacuum="off")
    primary.sql("create table h (n int, v int, pad text) with (autovacuum_enabled = off)")
    for turn in range(3):
        primary.sql(f"insert into h {rows(turn, turn * 20_000 + 1, turn * 20_000 + 20_000)}")
        primary.sql(f"delete from h where n % 10 = {turn}")
    amcheck(primary)
    primary.sql("checkpoint")
    other = standby_of(lab, primary)
    other.settings["shared_buffers"] = "2MB"
    expect_start(other, EMPTY)
    caught_up(primary, other)
    wanted = digest(primary, "h")
    for _ in range(4):
        expect("the table's digest on the standby", digest(other, "h"), wanted)
        read_by_key(other)
    expect_no_damage(other, 0)
    amcheck(other)
    if status(other)["hits"] == 0:
        raise Failed("flash had no hit, so nothing was tested")
    other.stop()
    expect_start(other, "warm after a stop")
    expect("the table's digest after a stop", digest(other, "h"), wanted)
    expect_no_damage(other, 0)


@scenario(53, "a table of 1.4 GB, cut across its two files, grown again, and killed each time: contents right")
def two_segments(lab: Lab) -> None:
    """A row for each page, so that the log of the server stays small. Changes are around the files' border and the cut."""
    cluster = lab.cluster(autovacuum="off", max_wal_size="512MB")
    cluster.start()
    cluster.sql("create table big (n int primary key, v int, pad text) with (fillfactor = 10)")
    fill = "insert into big select g, 0, repeat(md5(g::text), 22) from generate_series({first}, {last}) g"
    update = "update big set v = v + 1, pad = repeat(md5((n + v + 1)::text), 22) where n between {first} and {last}"
    found = "select count(*), sum(v), count(*) filter (where pad <> repeat(md5((n + v)::text), 22)) from big"
    made, left = 160_000, 60_000
    values: list[int] = []
    for size in (made, left, made):
        if size < len(values):
            cluster.sql(f"delete from big where n > {size}")
            cluster.sql("vacuum (truncate) big")
            expect("the second file is empty", int(cluster.sql("select pg_relation_size('big')")) < 1 << 30, True)
        else:
            cluster.sql(fill.format(first=len(values) + 1, last=size))
        values = values[:size] + [0] * (size - len(values))
        for first, last in ((55_000, 65_000), (127_000, 135_000)):
            cluster.sql(update.format(first=first, last=last))
            values = [v + (first <= n <= last) for n, v in enumerate(values, 1)]
            if first < left:
                cluster.sql("checkpoint")
        cluster.kill_all()
        expect_start(cluster, LEFT)
        expect("rows, changes and wrong rows", cluster.sql(found), f"{size}|{sum(values)}|0")
    amcheck(cluster)
    expect_no_damage(cluster, 0)
    same_bare(cluster)
