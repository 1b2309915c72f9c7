# SPDX-License-Identifier: MIT OR Apache-2.0
"""Flash that is lost, full, wrong or another server's; settings that cannot be."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from checks import digest, expect
from cluster import EMPTY, Cluster, Failed, give, make_status, status
from lab import DISK, Lab, change, expect_data, expect_log, expect_start, read_by_key, scenario
from options import Skipped

FLASH = "larder.flash"


def flash_of(cluster: Cluster) -> Path:
    """Its flash directory."""
    return cluster.data / cluster.settings["larder.flash_directory"]


def holds_dirty(lab: Lab) -> bool:
    """Whether flash may have what the disk lacks."""
    return lab.policy != "through"


@contextmanager
def mounted(words: list[str], at: Path) -> Iterator[Path]:
    """A file system, while it is needed."""
    if os.geteuid() != 0:
        raise Skipped("only root can mount")
    at.mkdir()
    done = subprocess.run(["mount", *words, str(at)], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise Skipped(f"mount: {done.stderr.strip()}")
    try:
        give(at)
        yield at
    finally:
        # A file system that fails is still somebody's until they have ended.
        subprocess.run(["umount", "-l", str(at)], check=False, capture_output=True)
        at.rmdir()


@contextmanager
def loop_device(image: Path) -> Iterator[str]:
    """A loop device over a file."""
    done = subprocess.run(["losetup", "-f", "--show", str(image)], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise Skipped(f"losetup: {done.stderr.strip()}")
    device = done.stdout.strip()
    try:
        yield device
    finally:
        subprocess.run(["losetup", "-d", device], check=False, capture_output=True)


def survives(lab: Lab, cluster: Cluster, at: int) -> None:
    """Flash has failed: queries go on, with right results. With changed pages there, the server may begin anew."""
    if holds_dirty(lab):
        return survives_anew(cluster)
    data = digest(cluster)
    read_by_key(cluster)
    data = change(cluster)
    for _ in range(2):
        read_by_key(cluster)
        expect("the table's digest", digest(cluster), data)
    if len(re.findall("larder: .*nothing is cached", cluster.log_from(at))) > 3:
        raise Failed("more than three messages about it")
    return None


def survives_anew(cluster: Cluster) -> None:
    """... then it recovers, and is right."""
    for _ in range(3):
        try:
            data = change(cluster)
            read_by_key(cluster)
            expect("the table's digest", digest(cluster), data)
            return
        except Failed as error:
            if "server closed the connection" not in str(error) and "recovery" not in str(error):
                raise
            wait_for(cluster)
    raise Failed("the server does not come back")


def answers(cluster: Cluster) -> bool:
    """Whether it takes clients."""
    try:
        cluster.sql("select 1")
    except Failed:
        return False
    return True


def wait_for(cluster: Cluster) -> None:
    """Until the server has begun anew."""
    until = time.monotonic() + 60
    while not answers(cluster) and time.monotonic() < until:
        time.sleep(0.2)


@scenario(5, "flash lost while the server runs: its file is cut to nothing", DISK)
def cut(lab: Lab) -> None:
    """What was on flash is read from the disk."""
    cluster = lab.warm()
    data = digest(cluster)
    at = cluster.log_size()
    os.truncate(flash_of(cluster) / FLASH, 0)
    if not holds_dirty(lab):
        expect("the table's digest", digest(cluster), data)
    survives(lab, cluster, at)
    cluster.stop()
    if not cluster.start()[1]:
        raise Failed("the next start has no cache")
    expect("the table's digest after a start", digest(cluster), digest(cluster))
    bare_same(cluster)


def bare_same(cluster: Cluster) -> None:
    """The disk has what the server answers."""
    data = digest(cluster)
    cluster.stop()
    cluster.start(library=False)
    expect("the table's digest without the library", digest(cluster), data)


@scenario(21, "flash lost while the server runs: its device refuses writes, then reads", DISK)
def device_fails(lab: Lab) -> None:
    """A loop device over a file in a file system that is full, and then over nothing."""
    place = lab.place()
    place.home.mkdir(mode=0o755)
    with mounted(["-t", "tmpfs", "-o", "size=24M", "tmpfs"], place.home / "small") as small:
        image = small / "image"
        with open(image, "wb") as file:
            file.truncate(160 << 20)
        with loop_device(image) as device:
            subprocess.run(["mkfs.ext4", "-q", "-F", device], check=True, capture_output=True)
            with mounted([device], place.home / "flash") as flash:
                fails_there(lab, flash, image)


def fill(lab: Lab, cluster: Cluster) -> None:
    """Makes the table, whose pages do not fit into what is left of the device."""
    for last in (False, True):
        try:
            cluster.sql("create table if not exists t (n int primary key, v int not null, pad text not null)")
            cluster.sql("insert into t select g, 0, repeat(md5(g::text), 7) from generate_series(1, 90000) g")
            return
        except Failed:
            if last or not holds_dirty(lab):
                raise
            wait_for(cluster)


def fails_there(lab: Lab, flash: Path, image: Path) -> None:
    """The part of it between the mounts."""
    cluster = lab.cluster(larder__flash_directory=str(flash / "larder"), larder__flash_size="96MB")
    expect_start(cluster, EMPTY)
    try:
        make_status(cluster)
        at = cluster.log_size()
        fill(lab, cluster)
        for _ in range(3):
            survives(lab, cluster, at)
        expect_log(cluster, "larder: ", at)
        if not re.search(r"larder: .*(failed|cannot)", cluster.log_from(at)):
            raise Failed("the server's log does not say that flash failed")
        cluster.kill_all()
        os.truncate(image, 0)
        cluster.start()
        survives(lab, cluster, at)
        bare_same(cluster)
    finally:
        cluster.kill_all()


@scenario(6, "flash lost while the server is stopped, or dead: its directory is removed", DISK)
def removed(lab: Lab) -> None:
    """After a kill the memory of the cache is still there."""
    cluster = lab.warm()
    for kill in (False, True):
        data = change(cluster)
        lab.use(cluster)
        if kill:
            cluster.kill_all()
        else:
            cluster.stop()
        shutil.rmtree(flash_of(cluster))
        how = cluster.start()[1]
        # What could not be brought to the disk is told of, and is not missing.
        expect_data(cluster, data, cluster.log_size())
        if how != EMPTY:
            after = "a kill" if kill else "a stop"
            raise Failed(f"flash was removed after {after}, and the log says {how or 'nothing'!r} (the data are right)")


@scenario(19, "an older flash file put back after a kill", DISK)
def older_flash(lab: Lab) -> None:
    """The memory of the cache knows what every place of it must hold."""
    cluster = lab.warm(larder__flash_size="24MB")
    file = flash_of(cluster) / FLASH
    change(cluster)
    lab.use(cluster)
    shutil.copy(file, cluster.home / "older")
    change(cluster)
    if holds_dirty(lab):
        cluster.sql("checkpoint")
    lab.use(cluster)
    data = change(cluster)
    lab.use(cluster)
    if holds_dirty(lab):
        cluster.sql("checkpoint")
    cluster.kill_all()
    shutil.copyfile(cluster.home / "older", file)
    cluster.start()
    expect_data(cluster, data)
    # The same of a sealed one.
    lab.use(cluster)
    shutil.copy(file, cluster.home / "older")
    data = change(cluster)
    lab.use(cluster)
    cluster.stop()
    shutil.copyfile(cluster.home / "older", file)
    cluster.start()
    expect_data(cluster, data)


@scenario(20, "another flash directory after a kill, and the first one again", DISK)
def other_directory(lab: Lab) -> None:
    """A log belongs to the server's last start alone."""
    cluster = lab.warm(larder__flash_directory="first")
    for turn, name in enumerate(("second", "first", "second", "first")):
        data = change(cluster)
        lab.use(cluster)
        if turn < 2:
            cluster.kill_all()
        else:
            cluster.stop()
        cluster.settings["larder.flash_directory"] = name
        if not cluster.start()[1]:
            raise Failed("the server started without its cache")
        expect_data(cluster, data)


@scenario(7, "the file system of flash is full: a warning, and no cache")
def full(lab: Lab) -> None:
    """The file is allotted as a whole, at the start."""
    cluster = lab.cluster(larder__flash_size="64MB")
    image = cluster.home / "image"
    image.touch()
    os.truncate(image, 40 << 20)
    # It keeps what it had allotted until there was no more.
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", str(image)], check=True)
    with mounted(["-o", "loop", str(image)], cluster.home / "full") as small:
        cluster.settings["larder.flash_directory"] = str(small / "larder")
        expect_start(cluster, "")
        expect("allotted", (small / "larder" / FLASH).stat().st_blocks, 0)
        expect_log(cluster, "WARNING:  larder: flash in")
        expect_log(cluster, "nothing is cached")
        cluster.sql("create table t as select generate_series(1, 1000) as n")
        cluster.stop()
        # ... and one when there is room again.
        cluster.settings["larder.flash_size"] = "9MB"
        cluster.settings["larder.batch_pages"] = "8"
        expect_start(cluster, EMPTY)
        expect("rows", cluster.sql("select count(*) from t"), "1000")
        cluster.stop()


@scenario(8, "two servers with one flash directory: the second has no cache", DISK)
def two_servers(lab: Lab) -> None:
    """And the first one's is none the worse."""
    first = lab.place()
    shared = lab.options.base / f"{lab.name}-flash"
    shared.mkdir()
    give(shared)
    first.settings["larder.flash_directory"] = str(shared)
    first.create(lab.checksums)
    second = lab.cluster(larder__flash_directory=str(shared))
    try:
        expect_start(first, EMPTY)
        make_status(first)
        expect_start(second, "")
        expect_log(second, "another server uses it")
        second.sql("create table t as select generate_series(1, 100000) as n")
        first.sql("create table t (n int primary key, v int not null, pad text not null)")
        first.sql("insert into t select g, 0, repeat(md5(g::text), 7) from generate_series(1, 90000) g")
        lab.use(first)
        data = digest(first)
        second.stop()
        expect_data(first, data)
        first.stop()
        # It is the other one's now; the first one's log is no more.
        expect_start(second, EMPTY)
        second.stop()
        expect_start(first, EMPTY)
        expect_data(first, data)
        first.stop()
    finally:
        first.kill_all()
        second.kill_all()
        shutil.rmtree(shared)


WRONG = [
    ("larder.flash_size", "1MB", "too small"),
    ("larder.flash_size", "12 parsecs", "larder.flash_size"),
    ("larder.policy", "sometimes", "larder.policy"),
    ("larder.batch_pages", "0", "larder.batch_pages"),
    ("larder.batch_pages", "100000", "larder.batch_pages"),
    ("larder.second_chance", "perhaps", "larder.second_chance"),
    ("larder.admit", "some", "larder.admit"),
    ("larder.flash_dir", "/tmp", "larder.flash_dir"),
    ("larder.flash_directory", "/proc/larder", "flash in"),
    ("max_connections", "2000", "processes may run"),
]


@scenario(9, "wrong settings: a clear line each, refused or with a warning", DISK)
def wrong_settings(lab: Lab) -> None:
    """As an extension and preloaded."""
    cluster = lab.cluster()
    bad = []
    for preload in (False, True):
        for name, value, wanted in WRONG:
            if preload and name == "larder.flash_dir":
                continue  # it has no list of its settings then
            before = dict(cluster.settings)
            cluster.settings[name] = value
            at = cluster.log_size()
            try:
                cluster.start(preload=preload)
                cluster.stop()
            except Failed:
                pass
            cluster.settings = before
            lines = [
                line for line in cluster.log_from(at).splitlines()
                if wanted in line and re.search("WARNING|FATAL|ERROR|LOG", line)
            ]
            if len(lines) != 1:
                bad.append(f"{name} = {value} ({'preloaded' if preload else 'extension'}): {len(lines)} lines")
    if bad:
        raise Failed("; ".join(bad))
    expect_start(cluster, EMPTY)
    expect("caching", status_is_there(cluster), True)


def status_is_there(cluster: Cluster) -> bool:
    """Whether it works after all of that."""
    make_status(cluster)
    return bool(status(cluster)["caching"])


@scenario(22, "a start while the flash directory cannot be written: no cache, and the next one is right", DISK)
def read_only(lab: Lab) -> None:
    """What the unarmed server does, the cache must hear of."""
    cluster = lab.warm()
    lab.use(cluster)
    for end in (cluster.kill_all, cluster.stop):
        end()
        flash = flash_of(cluster)
        flash.rename(cluster.home / "away")
        flash.write_text("not a directory")
        expect_start(cluster, "")
        data = change(cluster)
        cluster.kill_all()
        flash.unlink()
        (cluster.home / "away").rename(flash)
        at = cluster.log_size()
        expect_start(cluster, EMPTY)
        expect_data(cluster, data, at)
        lab.use(cluster)
