# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a server does when it is killed, and what it must not forget then.

The mix is TPC-C's. The ledger is a list of rows whose commits were acknowledged. The churn empties,
truncates, rewrites and drops a table, so that block numbers come back with other contents.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

from cluster import Cluster, Failed, as_user, give, run

TABLES = """
    create table ledger (n bigint primary key, payload text not null);
    create index on ledger using hash (payload);
    create table churn (n bigint primary key, pad text not null);
    create unlogged table scratch (n bigint primary key, pad text not null);
"""


class Session:
    """A client that sends one statement after the other, each in a transaction of its own."""

    def __init__(self, cluster: Cluster, database: str) -> None:
        words = ["psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", database]
        self.process = subprocess.Popen(
            as_user(words), env=cluster.env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, cwd="/",
        )

    def send(self, statement: str) -> bool:
        """Whether the statement is done, and committed."""
        assert self.process.stdin and self.process.stdout
        # The second statement is sent after the first returned, so its row says that that did.
        try:
            self.process.stdin.write(f"{statement};\nselect 'acknowledged';\n".encode())
            self.process.stdin.flush()
        except OSError:
            return False
        while line := self.process.stdout.readline():
            if line == b"acknowledged\n":
                return True
        return False

    def close(self) -> None:
        """Ends it, whatever it does."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                try:
                    pipe.close()
                except OSError:
                    pass


class Client:
    """A session in the background, and a new one when the server has ended it."""

    def __init__(self, cluster: Cluster, database: str) -> None:
        self.cluster, self.database = cluster, database
        self.done = threading.Event()
        self.session: Session | None = None
        self.thread: threading.Thread | None = None

    def step(self, session: Session) -> bool:
        """One thing to do."""
        raise NotImplementedError

    def start(self) -> None:
        """Begins."""
        self.done.clear()
        self.thread = threading.Thread(target=self._loop, daemon=True)
        self.thread.start()

    def _loop(self) -> None:
        while not self.done.is_set():
            self.session = Session(self.cluster, self.database)
            while not self.done.is_set() and self.step(self.session):
                pass
            self.session.close()
            self.done.wait(0.05)

    def stop(self) -> None:
        """Ends, after what is being done, or when the server has gone."""
        self.done.set()
        if self.thread:
            self.thread.join(5)
            if self.thread.is_alive() and self.session:
                self.session.process.kill()
                self.thread.join()


class Ledger(Client):
    """Rows 1, 2, 3 ...: a number is noted after its commit returned, and never used again."""

    def __init__(self, cluster: Cluster, database: str) -> None:
        super().__init__(cluster, database)
        self.next = 1
        self.noted: list[int] = []
        # All rows up to a number have been looked at: how many there are.
        self.settled, self.settled_rows = 0, 0

    def step(self, session: Session) -> bool:
        n, self.next = self.next, self.next + 1
        if not session.send(f"insert into ledger values ({n}, md5('{n}'))"):
            return False
        self.noted.append(n)
        return True

    def check(self) -> int:
        """Every noted row is there, as it was: in the table, by its key and by its hash. How many are."""
        here = {int(n) for n in self._ask(f"select n from ledger where n > {self.settled}").split()}
        lost = [n for n in self.noted if n not in here]
        if lost:
            raise Failed(f"{len(lost)} acknowledged commits are lost, the first is number {lost[0]}")
        old = int(self._ask(f"select count(*) from ledger where n <= {self.settled}"))
        if old != self.settled_rows:
            raise Failed(f"the ledger had {self.settled_rows} rows up to {self.settled}, and has {old}")
        other = self._ask("select count(*) from ledger where payload <> md5(n::text)")
        if other != "0":
            raise Failed(f"{other} rows of the ledger have another payload")
        self._by_index()
        if here:
            self.settled, self.settled_rows = max(here), old + len(here)
        # Numbers that were sent and not acknowledged may be there; from here on they are, or are not.
        self.next = max(self.next, self.settled + 1)
        self.noted.clear()
        return self.settled_rows

    def _by_index(self) -> None:
        newest = "select n from ledger order by n desc limit 2000"
        keys = "set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off;"
        for column, value in (("n", "s.n"), ("payload", "md5(s.n::text)")):
            found = f"select count(*) from (select 1 from s join ledger l on l.{column} = {value}) x"
            query = f"{keys} with s as materialized ({newest}) select (select count(*) from s) = ({found})"
            if self._ask(query) != "t":
                raise Failed(f"the ledger's index on {column} misses rows")

    def _ask(self, query: str) -> str:
        return self.cluster.sql(query, self.database)


class Churn(Client):
    """Contents follow from the numbers alone, so whatever is there can be looked at."""

    def __init__(self, cluster: Cluster, database: str) -> None:
        super().__init__(cluster, database)
        self.at, self.turn = 0, 0

    def step(self, session: Session) -> bool:
        self.turn += 1
        first, last = self.at + 1, self.at + 1500
        self.at = last
        rows = f"select g, repeat(md5(g::text), 10) from generate_series({first}, {last}) g"
        statements = [
            f"insert into churn {rows}",
            f"insert into scratch {rows} on conflict do nothing",
            f"update churn set pad = repeat(md5(n::text), 10) where n between {first} and {first + 400}",
            # The tail goes, and comes back with other rows.
            f"delete from churn where n > {first + 300}",
            "vacuum churn",
            f"insert into churn {rows} on conflict do nothing",
            "delete from churn where n % 3 = 0",
        ]
        statements += {
            0: ["truncate churn"],
            2: ["vacuum full churn"],
            4: ["cluster churn using churn_pkey", "reindex table churn"],
            6: ["begin; drop table churn; create table churn (n bigint primary key, pad text not null); commit"],
            8: ["delete from churn", "vacuum churn", "truncate scratch"],
        }.get(self.turn % 10, [])
        return all(session.send(statement) for statement in statements)

    def check(self) -> None:
        """No row is another one's, and none is there twice."""
        for table in ("churn", "scratch"):
            bad = "select count(*) - count(distinct n), count(*) filter (where pad <> repeat(md5(n::text), 10))"
            found = self.cluster.sql(f"{bad} from {table}", self.database)
            if found != "0|0":
                raise Failed(f"rows of {table} that are there twice, and that are wrong: {found}")


class Mix:
    """The TPC-C mix, as a process of its own."""

    def __init__(self, cluster: Cluster, database: str) -> None:
        self.cluster = cluster
        self.env = {**cluster.env(), "PGDATABASE": database}
        self.process: subprocess.Popen[bytes] | None = None
        # The server's user need not be able to read where this lies.
        self.home = cluster.home / "tpcc"
        if not self.home.exists():
            shutil.copytree(Path(__file__).resolve().parent.parent / "tpcc", self.home)
            give(self.home)

    def load(self, warehouses: int) -> None:
        """Makes the tables."""
        run(as_user([str(self.home / "run"), "load", str(warehouses)]), self.env, 3600)

    def start(self, clients: int, seed: int) -> None:
        """Begins, and returns when all of the clients are there."""
        words = as_user([str(self.home / "run"), "go", "600", str(clients), str(seed)])
        said = self.cluster.home / "mix.out"
        with open(said, "wb") as file:
            self.process = subprocess.Popen(
                words, env=self.env, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
                cwd="/",
            )
        until = time.monotonic() + 60
        while sum("[local]" in title for title in self.cluster.processes().values()) < clients:
            if time.monotonic() > until or self.process.poll() is not None:
                raise Failed(f"the mix does not begin: {said.read_text()}: {self.cluster.processes()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Ends."""
        if self.process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
                self.process.wait(5)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
            break
        self.process.wait()
        self.process = None

    def check(self) -> None:
        """Conditions 1 to 4 of its consistency."""
        run(as_user([str(self.home / "run"), "check"]), self.env)
