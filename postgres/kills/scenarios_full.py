# SPDX-License-Identifier: MIT OR Apache-2.0
"""Flash as a part of the database (`full`): it comes back after anything, or the server is refused."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable

from checks import amcheck, digest, expect, expect_no_damage, give_back, same_bare
from cluster import EMPTY, LEFT, RECOVERED, STOPPED, Cluster, Failed, status
from lab import FULL, Lab, change, expect_data, expect_log, expect_start, read_by_key, scenario
from scenarios_copies import copy, outside
from scenarios_flash import FLASH, flash_of
from scenarios_kept_back import QUIET, absorbed


def expect_refused(cluster: Cluster, text: str, **how: bool) -> None:
    """A start is refused with this, and a hint."""
    said = cluster.refused(**how)
    if text not in said:
        raise Failed(f"refused, and the log does not say {text!r}: {said!r}")


def changed(lab: Lab, cluster: Cluster) -> tuple[str, str]:
    """Pages that are on flash alone, checkpoints later; digests of the tables."""
    x = absorbed(cluster)
    t = change(cluster)
    lab.use(cluster)
    cluster.sql("checkpoint")
    if not status(cluster)["pages_dirty"]:
        raise Failed(f"a checkpoint has emptied flash: {status(cluster)}")
    return x, t


def expect_both(cluster: Cluster, wanted: tuple[str, str], at: int) -> None:
    """They are these."""
    expect("the digest of x", digest(cluster, "x"), wanted[0])
    expect_data(cluster, wanted[1], at)


@scenario(34, "the machine loses its memory: all comes back from flash, again and again", FULL)
def lost_memory(lab: Lab) -> None:
    """After a checkpoint, in the middle of changes, and twice without a checkpoint between."""
    cluster = lab.warm(**QUIET)
    for turn in range(3):
        at = cluster.log_size()
        wanted = changed(lab, cluster)
        if turn:
            wanted = (absorbed(cluster), change(cluster))
        for _ in range(turn + 1):
            cluster.kill_all()
            cluster.forget_memory()
            expect_start(cluster, RECOVERED)
        expect_both(cluster, wanted, at)
        cluster.sql("drop table if exists z")
        cluster.sql("create table z as select * from t where n < 20000")
    cluster.stop()
    expect_start(cluster, STOPPED)
    same_bare(cluster)


@scenario(35, "files dropped, cut and made anew, then the memory lost: nothing of before comes back", FULL)
def cut_and_lost(lab: Lab) -> None:
    """Their pages are still in the log, and it has more of them than anybody was promised."""
    cluster = lab.warm(**QUIET)
    sql = cluster.sql
    fill = "insert into {} select g, 0, repeat(md5(g::text), 7) from generate_series({}, {}) g"
    for turn in range(3):
        sql("create table y (n int, v int, pad text) with (autovacuum_enabled = off)")
        sql(fill.format("y", 1, 20_000))
        read_by_key(cluster)
        sql("checkpoint")
        sql("delete from y where n > 2000")
        sql("vacuum (truncate on) y")
        if turn == 1:
            sql("checkpoint")
        sql(fill.format("y", 50_001, 50_000 + 5_000 * turn + 1))
        sql("create table kept as select * from y")
        sql("truncate kept")
        sql(fill.format("kept", 1, 3_000))
        read_by_key(cluster)
        wanted = [digest(cluster, name) for name in ("y", "kept")]
        cluster.kill_all()
        cluster.forget_memory()
        expect_start(cluster, RECOVERED)
        expect("the digests of y and kept", [digest(cluster, name) for name in ("y", "kept")], wanted)
        amcheck(cluster)
        sql("drop table y; drop table kept")
    expect_no_damage(cluster, 0)


@scenario(36, "started without the library, after a stop and after a kill: refused, and nothing is lost", FULL)
def bare(lab: Lab) -> None:
    """Preloaded or not is the same."""
    cluster = lab.warm(**QUIET)
    for end, how in ((cluster.stop, STOPPED), (cluster.kill_all, LEFT), (lambda: cluster.stop("immediate"), LEFT)):
        wanted = changed(lab, cluster)
        end()
        expect_refused(cluster, 'invalid data in file "backup_label"', library=False)
        at = cluster.log_size()
        expect_start(cluster, how, preload=how == STOPPED)
        expect_both(cluster, wanted, at)
    expect("the guard", (cluster.data / "backup_label").read_text().startswith("LARDER"), True)


@scenario(37, "flash that is gone, another, or not named: refused, and as before when it is back", FULL)
def other_flash(lab: Lab) -> None:
    """After a stop, and with the memory still there."""
    cluster = lab.warm(**QUIET)
    for end, how in ((cluster.stop, STOPPED), (cluster.kill_all, LEFT)):
        wanted = changed(lab, cluster)
        end()
        flash, away = flash_of(cluster), cluster.home / "away"
        flash.rename(away)
        expect_refused(cluster, "which the data directory needs")
        # Nothing is made where a file system may be mounted again.
        expect("a new directory", flash.exists(), False)
        away.rename(flash)
        name = cluster.settings["larder.flash_directory"]
        for other, text in (("another", "which the data directory needs"), ("", "larder.flash_directory is not set")):
            cluster.settings["larder.flash_directory"] = other
            expect_refused(cluster, text)
        cluster.settings["larder.flash_directory"] = name
        at = cluster.log_size()
        expect_start(cluster, how)
        expect_both(cluster, wanted, at)


@scenario(38, "an older data directory, or one that was changed, over newer flash: refused", FULL)
def older_data(lab: Lab) -> None:
    """And both put back together are right."""
    directory = outside(lab)
    cluster = lab.warm(**QUIET, larder__flash_directory=directory)
    try:
        wanted = changed(lab, cluster)
        cluster.stop()
        copy(cluster.data, cluster.home / "before")
        shutil.copytree(directory, cluster.home / "flash-before", copy_function=shutil.copy2)
        expect_start(cluster, STOPPED)
        changed(lab, cluster)
        for end in (cluster.stop, cluster.kill_all):
            end()
            copy(cluster.data, cluster.home / "newer")
            copy(cluster.home / "before", cluster.data)
            expect_refused(cluster, "was put back or changed")
            copy(cluster.home / "newer", cluster.data)
            at = cluster.log_size()
            cluster.start()
            expect_no_damage(cluster, at)
            digest(cluster)
        # The memory of a server that was killed is of later than both.
        for end in (cluster.stop, cluster.kill_all):
            changed(lab, cluster)
            end()
            copy(cluster.home / "before", cluster.data)
            for name in os.listdir(cluster.home / "flash-before"):
                shutil.copy2(cluster.home / "flash-before" / name, f"{directory}/{name}")
            at = cluster.log_size()
            expect_start(cluster, STOPPED)
            expect_both(cluster, wanted, at)
    finally:
        cluster.kill_all()
        shutil.rmtree(directory)


@scenario(39, "another policy brings everything to the disk, after a stop, a kill and a lost memory", FULL)
def other_policy(lab: Lab) -> None:
    """Then the library is not needed any more."""
    cluster = lab.warm(**QUIET)

    def lose() -> None:
        cluster.kill_all()
        cluster.forget_memory()

    ends: list[tuple[Callable[[], None], str]] = [
        (cluster.stop, "through"), (cluster.kill_all, "bounded"), (lose, "through"),
    ]
    for end, policy in ends:
        wanted = changed(lab, cluster)
        end()
        cluster.settings["larder.policy"] = policy
        at = cluster.log_size()
        expect_start(cluster, EMPTY)
        expect_log(cluster, "pages from flash to the data directory", at)
        expect_both(cluster, wanted, at)
        cluster.stop()
        expect_start(cluster, "", library=False)
        expect_both(cluster, wanted, at)
        cluster.stop()
        cluster.settings["larder.policy"] = "full"
        expect_start(cluster, EMPTY)
        lab.use(cluster)


@scenario(40, "flash fails while the server runs: it ends, and is refused without it", FULL)
def fails(lab: Lab) -> None:
    """Its file is cut to nothing; then a copy of all is put back."""
    cluster = lab.warm(**QUIET)
    wanted = changed(lab, cluster)
    cluster.stop()
    copy(cluster.data, cluster.home / "before")
    expect_start(cluster, STOPPED)
    at = cluster.log_size()
    os.truncate(flash_of(cluster) / FLASH, 0)
    try:
        for _ in range(3):
            read_by_key(cluster)
            change(cluster)
    except Failed:
        pass
    until = time.monotonic() + 60
    while cluster.processes():
        if time.monotonic() > until:
            raise Failed("the server goes on although flash has failed")
        time.sleep(0.2)
    expect_log(cluster, "PANIC:  larder: ", at)
    expect_refused(cluster, "flash in")
    # As from a backup of both: flash lies below the data directory here.
    copy(cluster.home / "before", cluster.data)
    at = cluster.log_size()
    expect_start(cluster, STOPPED)
    expect_both(cluster, wanted, at)
    cluster.stop()
    give_back(cluster)


@scenario(41, "a snapshot of the running server's data directory put back alone, without a checkpoint: refused", FULL)
def snapshot_alone(lab: Lab) -> None:
    """pg_control is the same in both; its log does not reach as far as what flash has."""
    directory = outside(lab)
    cluster = lab.warm(**QUIET, larder__flash_directory=directory)
    try:
        changed(lab, cluster)
        cluster.signal_all(signal.SIGSTOP)
        copy(cluster.data, cluster.home / "before")
        cluster.signal_all(signal.SIGCONT)
        wanted = (absorbed(cluster), change(cluster))
        lab.use(cluster)
        cluster.kill_all()
        copy(cluster.data, cluster.home / "newer")
        # A checkpoint by absorbed() would tell them apart otherwise.
        shutil.copy2(cluster.data / "global/pg_control", cluster.home / "before/global/pg_control")
        copy(cluster.home / "before", cluster.data)
        expect_refused(cluster, "was put back or changed")
        copy(cluster.home / "newer", cluster.data)
        at = cluster.log_size()
        expect_start(cluster, LEFT)
        expect_both(cluster, wanted, at)
    finally:
        cluster.kill_all()
        shutil.rmtree(directory)
