# SPDX-License-Identifier: MIT OR Apache-2.0
"""What an earlier start left: when it counts, and when it must not."""

from __future__ import annotations

from pathlib import Path

from checks import digest, expect, give_back
from cluster import BIN, EMPTY, LEFT, STOPPED, Cluster, Failed, as_user, give, run, status
from lab import DISK, Lab, change, expect_data, expect_start, read_by_key, scenario


def bare_change(cluster: Cluster, end: str) -> str:
    """The server runs without the library, and changes everything; what the table is then."""
    cluster.start(library=False)
    data = change(cluster)
    if end == "kill":
        cluster.sql("checkpoint")
        cluster.kill_all()
    else:
        cluster.stop(end)
    return data


@scenario(0, "a kill and a stop, nothing else: warm, and the data are right")
def nothing_else(lab: Lab) -> None:
    """Without this the others would say nothing."""
    cluster = lab.warm()
    data = change(cluster)
    lab.use(cluster)
    cluster.kill_all()
    expect_start(cluster, LEFT)
    expect_data(cluster, data)
    cluster.stop()
    expect_start(cluster, STOPPED)
    before = status(cluster).get("hits", 0)
    expect_data(cluster, data)
    if status(cluster).get("hits", 0) - before < 500:
        raise Failed(f"warm after a stop, but flash answers little: {status(cluster)}")
    cluster.stop("immediate")
    expect_start(cluster, LEFT)
    expect_data(cluster, data)


@scenario(1, "after a kill, started and changed without the library: empty", DISK)
def bare_after_kill(lab: Lab) -> None:
    """The memory of the first start is still there."""
    cluster = lab.warm()
    for end in ("fast", "immediate", "kill"):
        lab.use(cluster)
        cluster.kill_all()
        data = bare_change(cluster, end)
        expect_start(cluster, EMPTY)
        expect_data(cluster, data)


@scenario(2, "after a clean stop, started and changed without the library: empty", DISK)
def bare_after_stop(lab: Lab) -> None:
    """The log is sealed, and its names are kept."""
    cluster = lab.warm()
    for end in ("fast", "immediate", "kill"):
        lab.use(cluster)
        cluster.stop()
        data = bare_change(cluster, end)
        expect_start(cluster, EMPTY)
        expect_data(cluster, data)


@scenario(3, "another boot (the shared memory has gone): empty", DISK)
def another_boot(lab: Lab) -> None:
    """Nobody knows what the disk kept."""
    cluster = lab.warm()
    data = digest(cluster)
    cluster.kill_all()
    expect("files of the cache's memory", len(cluster.shared_files()), 1)
    cluster.forget_memory()
    expect_start(cluster, EMPTY)
    expect_data(cluster, data)


@scenario(13, "LD_PRELOAD instead of shared_preload_libraries")
def preloaded(lab: Lab) -> None:
    """The settings are those of postgresql.conf, the rest is the same."""
    cluster = lab.warm()
    data = change(cluster)
    cluster.stop()
    expect_start(cluster, STOPPED, preload=True)
    expect_data(cluster, data)
    lab.use(cluster)
    cluster.kill_all()
    expect_start(cluster, LEFT, preload=True)
    expect_data(cluster, data)
    # What the server runs is no business of the library.
    shown = cluster.sql("copy (select 1) to program 'cat >/dev/null; test -z \"$LD_PRELOAD\"'; select 'unset'")
    expect("LD_PRELOAD of what the server runs", shown, "unset")


@scenario(14, "stops and starts in a row, with a log collector: warm each time")
def in_a_row(lab: Lab) -> None:
    """A collector inherits what the postmaster has open, and ends after it."""
    cluster = lab.warm(logging_collector="on", log_directory="..", log_filename="collected.log")
    data = digest(cluster)
    for turn in range(8):
        mode = ["fast", "immediate"][turn % 2]
        # Not as stop() does: no wait for the collector.
        cluster.tool("pg_ctl", "-D", str(cluster.data), "-w", "-s", "-m", mode, "stop")
        expect_start(cluster, [STOPPED, LEFT][turn % 2])
        expect("the table's digest", digest(cluster), data)
    # What the library says at a start comes before the collector's.
    cluster.log = cluster.home / "collected.log"
    expect_data(cluster, data)


@scenario(15, "settings changed between two starts")
def settings_changed(lab: Lab) -> None:
    """Frames, batches and the log's size are of the memory's shape."""
    cluster = lab.warm()
    changes = [
        ("shared_buffers", "12MB"), ("larder.batch_pages", "16"), ("larder.flash_size", "40MB"),
        ("larder.second_chance", "off"), ("shared_buffers", "6MB"), ("larder.flash_size", "48MB"),
    ]
    for turn, (name, value) in enumerate(changes):
        data = change(cluster)
        lab.use(cluster)
        if turn % 2:
            cluster.stop()
        else:
            cluster.kill_all()
        cluster.settings[name] = value
        if not cluster.start()[1]:
            raise Failed(f"{name} = {value}: the server started without its cache")
        expect_data(cluster, data)


@scenario(16, "pg_checksums and pg_resetwal between a stop and a start: empty", DISK)
def other_tools(lab: Lab) -> None:
    """They change the data directory, and say so in pg_control."""
    cluster = lab.warm()
    data = change(cluster)
    on = cluster.sql("show data_checksums") == "on"
    for flag in ["--disable", "--enable"] if on else ["--enable", "--disable"]:
        lab.use(cluster)
        cluster.stop()
        cluster.tool("pg_checksums", flag, "-D", str(cluster.data))
        expect_start(cluster, EMPTY)
        expect_data(cluster, data)
    lab.use(cluster)
    cluster.stop()
    cluster.tool("pg_resetwal", "-D", str(cluster.data))
    expect_start(cluster, EMPTY)
    expect_data(cluster, data)


@scenario(17, "recovery by a server of one process (postgres --single), then a start")
def single_user(lab: Lab) -> None:
    """It arms the cache as a postmaster does."""
    cluster = lab.warm()
    change(cluster)
    lab.use(cluster)
    cluster.kill_all()
    cluster.configure(library=True)
    single(cluster, "update t set v = v + 10000000")
    if not cluster.start()[1]:
        raise Failed("the server started without its cache")
    wanted = cluster.sql("select count(*) from t where v >= 10000000")
    expect("rows that the one process changed", wanted, cluster.sql("select count(*) from t"))
    data = digest(cluster)
    expect_data(cluster, data)
    cluster.stop()
    give_back(cluster)
    cluster.start(library=False)
    expect("the table's digest without the library", digest(cluster), data)


def single(cluster: Cluster, statement: str) -> None:
    """Runs a statement in it."""
    shell = f"echo '{statement}' | '{BIN}/postgres' --single -D '{cluster.data}' postgres 2>&1"
    said = run(as_user(["bash", "-c", shell]), cluster.env())
    if "ERROR" in said or "FATAL" in said:
        raise Failed(f"postgres --single: {said[-500:]}")


@scenario(18, "unlogged tables are empty after a crash, and right afterwards")
def unlogged(lab: Lab) -> None:
    """Their files are written over from their init forks, by read and write."""
    cluster = lab.warm()
    rows = "select g, repeat(md5(g::text), 7) from generate_series({}, {}) g"
    cluster.sql("create unlogged table u (n int primary key, pad text)")
    for turn in range(3):
        cluster.sql("insert into u " + rows.format(1, 20_000))
        cluster.sql("checkpoint")
        for _ in range(2):
            digest(cluster, "u")
            read_by_key(cluster)
        if turn % 2:
            cluster.kill_all()
        else:
            cluster.stop("immediate")
        expect_start(cluster, LEFT)
        expect("rows of an unlogged table after a crash", cluster.sql("select count(*) from u"), "0")
        cluster.sql("insert into u " + rows.format(5_000 + turn, 15_000))
        read_by_key(cluster)
        wrong = cluster.sql("select count(*) filter (where pad <> repeat(md5(n::text), 7)), count(*) from u")
        expect("wrong rows and rows of the unlogged table", wrong, f"0|{10_001 - turn}")
        cluster.sql("truncate u")
    expect_data(cluster, digest(cluster))


@scenario(52, "an executable with an unknown import, or without a needed one: refused, and nothing changed")
def other_imports(lab: Lab) -> None:
    """A copy of the server, in which one name of an import is another of the same length."""
    cluster = lab.warm()
    data = change(cluster)
    lab.use(cluster)
    cluster.kill_all()
    cluster.configure(library=True)
    for old, new, wanted in (
        (b"waitpid", b"syscall", "imports syscall, which can reach relation files"),
        (b"posix_fadvise", b"posix_madvise", "does not import posix_fadvise or posix_fadvise64"),
    ):
        other = patched(cluster, old, new)
        try:
            said = run(as_user([str(other), "-D", str(cluster.data)]), cluster.env(), 60)
        except Failed as error:
            said = str(error)
        if "FATAL:  larder: the executable" not in said or wanted not in said:
            raise Failed(f"a server with {new.decode()} for {old.decode()}: {said[-500:]!r}")
    expect_start(cluster, LEFT)
    expect_data(cluster, data)


def patched(cluster: Cluster, old: bytes, new: bytes) -> Path:
    """A copy of the server's executable with another import."""
    code = (BIN / "postgres").read_bytes()
    old, new = b"\0" + old + b"\0", b"\0" + new + b"\0"
    expect(f"{old!r} in the executable", code.count(old), 1)
    # The server looks for its other files from where it is.
    for name in ("lib", "share"):
        link = cluster.home / name
        if not link.is_symlink() and (BIN.parent / name).exists():
            link.symlink_to(BIN.parent / name)
    place = cluster.home / "bin"
    place.mkdir(exist_ok=True)
    path = place / "postgres"
    path.write_bytes(code.replace(old, new))
    path.chmod(0o755)
    give(place)
    return path
