# SPDX-License-Identifier: MIT OR Apache-2.0
"""A copy of the installed server, with the library and the extension that `make install-postgres` puts into it.

A server finds its extensions beside its own executable, so a test needs no change of the machine's server.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import cluster
from cluster import Failed, give

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent.parent
PROGRAMS = ("postgres", "initdb", "pg_ctl", "psql", "pg_controldata")


def ask(config: Path, what: str) -> Path:
    """A directory of the installed server."""
    done = subprocess.run([str(config), what], check=True, capture_output=True, text=True)
    return Path(done.stdout.strip())


def make(root: Path, config: Path, library: Path, target: str = "install-postgres") -> None:
    """Runs a target of the Makefile."""
    words = ["make", "-s", "-C", str(PROJECT), target, f"PG_CONFIG={config}", f"DESTDIR={root}", f"LARDER_PG={library}"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"make {target}: {done.stderr[-1000:]}")


def below(root: Path, path: Path) -> Path:
    """The path within the root."""
    return root / path.relative_to("/")


def link_all(source: Path, to: Path) -> None:
    """Links what the source has and the copy lacks."""
    to.mkdir(parents=True, exist_ok=True)
    for entry in source.iterdir():
        there = to / entry.name
        if entry.name.startswith("larder"):
            continue
        if entry.is_dir() and there.is_dir():
            link_all(entry, there)
        elif not there.exists():
            there.symlink_to(entry)


def install(root: Path, library: Path) -> Path:
    """Makes the copy; returns the directory of its programs, which clusters use from then on."""
    config = cluster.BIN / "pg_config"
    make(root, config, library)
    for what in ("--pkglibdir", "--sharedir"):
        directory = ask(config, what)
        link_all(directory, below(root, directory))
    programs = below(root, ask(config, "--bindir"))
    programs.mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        shutil.copy2(cluster.BIN / name, programs / name)
    for directory, _, _ in os.walk(root):
        os.chmod(directory, 0o755)
    give(root)
    cluster.BIN = programs
    return config


def left_after_uninstall(root: Path, config: Path, library: Path) -> list[Path]:
    """Files of this project that uninstall-postgres leaves."""
    make(root, config, library, "uninstall-postgres")
    return [path for path in root.rglob("*larder*") if not path.is_symlink()]
