# SPDX-License-Identifier: MIT OR Apache-2.0
"""What must be true of a server and its data."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cluster import Cluster, Failed, status

# In the server's log: what no kill excuses. The server's own codes for damage, and the library's cries. A backend that removes a
# file of a transaction it has committed asks the checkpointer, and exits with the postmaster if that has gone too; the server, with
# or without the library, says so with a PANIC (RegisterSyncRequest in its sync.c).
DAMAGE = re.compile(
    r" (XX001|XX002) | XX000 (?!.*(concurrently|with OID|cache lookup|it was already committed))|"
    r"PANIC(?!:  cannot abort transaction \d+, it was already committed)|page verification failed|"
    r"invalid page in block|could not read block|"
    r"terminated by signal (?!9:)\d+|xlog flush request .* is not satisfied|"
    r"larder: (?!caching: |standby.signal|recovery.signal|backup_label is there|bringing up to|"
    r"fsync or full_page_writes is off|changed pages go to flash again|the cache is (?:dis|en)abled by|"
    r"larder.policy (?:=|is) (?:through|bounded|full) (?:now:|takes effect))"
)


def damage(cluster: Cluster, at: int) -> list[str]:
    """Lines of the log since then that tell of damage."""
    return [line for line in cluster.log_from(at).splitlines() if DAMAGE.search(line)]


def expect_no_damage(cluster: Cluster, at: int) -> None:
    """The server's log has no such line."""
    if lines := damage(cluster, at):
        raise Failed(f"the server's log: {lines[0]}")


def amcheck(cluster: Cluster, database: str = "postgres") -> None:
    """Tables and indexes are sound, and every row is in every index."""
    words = ["--heapallindexed", "-d", database]
    # A standby has it from its primary.
    if cluster.sql("select pg_is_in_recovery()") == "f":
        words.append("--install-missing")
    cluster.tool("pg_amcheck", *words)


def digest(cluster: Cluster, table: str = "t", database: str = "postgres") -> str:
    """What is in a table, in whatever order."""
    rows = f"select count(*), coalesce(sum(hashtextextended(x::text, 0)), 0) from {table} x"
    return cluster.sql(rows, database)


def digests(cluster: Cluster, database: str) -> dict[str, str]:
    """The same of all tables."""
    names = cluster.sql(
        "select oid::regclass from pg_class where relkind = 'r' and relpersistence = 'p' "
        "and relnamespace = 'public'::regnamespace order by 1", database)
    return {name: digest(cluster, name, database) for name in names.split()}


def expect(what: str, found: object, wanted: object) -> None:
    """They are the same."""
    if found != wanted:
        raise Failed(f"{what}: {found!r}, not {wanted!r}")


def give_back(cluster: Cluster) -> None:
    """Where flash is a part of the database, the disk gets everything, and the stopped server needs flash no more."""
    if cluster.settings["larder.policy"] == "full":
        cluster.settings["larder.policy"] = "through"
        cluster.start()
        cluster.stop()
        cluster.settings["larder.policy"] = "full"


def same_bare(cluster: Cluster, database: str = "postgres") -> None:
    """Without the library the same data are there: what flash answered is what the disk has."""
    served = digests(cluster, database)
    cluster.stop()
    give_back(cluster)
    cluster.start(library=False)
    bare = digests(cluster, database)
    if other := [name for name in served if served[name] != bare.get(name)]:
        raise Failed(f"without the library other rows are in {other[0]}: {bare.get(other[0])}, not {served[other[0]]}")
    amcheck(cluster, database)
    cluster.stop()


@dataclass
class Hits:
    """Reads and hits over all lives of the cache's memory."""

    reads: int = 0
    hits: int = 0
    last: tuple[int, int] = (0, 0)

    def look(self, cluster: Cluster, database: str) -> None:
        """Adds what is new."""
        found = status(cluster, database)
        now = (found.get("reads", 0), found.get("hits", 0))
        # Counters begin anew with the memory.
        before = self.last if now[0] >= self.last[0] else (0, 0)
        self.reads += now[0] - before[0]
        self.hits += now[1] - before[1]
        self.last = now

    def percent(self) -> float:
        """Hits of a hundred reads."""
        return 100 * self.hits / self.reads if self.reads else 0.0
