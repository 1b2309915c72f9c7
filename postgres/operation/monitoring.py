# SPDX-License-Identifier: MIT OR Apache-2.0
"""The files for monitoring: every query runs, every metric has its columns, and the dashboard uses these metrics alone."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from checks import expect
from cluster import Cluster, Failed

PROJECT = Path(__file__).resolve().parent.parent.parent
COLLECTOR = PROJECT / "dist/postgres/larder.collector.yml"
DASHBOARD = PROJECT / "dist/postgres/grafana-dashboard.json"
DOCUMENT = PROJECT / "docs/postgresql-statistics.md"
NAME = re.compile(r"\blarder_postgres_\w+")


@dataclass
class Collector:
    """A collector file. It uses a small part of YAML, so its lines suffice."""

    metrics: dict[str, dict[str, str]] = field(default_factory=dict)
    queries: dict[str, str] = field(default_factory=dict)


def read(path: Path) -> Collector:
    """Reads it."""
    found, metric, query = Collector(), "", ""
    for line in path.read_text(encoding="utf8").splitlines():
        if words := re.fullmatch(r"  - metric_name: (\w+)", line):
            metric = words[1]
            if metric in found.metrics:
                raise Failed(f"{path.name}: {metric} is there twice")
            found.metrics[metric] = {}
        elif words := re.fullmatch(r"  - query_name: (\w+)", line):
            query = words[1]
            found.queries[query] = ""
        elif query and (words := re.fullmatch(r"      (.+)", line)):
            found.queries[query] += words[1] + "\n"
        elif metric and not query and (words := re.fullmatch(r"    (\w+): (.+)", line)):
            found.metrics[metric][words[1]] = words[2]
    return found


def names(text: str) -> list[str]:
    """A list in brackets."""
    return [name for name in re.split(r"[\[\], ]+", text) if name]


def queries(cluster: Cluster) -> None:
    """Runs all of them, as a user without privileges."""
    collector = read(COLLECTOR)
    expect("queries in use", {m["query_ref"] for m in collector.metrics.values()}, set(collector.queries))
    cluster.sql("create role watcher login")
    for name, query in collector.queries.items():
        header = cluster.tool("psql", "-XqA", "-v", "ON_ERROR_STOP=1", "-U", "watcher", "-d", "postgres", "-c", query)
        lines = header.splitlines()
        columns, rows = lines[0].split("|"), lines[1:-1]
        for metric, about in collector.metrics.items():
            if about["query_ref"] != name:
                continue
            wanted = names(about.get("key_labels", "")) + names(about["values"])
            if missing := set(wanted) - set(columns):
                raise Failed(f"{metric}: its query has no column {missing}")
            if about["type"] not in ("counter", "gauge") or not about["help"]:
                raise Failed(f"{metric}: {about}")
            place = columns.index(names(about["values"])[0])
            for row in rows:
                float(row.split("|")[place])
        if not rows:
            raise Failed(f"the query {name} has no row")
    cluster.sql("drop role watcher")
    text = DASHBOARD.read_text(encoding="utf8")
    panels = [target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"]]
    used = {name for expression in panels for name in NAME.findall(expression)} | set(NAME.findall(text))
    if unknown := used - set(collector.metrics):
        raise Failed(f"the dashboard uses {unknown}, which no query has")
    documented = set(NAME.findall(DOCUMENT.read_text(encoding="utf8")))
    expect("metrics that are documented", documented, set(collector.metrics))
