# SPDX-License-Identifier: MIT OR Apache-2.0
"""`larder.disable()` and `larder.enable()` on a server under load."""

from __future__ import annotations

import threading

from checks import digest, expect, expect_no_damage
from cluster import Cluster, Failed, status
from lab import ROWS, read_by_key

TURNS = 8


def refusal(cluster: Cluster, statement: str) -> str:
    """The message with which a statement fails."""
    try:
        cluster.sql(statement)
    except Failed as error:
        return str(error)
    raise Failed(f"{statement}: it was accepted")


def refused(cluster: Cluster) -> None:
    """Flash is a part of the database."""
    why = refusal(cluster, "select larder.disable()")
    if "larder.policy is full" not in why or "HINT" not in why or not status(cluster)["caching"]:
        raise Failed(f"disable under full: {why}")


def flash_reads(cluster: Cluster) -> str:
    """Calls that read flash, pages on it, and hits."""
    return cluster.sql("select calls, pages_written_to_flash, hits from larder_stat_io, larder_stat_cache "
                       "where operation = 'flash_read'")


def switches(cluster: Cluster) -> None:
    """While disabled nothing is read from flash or admitted; afterwards flash is warm and current."""
    cluster.sql("update t set v = v + 1 where n % 10 = 0")
    read_by_key(cluster)
    cluster.sql("select larder.disable()")
    found = status(cluster)
    expect("caching, dirty pages", (found["caching"], found["pages_dirty"]), (False, 0))
    before = flash_reads(cluster)
    cluster.sql("update t set v = v + 1 where n % 7 = 0")
    read_by_key(cluster)
    wanted = digest(cluster)
    expect("reads, pages and hits while disabled", flash_reads(cluster), before)
    cluster.sql("select larder.enable()")
    hits = status(cluster)["hits"]
    expect("the table when flash is used again", digest(cluster), wanted)
    read_by_key(cluster)
    if status(cluster)["hits"] == hits:
        raise Failed("flash is cold")
    under_load(cluster)
    expect_no_damage(cluster, 0)


def under_load(cluster: Cluster) -> None:
    """Clients change rows all the time; none of their changes is lost or undone."""
    cluster.sql("create table c (n int primary key, v int not null, pad text)")
    cluster.sql(f"insert into c select g, 0, repeat(md5(g::text), 7) from generate_series(1, {ROWS // 3}) g")
    errors: list[str] = []

    def change(client: int) -> None:
        statement = f"do $$ begin for i in 1..40 loop update c set v = v + 1 where n % 3 = {client} and n % 199 = i; " \
            "commit; end loop; end $$"
        try:
            cluster.sql(statement)
        except Failed as error:
            errors.append(str(error))

    def load(client: int) -> None:
        for _ in range(3):
            change(client)

    clients = [threading.Thread(target=load, args=[client]) for client in range(3)]
    for client in clients:
        client.start()
    turns = 0
    while any(client.is_alive() for client in clients) or turns < TURNS:
        cluster.sql("select larder.disable()")
        cluster.sql("select count(*) from c")
        cluster.sql("select larder.enable()")
        turns += 1
    for client in clients:
        client.join()
    if errors:
        raise Failed(errors[0])
    # Each client has a third of the rows, and changes those of 40 remainders three times.
    added = "select sum(v) from c"
    wanted = 3 * sum(1 for n in range(1, ROWS // 3 + 1) if 1 <= n % 199 <= 40)
    expect("changes of all clients", cluster.sql(added), str(wanted))
    # The checkpointer and a new start read what flash and the disk have.
    cluster.sql("checkpoint")
    cluster.stop()
    cluster.start()
    expect("changes of all clients after a start", cluster.sql(added), str(wanted))
    check_indexes(cluster)


def check_indexes(cluster: Cluster) -> None:
    """The indexes have every row."""
    cluster.sql("create extension if not exists amcheck")
    cluster.sql("select bt_index_check('c_pkey', true), bt_index_check('t_pkey', true)")
