# SPDX-License-Identifier: MIT OR Apache-2.0
"""The policy that changes while the server runs, and recovery, in which flash takes changes whatever the policy is."""

from __future__ import annotations

import random
import subprocess
import time

from checks import amcheck, digest, expect, expect_no_damage
from cluster import BIN, LEFT, Cluster, Failed, as_user, status
from lab import DISK, Lab, change, expect_data, expect_start, read_by_key, scenario, set_policy, wait_for_policy
from load import TABLES, Ledger
from scenarios_copies import Updates


@scenario(59, "larder.policy is changed while clients change rows, and servers die: nothing is lost", DISK)
def changes(lab: Lab) -> None:
    """Through and bounded in turn; a change with the first is at once, one with the other when flash is drained."""
    cluster = lab.warm()
    cluster.sql(TABLES)
    for turn in range(3):
        at = cluster.log_size()
        ledger, updates = Ledger(cluster, "postgres"), Updates(cluster, "postgres")
        ledger.start()
        updates.start()
        for _ in range(4):
            for policy in ("bounded", "through"):
                set_policy(cluster, policy)
                time.sleep(0.3)
                if policy == "through":
                    expect("changed pages that only flash has", status(cluster)["pages_dirty"], 0)
        absorbed = status(cluster)["writes_absorbed"]
        if not absorbed:
            raise Failed("flash took no change")
        set_policy(cluster, ("bounded", "through", "bounded")[turn])
        cluster.kill_all()
        updates.stop()
        ledger.stop()
        if turn == 2:
            cluster.forget_memory()
        if not cluster.start()[1]:
            raise Failed("the server started without its cache")
        if not ledger.check():
            raise Failed("the ledger has no rows")
        expect_no_damage(cluster, at)
    data = change(cluster)
    set_policy(cluster, "through")
    cluster.settings["larder.policy"] = "full"
    cluster.configure(library=True)
    at = cluster.log_size()
    cluster.sql("select pg_reload_conf()")
    until = time.monotonic() + 30
    while "larder.policy = full takes effect with the next start" not in cluster.log_from(at):
        if time.monotonic() > until:
            raise Failed("the server's log does not say that full needs a start")
        time.sleep(0.1)
    expect("the policy", status(cluster)["policy"], "through")
    expect_data(cluster, data)


def begin(cluster: Cluster) -> None:
    """Starts it, and does not wait."""
    cluster.configure(library=True)
    words = [str(BIN / "pg_ctl"), "-D", str(cluster.data), "-W", "-s", "-l", str(cluster.log), "start"]
    subprocess.run(as_user(words), env=cluster.env(), check=True, timeout=60)


@scenario(60, "killed in the middle of recovery, again and again, then the memory gone: nothing is lost", DISK)
def recoveries(lab: Lab) -> None:
    """Flash has pages of before each kill, and those that the recoveries wrote; once more it has none of them."""
    draw = random.Random(lab.options.seed)
    cluster = lab.warm(checkpoint_timeout="1h", max_wal_size="4GB", autovacuum="off")
    for turn in range(4):
        data = change(cluster)
        if lab.policy == "bounded" and not status(cluster)["pages_dirty"]:
            raise Failed("flash has no changed page")
        cluster.kill_all()
        for _ in range(4):
            begin(cluster)
            time.sleep(draw.uniform(0.05, 0.8))
            cluster.kill_all()
        # What is reported before: a process may live longer than the one that serves flash.
        at = cluster.log_size()
        if turn % 2:
            cluster.forget_memory()
            if not cluster.start()[1]:
                raise Failed("the server started without its cache")
        else:
            expect_start(cluster, LEFT)
        wait_for_policy(cluster, lab.policy)
        expect("the table's digest", digest(cluster), data)
        expect_no_damage(cluster, at)
        # The disk alone: recovery has ended, and only it says what was written.
        cluster.kill_all()
        cluster.forget_memory()
        at = cluster.log_size()
        cluster.start()
        expect("the table's digest without flash", digest(cluster), data)
        read_by_key(cluster)
        amcheck(cluster)
        expect_no_damage(cluster, at)
