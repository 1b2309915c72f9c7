-- SPDX-License-Identifier: MIT OR Apache-2.0
-- Operation and statistics (docs/postgresql.md).
\echo Use "ALTER EXTENSION larder UPDATE TO '1.2'" to load this file. \quit

CREATE FUNCTION larder.disable() RETURNS void
    AS 'MODULE_PATHNAME', 'larder_disable' LANGUAGE C STRICT VOLATILE;
COMMENT ON FUNCTION larder.disable() IS 'writes all dirty pages to the disk; then no process uses flash';
REVOKE ALL ON FUNCTION larder.disable() FROM PUBLIC;

CREATE FUNCTION larder.enable() RETURNS void
    AS 'MODULE_PATHNAME', 'larder_enable' LANGUAGE C STRICT VOLATILE;
COMMENT ON FUNCTION larder.enable() IS 'uses flash again after larder.disable()';
REVOKE ALL ON FUNCTION larder.enable() FROM PUBLIC;

CREATE FUNCTION larder.stats_reset() RETURNS void
    AS 'MODULE_PATHNAME', 'larder_stats_reset' LANGUAGE C STRICT VOLATILE;
COMMENT ON FUNCTION larder.stats_reset() IS 'sets all counters to zero';
REVOKE ALL ON FUNCTION larder.stats_reset() FROM PUBLIC;

CREATE FUNCTION larder.stat_io() RETURNS text
    AS 'MODULE_PATHNAME', 'larder_stat_io' LANGUAGE C STRICT VOLATILE PARALLEL SAFE;
COMMENT ON FUNCTION larder.stat_io() IS 'operations of the devices, as JSON';

CREATE FUNCTION larder.stat_relations() RETURNS text
    AS 'MODULE_PATHNAME', 'larder_stat_relations' LANGUAGE C STRICT VOLATILE PARALLEL SAFE;
COMMENT ON FUNCTION larder.stat_relations() IS 'relations of this database on flash, as JSON';

-- New columns are the last ones, so that views over this one stay.
CREATE OR REPLACE VIEW larder_stat_cache AS
    SELECT
        caching, reason, policy, page_bytes, flash_pages, pages_cached, pages_dirty, reads, hits, writes, writes_absorbed,
        written_back, writes_entered, clean_entered, clean_kept, clean_changed, clean_no_room, pages_written_to_flash,
        writes_to_flash, pages_again, pages_left, forks_retired, starts,
        round(100.0 * hits / nullif(reads, 0), 1) AS hit_percent,
        hits_page_cache, clean_scanned,
        to_timestamp(stats_reset) AS stats_reset
    FROM json_to_record(larder.status()::json) AS cache(
        caching boolean,
        reason text,
        policy text,
        page_bytes integer,
        flash_pages bigint,
        pages_cached bigint,
        pages_dirty bigint,
        reads bigint,
        hits bigint,
        hits_page_cache bigint,
        writes bigint,
        writes_absorbed bigint,
        written_back bigint,
        writes_entered bigint,
        clean_entered bigint,
        clean_kept bigint,
        clean_changed bigint,
        clean_no_room bigint,
        clean_scanned bigint,
        pages_written_to_flash bigint,
        writes_to_flash bigint,
        pages_again bigint,
        pages_left bigint,
        forks_retired bigint,
        starts bigint,
        stats_reset double precision
    );
COMMENT ON VIEW larder_stat_cache IS 'the flash cache: its state, and counters of pages';

CREATE VIEW larder_stat_relations AS
    SELECT
        pg_filenode_relation(tablespace, filenode) AS relation,
        tablespace, filenode, reads, hits,
        round(100.0 * hits / nullif(reads, 0), 1) AS hit_percent,
        pages_cached,
        pages_cached * current_setting('block_size')::bigint AS bytes_cached,
        pages_dirty,
        pages_dirty * current_setting('block_size')::bigint AS bytes_dirty,
        pages_pinned
    FROM json_to_recordset(larder.stat_relations()::json) AS files(
        tablespace oid,
        filenode oid,
        reads bigint,
        hits bigint,
        pages_cached bigint,
        pages_dirty bigint,
        pages_pinned bigint
    );
COMMENT ON VIEW larder_stat_relations IS 'relations of this database on flash, and those that all databases share';

CREATE VIEW larder_stat_io AS
    SELECT
        operation, calls, bytes, seconds,
        round((1e6 * seconds / nullif(calls, 0))::numeric, 1) AS mean_us,
        to_timestamp(stats_reset) AS stats_reset
    FROM json_to_record(larder.stat_io()::json) AS io(operations json, stats_reset double precision),
        json_to_recordset(operations) AS one(
            operation text,
            calls bigint,
            bytes bigint,
            seconds double precision
        );
COMMENT ON VIEW larder_stat_io IS 'operations of the devices: calls, bytes and time';

CREATE VIEW larder_stat_latency AS
    SELECT operation, coalesce(upto_seconds, 'infinity') AS upto_seconds, bucket.calls, calls_upto
    FROM json_to_record(larder.stat_io()::json) AS io(operations json),
        json_to_recordset(operations) AS one(operation text, buckets json),
        json_to_recordset(buckets) AS bucket(
            upto_seconds double precision,
            calls bigint,
            calls_upto bigint
        );
COMMENT ON VIEW larder_stat_latency IS 'operations of the devices by the time that they took';

CREATE VIEW larder_stat_wear AS
    SELECT
        bytes_written,
        (86400 * bytes_written / nullif(seconds, 0))::numeric(30, 0) AS bytes_per_day,
        endurance_bytes::numeric(30, 0) AS endurance_bytes,
        round((100 * bytes_written / endurance_bytes)::numeric, 6) AS percent_of_endurance,
        round((endurance_bytes / nullif(bytes_written, 0) * seconds / 86400 / 365.25)::numeric, 2) AS years_of_endurance,
        to_timestamp(stats_reset) AS stats_reset
    FROM json_to_record(larder.stat_io()::json) AS io(
        bytes_written bigint,
        endurance_bytes double precision,
        seconds double precision,
        stats_reset double precision
    )
    WHERE bytes_written IS NOT NULL;
COMMENT ON VIEW larder_stat_wear IS 'bytes written to flash, beside larder.flash_endurance';

GRANT SELECT ON larder_stat_relations, larder_stat_io, larder_stat_latency, larder_stat_wear TO PUBLIC;

CREATE FUNCTION larder.prewarm(relation regclass) RETURNS bigint
    AS 'MODULE_PATHNAME', 'larder_prewarm' LANGUAGE C STRICT VOLATILE;
COMMENT ON FUNCTION larder.prewarm(regclass) IS 'reads pages that flash lacks, and admits them; their number';
REVOKE ALL ON FUNCTION larder.prewarm(regclass) FROM PUBLIC;

CREATE FUNCTION larder.pin(relation regclass) RETURNS bigint
    AS 'MODULE_PATHNAME', 'larder_pin' LANGUAGE C STRICT VOLATILE;
COMMENT ON FUNCTION larder.pin(regclass) IS 'keeps the present pages on flash in preference to others; their number';
REVOKE ALL ON FUNCTION larder.pin(regclass) FROM PUBLIC;

CREATE FUNCTION larder.unpin(relation regclass) RETURNS boolean
    AS 'MODULE_PATHNAME', 'larder_unpin' LANGUAGE C STRICT VOLATILE;
COMMENT ON FUNCTION larder.unpin(regclass) IS 'ends larder.pin; whether the relation was pinned';
REVOKE ALL ON FUNCTION larder.unpin(regclass) FROM PUBLIC;

CREATE FUNCTION larder.drain() RETURNS bigint
    AS 'MODULE_PATHNAME', 'larder_flush' LANGUAGE C STRICT VOLATILE;
COMMENT ON FUNCTION larder.drain() IS 'writes all dirty pages from flash to the disk; their number';
REVOKE ALL ON FUNCTION larder.drain() FROM PUBLIC;
COMMENT ON FUNCTION larder.flush() IS 'the older name of larder.drain()';
