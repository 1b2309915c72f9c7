# SPDX-License-Identifier: MIT OR Apache-2.0
"""A Prometheus scrapes the views through postgres_exporter with larder.queries.yml.

It must get every metric of the collector file with the same type, values as the views have them, and an answer to every expression
of the dashboard.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from checks import expect
from cluster import Cluster, Failed
from lab import read_by_key
from monitoring import COLLECTOR, DASHBOARD, PROJECT, read

QUERIES = PROJECT / "dist/postgres/larder.queries.yml"
SCRAPES = """global: {{ scrape_interval: 1s }}
scrape_configs: [{{ job_name: postgres, static_configs: [{{ targets: ["127.0.0.1:{port}"] }}] }}]
"""
# The answer to an expression: a value for each set of labels.
Series = list[tuple[dict[str, str], float]]


def program(name: str) -> str:
    """One that scripts/deps has downloaded, or an installed one."""
    tools = PROJECT / os.environ.get("CARGO_TARGET_DIR", "target") / "tools/bin"
    if found := shutil.which(name, path=f"{tools}:{os.environ.get('PATH', '')}"):
        return found
    raise Failed(f"{name} is missing: scripts/deps test")


def free_port() -> int:
    """A port of loopback that nothing listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def running(words: list[str], log: Path, **more: str) -> Iterator[None]:
    """A program that runs meanwhile."""
    with open(log, "wb") as file:
        child = subprocess.Popen(words, env={**os.environ, **more}, stdout=file, stderr=file)
    try:
        yield
    finally:
        child.terminate()
        child.wait()


def ask(port: int, path: str, **words: str) -> Any:
    """The data of an answer of Prometheus."""
    address = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(words)}"
    with urllib.request.urlopen(address, timeout=30) as answer:
        return json.load(answer)["data"]


def query(port: int, expression: str) -> Series:
    """The values of an expression at the moment."""
    try:
        found = ask(port, "query", query=expression)["result"]
    except urllib.error.HTTPError as error:
        # It is not ready.
        if error.code == 503:
            raise
        raise Failed(f"Prometheus: {expression}: {error.read().decode()}") from error
    return [(series["metric"], float(series["value"][1])) for series in found]


def eventually(what: str, test: Callable[[], object], limit: float = 30) -> None:
    """Waits for it."""
    until = time.monotonic() + limit
    while True:
        try:
            if test():
                return
        except urllib.error.URLError:
            # It does not listen yet, or is not ready.
            pass
        if time.monotonic() > until:
            raise Failed(f"{what}: not after {limit:.0f} s")
        time.sleep(0.2)


def same_metrics(port: int) -> None:
    """The metrics and their types are those of the collector file."""
    metrics = read(COLLECTOR).metrics
    names = [name for name in ask(port, "label/__name__/values") if name.startswith("larder_postgres_")]
    expect("metrics", sorted(names), sorted(metrics))
    types = {name: about[0]["type"] for name, about in ask(port, "metadata").items()}
    histogram = "larder_postgres_operation_seconds"
    for name, about in metrics.items():
        wanted = "histogram" if name.startswith(histogram) else about["type"]
        expect(f"type of {name}", types.get(histogram if wanted == "histogram" else name), wanted)


VALUES = {
    "larder_postgres_caching": "select caching::int from larder_stat_cache",
    "larder_postgres_flash_pages": "select flash_pages from larder_stat_cache",
    "larder_postgres_reads_total": "select reads from larder_stat_cache",
    "larder_postgres_hits_total": "select hits from larder_stat_cache",
    "larder_postgres_flash_written_bytes_total": "select bytes_written from larder_stat_wear",
    "larder_postgres_flash_endurance_bytes": "select endurance_bytes from larder_stat_wear",
    "larder_postgres_relation_hits_total{relation='t'}":
        "select hits from larder_stat_relations where relation = 't'::regclass",
    "larder_postgres_operation_seconds_count{operation='flash_read'}":
        "select calls from larder_stat_io where operation = 'flash_read'",
    "larder_postgres_operation_seconds_bucket{operation='flash_read',le='+Inf'}":
        "select calls from larder_stat_io where operation = 'flash_read'",
}


def same_values(cluster: Cluster, port: int) -> None:
    """A value scraped between two looks at a view is not outside of both."""
    before = {expression: float(cluster.sql(sql)) for expression, sql in VALUES.items()}
    looked = time.time()
    # A scrape began after the first look.
    eventually("a scrape", lambda: query(port, f"min(timestamp(larder_postgres_caching)) > {looked}"))
    found = {expression: query(port, expression) for expression in VALUES}
    for expression, sql in VALUES.items():
        after = float(cluster.sql(sql))
        expect(f"series of {expression}", len(found[expression]), 1)
        value = found[expression][0][1]
        if not 0 < before[expression] <= value <= after:
            raise Failed(f"{expression}: {value}, the view had {before[expression]}, then {after}")


def warm(cluster: Cluster) -> bool:
    """Flash answers reads of the table, of which earlier cases may have left nothing."""
    read_by_key(cluster)
    return cluster.sql("select hits > 0 from larder_stat_relations where relation = 't'::regclass") == "t"


def dashboard(cluster: Cluster, port: int) -> None:
    """Every expression has series while the server works."""
    cluster.sql("update t set v = v + 1 where n % 5 = 0")
    cluster.sql("checkpoint")
    read_by_key(cluster)
    time.sleep(2.5)
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")
            if not query(port, expression):
                raise Failed(f"the panel {panel['title']}: {expression} has no series")


def scrapes(cluster: Cluster) -> None:
    """As a user without privileges."""
    cluster.sql("create role watcher login")
    eventually("flash answers", lambda: warm(cluster))
    exporter, port = free_port(), free_port()
    source = f"host={cluster.home} port={cluster.port} user=watcher dbname=postgres sslmode=disable"
    scraper = [program("prometheus-postgres-exporter"), f"--web.listen-address=127.0.0.1:{exporter}",
               f"--extend.query-path={QUERIES}"]
    (cluster.home / "prometheus.yml").write_text(SCRAPES.format(port=exporter), encoding="utf-8")
    prometheus = [program("prometheus"), f"--config.file={cluster.home}/prometheus.yml",
                  f"--storage.tsdb.path={cluster.home}/tsdb", f"--web.listen-address=127.0.0.1:{port}"]
    with running(scraper, cluster.home / "exporter.log", DATA_SOURCE_NAME=source), \
            running(prometheus, cluster.home / "prometheus.log"):
        eventually("Prometheus scrapes the exporter", lambda: query(port, "larder_postgres_caching == 1"))
        same_metrics(port)
        same_values(cluster, port)
        dashboard(cluster, port)
        errors = query(port, "pg_exporter_last_scrape_error != 0") + query(port, "pg_exporter_user_queries_load_error != 0")
        expect("errors of the exporter", errors, [])
    cluster.sql("drop role watcher")
