# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the command line says, and the clusters that follow from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cluster import Cluster


class Skipped(Exception):
    """What cannot be tried here, and why."""


@dataclass
class Options:
    """What the command line says."""

    library: Path
    base: Path
    policies: list[str]
    checksums: list[str]
    flash_size: str = "48MB"
    shared_buffers: str = "8MB"
    warehouses: int = 1
    clients: int = 8
    rounds: int = 200
    seed: int = 1
    port: int = 55100
    json: bool = False
    keep: bool = False
    only: list[str] = field(default_factory=list)
    mutant: str = ""
    # All that were made.
    clusters: list[Cluster] = field(default_factory=list)

    def cluster(self, name: str, policy: str, **settings: str) -> Cluster:
        """A place for another one, with the settings of all and some of its own."""
        settings = {
            "shared_buffers": self.shared_buffers,
            "max_connections": "60",
            "log_line_prefix": "%m [%p] %e ",
            "log_checkpoints": "on",
            "checkpoint_timeout": "30s",
            "min_wal_size": "32MB",
            "max_wal_size": "64MB",
            "autovacuum_naptime": "1s",
            "larder.flash_directory": "larder_flash",
            "larder.flash_size": self.flash_size,
            "larder.policy": policy,
            **settings,
        }
        cluster = Cluster(self.base / name, self.port + len(self.clusters), self.library, **settings)
        if self.mutant:
            cluster.variables = {"LARDER_PG_MUTANT": self.mutant}
        self.clusters.append(cluster)
        return cluster
