# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a scenario is, where it has its servers, and what all of them expect."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from checks import amcheck, digest, expect, expect_no_damage
from cluster import Cluster, Failed, make_status, status
from options import Options

# 24 MB: more than shared buffers, less than flash.
ROWS = 90_000
TABLE = f"""
    create table t (n int primary key, v int not null, pad text not null);
    insert into t select g, 0, repeat(md5(g::text), 7) from generate_series(1, {ROWS}) g;
    create index t_v on t using hash (v);
    vacuum (freeze, analyze) t;
"""


class Lab:
    """Where a scenario has its servers."""

    def __init__(self, options: Options, number: int, policy: str, checksums: str) -> None:
        self.options, self.policy, self.checksums = options, policy, checksums
        self.name = f"{number:02}-{policy}-{checksums}"
        self.clusters: list[Cluster] = []

    def cluster(self, **settings: str) -> Cluster:
        """Another one, empty and stopped. Settings with a dot in their names: `larder__policy`."""
        return self.place(**settings).create(self.checksums)

    def place(self, **settings: str) -> Cluster:
        """A place for one, which something else makes."""
        named = {name.replace("__", "."): value for name, value in settings.items()}
        cluster = self.options.cluster(f"{self.name}-{len(self.clusters)}", self.policy, **named)
        self.clusters.append(cluster)
        return cluster

    def warm(self, **settings: str) -> Cluster:
        """One that runs, with a table whose pages are on flash."""
        cluster = self.cluster(**settings)
        expect("the first start", cluster.start()[1], "empty")
        make_status(cluster)
        for statement in TABLE.split(";")[:-1]:
            cluster.sql(statement)
        self.use(cluster)
        return cluster

    def use(self, cluster: Cluster) -> None:
        """Reads the table, over and over, until flash answers."""
        for _ in range(3):
            digest(cluster)
            read_by_key(cluster)
        found = status(cluster)
        if found.get("pages_cached", 0) < 1000 or not found.get("hits"):
            raise Failed(f"flash is not warm: {found}")

    def end(self, failed: bool) -> None:
        """Servers stop; data of what failed are kept."""
        for cluster in self.clusters:
            if failed or self.options.keep:
                cluster.kill_all()
            else:
                cluster.destroy()


def read_by_key(cluster: Cluster) -> None:
    """Reads all of the table in no order, through the whole of shared buffers."""
    cluster.sql("set enable_seqscan = off; set enable_bitmapscan = off; set enable_hashjoin = off;"
                f"select sum(v) from generate_series(1, {ROWS}, 7) g join t on n = (g * 7919) % {ROWS} + 1")


def change(cluster: Cluster) -> str:
    """Every row becomes another one; the table's digest then."""
    cluster.sql("update t set v = v + n % 1000 + 1")
    cluster.sql("vacuum t")
    return digest(cluster)


def expect_data(cluster: Cluster, wanted: str, at: int = 0) -> None:
    """The table is this, however it is read, everything is sound, and so is the log from there on."""
    expect("the table's digest", digest(cluster), wanted)
    read_by_key(cluster)
    expect("the table's digest when it is read again", digest(cluster), wanted)
    amcheck(cluster)
    expect_no_damage(cluster, at)


def expect_start(cluster: Cluster, wanted: str, **how: bool) -> None:
    """It starts, and the log says this of the cache."""
    pages, found = cluster.start(**how)
    if found != wanted:
        raise Failed(f"the cache at the start: {found or 'none'} ({pages} pages), not {wanted or 'none'}")


def expect_log(cluster: Cluster, text: str, at: int = 0) -> None:
    """The server's log has a line with this."""
    if text not in cluster.log_from(at):
        raise Failed(f"the server's log does not say {text!r}")


def set_policy(cluster: Cluster, policy: str, seconds: float = 60) -> None:
    """Changes the setting of the running server, and waits until the policy is in force."""
    cluster.settings["larder.policy"] = policy
    cluster.configure(library=True)
    cluster.sql("select pg_reload_conf()")
    wait_for_policy(cluster, policy, seconds)


def wait_for_policy(cluster: Cluster, policy: str, seconds: float = 60) -> None:
    """Until it is in force."""
    until = time.monotonic() + seconds
    while (found := status(cluster)["policy"]) != policy:
        if time.monotonic() > until:
            raise Failed(f"the policy is still {found}, not {policy}")
        time.sleep(0.05)


@dataclass
class Scenario:
    """A case."""

    number: int
    title: str
    run: Callable[[Lab], None]
    policies: tuple[str, ...]


ALL: list[Scenario] = []


EVERY = ("through", "bounded", "full")
# Where the disk suffices. What `full` does then instead is in scenarios_full.py.
DISK = ("through", "bounded")
BOUNDED = ("bounded",)
FULL = ("full",)


def scenario(
    number: int, title: str, policies: tuple[str, ...] = EVERY,
) -> Callable[[Callable[[Lab], None]], Callable[[Lab], None]]:
    """Enters a function into the list."""
    def enter(function: Callable[[Lab], None]) -> Callable[[Lab], None]:
        ALL.append(Scenario(number, title, function, policies))
        return function
    return enter
