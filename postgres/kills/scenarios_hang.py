# SPDX-License-Identifier: MIT OR Apache-2.0
"""Flash that does not answer, and answers again; the process that reads and writes it, killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from checks import digest, expect
from cluster import EMPTY, Cluster, Failed, make_status, status
from lab import BOUNDED, DISK, TABLE, Lab, change, expect_data, expect_start, read_by_key, scenario
from load import Session
from scenarios_flash import bare_same, loop_device, mounted, wait_for

TITLE = "larder flash"
TIMEOUT = 1
WARNING = re.compile(r"WARNING: .*larder: flash does not answer")
AGAIN = "larder: flash answers again"
# Of the rows of a page each, so that each is another read.
LOOKUP = "select sum(v) from t where n = any(array(select (random() * 89999)::int + 1 from generate_series(1, 40)))"


def flash_process(cluster: Cluster) -> int:
    """The one that reads and writes flash."""
    found = [pid for pid, title in cluster.processes().items() if TITLE in title]
    expect("processes that serve flash", len(found), 1)
    return found[0]


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that does nothing, so that flash does not answer."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def frozen(at: Path) -> Iterator[None]:
    """A file system that takes no writes."""
    subprocess.run(["fsfreeze", "-f", str(at)], check=True)
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "-u", str(at)], check=True)


def leave_page_cache(cluster: Cluster) -> None:
    """The page cache has no page of a table, so that flash is asked."""
    cluster.sql("checkpoint")
    os.sync()
    for path in (cluster.data / "base").glob("*/*"):
        # The server removes files meanwhile: those of its caches of the catalogue.
        with suppress(FileNotFoundError), open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def timed(cluster: Cluster, statement: str) -> float:
    """How long it takes, in seconds."""
    begin = time.monotonic()
    cluster.sql(statement)
    return time.monotonic() - begin


def slowest(cluster: Cluster, seconds: float) -> tuple[float, float]:
    """The slowest of the statements of this time, after the first one, and the first one."""
    first = timed(cluster, f"{LOOKUP}; update t set v = v where n % 97 = 0; {LOOKUP}")
    until, worst = time.monotonic() + seconds, 0.0
    while time.monotonic() < until:
        worst = max(worst, timed(cluster, LOOKUP))
    return worst, first


def wait_until_used(cluster: Cluster, at: int) -> None:
    """Flash answers again, and has hits."""
    until = time.monotonic() + 60
    while AGAIN not in cluster.log_from(at):
        if time.monotonic() > until:
            raise Failed("flash is not used again")
        time.sleep(0.1)
    before = status(cluster)["hits"]
    read_by_key(cluster)
    if status(cluster)["hits"] <= before:
        raise Failed("flash has no hits again")


def expect_one_warning(cluster: Cluster, at: int) -> None:
    """However many processes waited. A loaded machine may be too slow for flash at other times."""
    expect("warnings", len(WARNING.findall(cluster.log_from(at).split(AGAIN)[0])), 1)


@scenario(54, "flash does not answer for a while: the disk does, and flash is used again", DISK)
def hangs(lab: Lab) -> None:
    """The process that serves it is stopped. Nobody waits longer than the time limit."""
    cluster = lab.warm(larder__flash_timeout=f"{TIMEOUT}s")
    # Nothing is only on flash, so nobody must wait for it.
    leave_page_cache(cluster)
    at = cluster.log_size()
    with stopped(flash_process(cluster)):
        worst, first = slowest(cluster, 6)
        if first > 8 * TIMEOUT + 2 or worst > 2:
            raise Failed(f"statements took up to {worst:.1f} s, the first one {first:.1f} s")
        expect_one_warning(cluster, at)
        data = digest(cluster)
    wait_until_used(cluster, at)
    expect_data(cluster, data, cluster.log_size())
    expect_one_warning(cluster, at)
    data = change(cluster)
    cluster.stop()
    # The log is as it was: the next start is warm.
    if cluster.start()[1] == EMPTY:
        raise Failed("the next start has no cache")
    expect_data(cluster, data, cluster.log_size())
    bare_same(cluster)


@scenario(55, "the file system of flash is frozen under load: clients go on, and can be ended", DISK)
def freezes(lab: Lab) -> None:
    """`fsfreeze`, which holds writers inside of the kernel."""
    place = lab.place()
    place.home.mkdir(mode=0o755)
    image = place.home / "image"
    with open(image, "wb") as file:
        file.truncate(160 << 20)
    with loop_device(image) as device:
        subprocess.run(["mkfs.ext4", "-q", "-F", device], check=True, capture_output=True)
        with mounted([device], place.home / "flash") as flash:
            freezes_there(lab, flash)


def freezes_there(lab: Lab, flash: Path) -> None:
    """The part of it between the mounts."""
    cluster = lab.cluster(
        larder__flash_directory=str(flash / "larder"), larder__flash_size="96MB", larder__flash_timeout=f"{TIMEOUT}s")
    expect_start(cluster, EMPTY)
    try:
        make_status(cluster)
        for statement in TABLE.split(";")[:-1]:
            cluster.sql(statement)
        lab.use(cluster)
        cluster.sql("checkpoint")
        at = cluster.log_size()
        with frozen(flash):
            # Changes and evictions, until a batch is due.
            worst, _ = slowest(cluster, 15)
            if worst > 3:
                raise Failed(f"a statement took {worst:.1f} s")
            backend = cluster.sql("select pg_backend_pid(); " + LOOKUP).split()[0]
            until = time.monotonic() + 3 * TIMEOUT
            while int(backend) in cluster.processes():
                if time.monotonic() > until:
                    raise Failed("a backend does not end")
                time.sleep(0.05)
            data = digest(cluster)
        if WARNING.search(cluster.log_from(at)):
            expect_one_warning(cluster, at)
            wait_until_used(cluster, at)
        elif lab.policy == "through":
            raise Failed("nobody noticed that the file system is frozen")
        at = cluster.log_size()
        expect_data(cluster, data, at)
        cluster.stop()
        if cluster.start()[1] == EMPTY:
            raise Failed("the next start has no cache")
        expect_data(cluster, data, at)
    finally:
        cluster.kill_all()


@scenario(56, "flash that alone has changed pages does not answer: who needs them waits, and can be ended", BOUNDED)
def waits(lab: Lab) -> None:
    """Statements are canceled, backends ended; others go on; in the end nothing is lost."""
    cluster = lab.warm(larder__flash_timeout=f"{TIMEOUT}s", checkpoint_timeout="1h", max_wal_size="4GB", autovacuum="off")
    cluster.sql("create table other as select g as n from generate_series(1, 1000) g")
    data = change(cluster)
    if not status(cluster)["pages_dirty"]:
        raise Failed("flash has no changed page")
    at = cluster.log_size()
    with stopped(flash_process(cluster)):
        begin = time.monotonic()
        try:
            cluster.sql("set statement_timeout = '2s'; set enable_seqscan = off; select sum(v) from t where n > 0")
            raise Failed("a statement did without the pages on flash")
        except Failed as error:
            if "anceled" not in str(error) and "canceling" not in str(error):
                raise
        if time.monotonic() - begin > 6:
            raise Failed("a statement could not be canceled")
        session = Session(cluster, "postgres")
        try:
            assert session.process.stdin
            session.process.stdin.write(b"set application_name = 'waits'; select sum(v) from t where n > 0;\n")
            session.process.stdin.flush()
            time.sleep(1.5)
            cluster.sql("select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name = 'waits'")
            expect("backends that wait", cluster.sql(
                "select count(*) from pg_stat_activity where application_name = 'waits'"), "0")
        finally:
            session.close()
        if timed(cluster, "update other set n = n + 1; select count(*) from other") > 3:
            raise Failed("others wait too")
    wait_until_used(cluster, at)
    expect_data(cluster, data, cluster.log_size())
    cluster.sql("checkpoint")
    bare_same(cluster)


@scenario(57, "the process that serves flash is killed")
def killed(lab: Lab) -> None:
    """`through`: nothing is cached until the next start. Else the server begins anew, with another one and all pages."""
    cluster = lab.warm(larder__flash_timeout=f"{TIMEOUT}s")
    data = change(cluster)
    if lab.policy == "through":
        leave_page_cache(cluster)
    at = cluster.log_size()
    os.kill(flash_process(cluster), signal.SIGKILL)
    for _ in range(3):
        try:
            read_by_key(cluster)
        except Failed as error:
            if "server closed the connection" not in str(error) and "recovery" not in str(error):
                raise
            wait_for(cluster)
    expect("the table's digest", digest(cluster), data)
    if lab.policy == "through":
        if "nothing is cached until the next start" not in cluster.log_from(at):
            raise Failed("the server's log does not say it")
    else:
        flash_process(cluster)
    data = change(cluster)
    cluster.stop()
    cluster.start()
    flash_process(cluster)
    expect_data(cluster, data, cluster.log_size())
