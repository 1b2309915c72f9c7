# SPDX-License-Identifier: MIT OR Apache-2.0
"""Cases that have names: each makes its own servers, and says what is not as it must be."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from checks import amcheck, digest, expect, expect_no_damage, make_status, status
from cluster import Cluster, Failed, Options, Skipped

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
        cluster = Cluster(self.options, f"{self.name}-{len(self.clusters)}", self.policy, **named)
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


@dataclass
class Scenario:
    """A case."""

    number: int
    title: str
    run: Callable[[Lab], None]
    policies: tuple[str, ...]


@dataclass
class Outcome:
    """What came of one."""

    number: int
    title: str
    policy: str
    checksums: str
    result: str
    why: str = ""
    seconds: float = 0
    kept: list[str] = field(default_factory=list)

    def line(self) -> str:
        """In a line."""
        why = f": {self.why}" if self.why else ""
        return f"{self.number:3} {self.result:7} {self.title} ({self.policy}, {self.seconds:.0f} s){why}"


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


def every() -> list[Scenario]:
    """All of them, in order."""
    # Each enters its own; they need what is above.
    import scenarios_changes  # noqa: F401
    import scenarios_copies  # noqa: F401
    import scenarios_flash  # noqa: F401
    import scenarios_full  # noqa: F401
    import scenarios_kept_back  # noqa: F401
    import scenarios_limits  # noqa: F401
    import scenarios_starts  # noqa: F401
    return sorted(ALL, key=lambda one: one.number)


def titles() -> list[str]:
    """For whoever chooses."""
    return [f"{one.number:3} {one.title}" for one in every()]


def run_one(options: Options, one: Scenario, policy: str, checksums: str) -> Outcome:
    """One of them."""
    lab = Lab(options, one.number, policy, checksums)
    outcome = Outcome(one.number, one.title, policy, checksums, "ok")
    began = time.monotonic()
    try:
        one.run(lab)
    except Skipped as reason:
        outcome.result, outcome.why = "skipped", str(reason)
    except Failed as error:
        outcome.result, outcome.why = "FAILED", str(error)
        outcome.kept = [str(cluster.home) for cluster in lab.clusters]
    finally:
        lab.end(outcome.result == "FAILED")
    outcome.seconds = time.monotonic() - began
    print(outcome.line(), file=sys.stderr, flush=True)
    if outcome.result == "FAILED":
        for cluster in lab.clusters:
            print(f"--- {cluster.log}\n{cluster.log_tail()}", file=sys.stderr, flush=True)
    return outcome


def run_scenarios(options: Options) -> tuple[list[dict[str, object]], list[str], bool]:
    """Those that were asked for, or all, with every policy."""
    chosen = [one for one in every() if not options.only or str(one.number) in options.only]
    if not chosen:
        raise Failed(f"--only: no scenario has the number {options.only[0]}; see run list")
    if shutil.disk_usage(options.base).free < 4 << 30:
        raise Failed(f"{options.base}: less than 4 GiB free")
    outcomes = [
        run_one(options, one, policy, checksums)
        for policy in options.policies for checksums in options.checksums for one in chosen if policy in one.policies
    ]
    bad = any(outcome.result == "FAILED" for outcome in outcomes)
    return [dict(vars(outcome)) for outcome in outcomes], [outcome.line() for outcome in outcomes], bad
