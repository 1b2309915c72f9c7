# SPDX-License-Identifier: MIT OR Apache-2.0
"""The extension's versions: an upgraded database has the catalog of a new one, and views over old columns stay."""

from __future__ import annotations

from checks import expect
from cluster import Cluster, Failed

# All that belongs to the extension: functions, and views with their columns in order, with privileges and comments.
CATALOG = """
    select p.oid::regprocedure::text, pg_get_function_result(p.oid), p.provolatile, p.proparallel, p.proisstrict,
           p.prosrc, coalesce(p.proacl::text, ''), obj_description(p.oid)
    from pg_depend d join pg_proc p on p.oid = d.objid and d.classid = 'pg_proc'::regclass
    where d.deptype = 'e' and d.refobjid = (select oid from pg_extension where extname = 'larder') order by 1;
    select c.oid::regclass::text, coalesce(c.relacl::text, ''), obj_description(c.oid), pg_get_viewdef(c.oid),
           (select string_agg(attname || ' ' || atttypid::regtype, ', ' order by attnum)
            from pg_attribute where attrelid = c.oid and attnum > 0)
    from pg_depend d join pg_class c on c.oid = d.objid and d.classid = 'pg_class'::regclass
    where d.deptype = 'e' and d.refobjid = (select oid from pg_extension where extname = 'larder') order by 1
"""
VERSIONS = ("1.0", "1.1", "1.2")
COLUMNS = "select attname || ' ' || atttypid::regtype from pg_attribute " \
    "where attrelid = '{}'::regclass and attnum > 0 order by attnum"


def catalog(cluster: Cluster, database: str) -> str:
    """What the extension has made there."""
    return "\n".join(cluster.sql(part, database) for part in CATALOG.split(";"))


def columns(cluster: Cluster, view: str, database: str) -> list[str]:
    """The columns of a view, in order."""
    return cluster.sql(COLUMNS.format(view), database).splitlines()


def upgrades(cluster: Cluster) -> None:
    """From each earlier version to the newest."""
    cluster.sql("create database fresh")
    cluster.sql("create extension larder", "fresh")
    wanted = catalog(cluster, "fresh")
    if "larder.disable()" not in wanted or "larder_stat_wear" not in wanted:
        raise Failed(f"the extension lacks something: {wanted}")
    for first in VERSIONS[:-1]:
        database = f"from_{first.replace('.', '_')}"
        cluster.sql(f"create database {database}")
        cluster.sql(f"create extension larder version '{first}'", database)
        before = columns(cluster, "larder_stat_cache", database)
        cluster.sql("create view mine as select * from larder_stat_cache", database)
        for version in VERSIONS[VERSIONS.index(first) + 1:]:
            cluster.sql(f"alter extension larder update to '{version}'", database)
            now = columns(cluster, "larder_stat_cache", database)
            expect(f"the first columns of version {version}", now[:len(before)], before)
        expect("the catalog after an upgrade", catalog(cluster, database), wanted)
        expect("rows of a view over the old one", cluster.sql("select count(*) from mine", database), "1")
        cluster.sql("drop view mine; drop extension larder", database)
