# SPDX-License-Identifier: MIT OR Apache-2.0
"""Rounds: load, kill, recover, look at everything."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from checks import Hits, amcheck, expect_no_damage, same_bare
from cluster import Failed, make_status
from load import TABLES, Churn, Ledger, Mix
from options import Options

DATABASE = "tpcc"
HELPERS = ["checkpointer", "background writer", "walwriter"]
READY = "database system is ready to accept connections"


def say(text: str) -> None:
    """Progress, beside what is the result."""
    print(text, file=sys.stderr, flush=True)


@dataclass
class Draw:
    """What a round does, from the seed alone."""

    delay: float
    what: str
    helper: str
    pick: float
    seed: int
    between: str
    under_load: float
    loses: str

    @classmethod
    def of(cls, random_numbers: random.Random) -> Draw:
        """The next one."""
        draw = random_numbers
        what = draw.choices(["backend", "helper", "postmaster", "all"], [27, 20, 28, 25])[0]
        between = draw.choices(["", "immediate", "fast"], [14, 4, 2])[0]
        return cls(
            draw.uniform(0.3, 4), what, draw.choice(HELPERS), draw.random(), draw.randrange(10**9),
            between, draw.uniform(0.2, 1.5), draw.choices(["", "memory", "flash", "bare"], [14, 3, 1, 2])[0],
        )


@dataclass
class Result:
    """What came of all rounds with one policy."""

    policy: str
    checksums: str
    rounds: int = 0
    killed: Counter[str] = field(default_factory=Counter)
    starts: Counter[str] = field(default_factory=Counter)
    commits: int = 0
    hits: int = 0
    reads: int = 0
    violation: str = ""
    kept: str = ""

    def line(self) -> str:
        """In a line."""
        names = {"backend": "backend", "helper": "helper process", "postmaster": "postmaster", "all": "all"}
        killed = ", ".join(f"{self.killed[key]} {name}" for key, name in names.items())
        starts = ", ".join(f"{count} {how}" for how, count in sorted(self.starts.items()))
        percent = 100 * self.hits / self.reads if self.reads else 0
        return (
            f"{self.policy}, checksums {self.checksums}: {self.rounds} rounds ({killed}), "
            f"{1 if self.violation else 0} violations, {self.commits} acknowledged commits, "
            f"hits {percent:.0f} %, starts: {starts or 'none'}"
        )


class Rounds:
    """A cluster, and the rounds that it is to survive."""

    def __init__(self, options: Options, policy: str, checksums: str) -> None:
        self.options = options
        self.result = Result(policy, checksums)
        self.numbers = random.Random(f"{options.seed} {policy} {checksums}")
        self.cluster = options.cluster(f"rounds-{policy}-{checksums}", policy)
        self.hits = Hits()
        self.at = 0

    def run(self) -> Result:
        """All of them; the first violation ends them."""
        doing = "at the beginning"
        try:
            self.begin()
            for number in range(1, self.options.rounds + 1):
                draw = Draw.of(self.numbers)
                target = draw.helper if draw.what == "helper" else draw.what
                doing = f"round {number}, {target} killed after {draw.delay:.1f} s"
                say(f"{self.result.policy}, checksums {self.result.checksums}: {doing}: {self.round(draw)}")
            doing = "at the end"
            self.end()
        except Failed as error:
            self.result.violation = f"{doing}: {error}"
            self.result.kept = str(self.cluster.home)
            say(f"VIOLATION, seed {self.options.seed}, {self.result.violation}\n{self.cluster.log_tail(60)}")
            say(f"the data are in {self.cluster.home}")
            self.stop_load()
            self.cluster.kill_all()
            return self.result
        if not self.options.keep:
            self.cluster.destroy()
        return self.result

    def begin(self) -> None:
        """A cluster with the mix's tables."""
        cluster = self.cluster.create(self.result.checksums)
        cluster.start()
        cluster.sql(f"create database {DATABASE}")
        make_status(cluster, DATABASE)
        cluster.sql("create extension amcheck", DATABASE)
        cluster.sql(TABLES, DATABASE)
        self.mix = Mix(cluster, DATABASE)
        self.ledger = Ledger(cluster, DATABASE)
        self.churn = Churn(cluster, DATABASE)
        self.mix.load(self.options.warehouses)

    def end(self) -> None:
        """The data are the same without the library, and the cache was there all the time."""
        self.look()
        self.result.hits, self.result.reads = self.hits.hits, self.hits.reads
        same_bare(self.cluster, DATABASE)
        if self.result.checksums == "on":
            self.cluster.tool("pg_checksums", "--check", "-D", str(self.cluster.data))
        if self.hits.hits == 0:
            raise Failed("flash had no hit, so nothing was tested")

    def start_load(self, draw: Draw) -> None:
        """Everything that changes data."""
        self.mix.start(self.options.clients, draw.seed)
        self.ledger.start()
        self.churn.start()

    def stop_load(self) -> None:
        """Nothing changes data any more."""
        if hasattr(self, "churn"):
            self.mix.stop()
            self.ledger.stop()
            self.churn.stop()

    def round(self, draw: Draw) -> str:
        """One of them; what it found."""
        self.look()
        self.start_load(draw)
        time.sleep(draw.delay)
        began = time.monotonic()
        how = self.kill(draw)
        self.stop_load()
        took = time.monotonic() - began
        self.look()
        commits = self.check()
        self.result.rounds += 1
        self.result.killed[draw.what] += 1
        text = f"back in {took:.1f} s ({how}), {commits} commits, hits {self.hits.percent():.0f} %, ok"
        if draw.between:
            text += f"; then a stop ({draw.between}, {self.stop_and_start(draw)})"
        return text

    def look(self) -> None:
        """Counts, and looks at the log."""
        self.hits.look(self.cluster, DATABASE)
        expect_no_damage(self.cluster, self.at)
        self.at = self.cluster.log_size()

    def check(self) -> int:
        """Everything that must be true. The commits that were acknowledged."""
        commits = self.ledger.check()
        self.churn.check()
        amcheck(self.cluster, DATABASE)
        self.mix.check()
        self.look()
        self.result.commits = commits
        return commits

    def kill(self, draw: Draw) -> str:
        """Kills what was drawn, and has the server back."""
        cluster = self.cluster
        if draw.what in ("backend", "helper"):
            self.kill_one(draw)
            return "restarted itself"
        if draw.what == "all":
            cluster.kill_all()
        else:
            os.kill(cluster.postmaster(), signal.SIGKILL)
            # Backends notice when they next wait for their client; until then they go on.
            time.sleep(draw.pick * 0.3)
            self.mix.stop()
            cluster.wait_gone()
        self.stop_load()
        text = self.lose(draw) + self.start()
        if draw.loses == "flash":
            # What could not be brought to the disk is told of; whether it is missing shows in the data.
            self.at = cluster.log_size()
        return text

    def lose(self, draw: Draw) -> str:
        """What a dead server may lose beside its life. The disk alone must do then, unless it needs flash."""
        if draw.loses == "memory":
            self.cluster.forget_memory()
        elif draw.loses and self.cluster.settings["larder.policy"] == "full":
            return self.refused(draw)
        elif draw.loses == "flash":
            shutil.rmtree(self.cluster.data / "larder_flash")
        elif draw.loses == "bare":
            self.cluster.start(library=False)
            self.cluster.sql("vacuum", DATABASE)
            self.cluster.stop()
        else:
            return ""
        return {"memory": "without the memory, ", "flash": "without flash, ", "bare": "run bare, "}[draw.loses]

    def refused(self, draw: Draw) -> str:
        """Without what it needs it must not start; then it has it again."""
        if draw.loses == "bare":
            said = self.cluster.refused(library=False)
            if "backup_label" not in said:
                raise Failed(f"the server without the library is refused otherwise: {said}")
            return "refused bare, "
        flash, aside = self.cluster.data / "larder_flash", self.cluster.home / "aside"
        flash.rename(aside)
        said = self.cluster.refused()
        if "which the data directory needs" not in said:
            raise Failed(f"the server without its flash is refused otherwise: {said}")
        if flash.exists():
            raise Failed("a start that was refused has made a directory on flash")
        aside.rename(flash)
        self.at = self.cluster.log_size()
        return "refused without flash, "

    def start(self) -> str:
        """Starts, after a stop or a kill of the postmaster."""
        pages, how = self.cluster.start()
        if not how:
            raise Failed("the server started without its cache")
        self.result.starts[how] += 1
        return f"{how}: {pages} pages"

    def kill_one(self, draw: Draw) -> None:
        """Kills one child, and waits until the server has started itself anew."""
        cluster, at = self.cluster, self.cluster.log_size()
        name = draw.helper if draw.what == "helper" else f"postgres {DATABASE} [local]"
        until = time.monotonic() + 60
        while "terminated by signal 9" not in cluster.log_from(at):
            found = sorted(pid for pid, title in cluster.processes().items() if f"postgres: {name}" in title)
            if found:
                try:
                    os.kill(found[int(draw.pick * len(found))], signal.SIGKILL)
                except ProcessLookupError:
                    pass
            # One that was about to end by itself may be gone unnoticed: then another one.
            pause = time.monotonic() + 5
            while time.monotonic() < pause and "terminated by signal 9" not in cluster.log_from(at):
                time.sleep(0.02)
            if time.monotonic() > until:
                raise Failed(f"no {name} could be killed")
        while READY not in cluster.log_from(at):
            if time.monotonic() > until:
                raise Failed(f"the server did not come back within 60 s:\n{cluster.states()}")
            time.sleep(0.02)

    def stop_and_start(self, draw: Draw) -> str:
        """A stop under load, and a start."""
        self.start_load(draw)
        time.sleep(draw.under_load)
        self.cluster.stop(draw.between)
        self.stop_load()
        if draw.between == "fast" and self.result.checksums == "on":
            # The disk alone has everything now.
            self.cluster.tool("pg_checksums", "--check", "-D", str(self.cluster.data))
        return self.start()


def run_rounds(options: Options) -> list[Result]:
    """With every policy, with and without checksums."""
    results = []
    for policy in options.policies:
        for checksums in options.checksums:
            results.append(Rounds(options, policy, checksums).run())
            if results[-1].violation:
                return results
    return results
