-- SPDX-License-Identifier: MIT OR Apache-2.0
-- What the cache tells: one row, counters since its memory was made (docs/postgresql.md).
\echo Use "CREATE EXTENSION larder" to load this file. \quit

CREATE SCHEMA larder;

CREATE FUNCTION larder.status() RETURNS text
    AS 'MODULE_PATHNAME', 'larder_status' LANGUAGE C STRICT VOLATILE PARALLEL SAFE;
COMMENT ON FUNCTION larder.status() IS 'state and counters of the flash cache, as JSON';

CREATE FUNCTION larder.flush() RETURNS bigint
    AS 'MODULE_PATHNAME', 'larder_flush' LANGUAGE C STRICT VOLATILE;
COMMENT ON FUNCTION larder.flush() IS 'brings to the disk what flash alone has; the pages that it had';
REVOKE ALL ON FUNCTION larder.flush() FROM PUBLIC;

CREATE VIEW larder_stat_cache AS
    SELECT *, round(100.0 * hits / nullif(reads, 0), 1) AS hit_percent
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
        writes bigint,
        writes_absorbed bigint,
        written_back bigint,
        writes_entered bigint,
        clean_entered bigint,
        clean_kept bigint,
        clean_changed bigint,
        clean_no_room bigint,
        pages_written_to_flash bigint,
        writes_to_flash bigint,
        pages_again bigint,
        pages_left bigint,
        forks_retired bigint,
        starts bigint
    );
COMMENT ON VIEW larder_stat_cache IS 'the flash cache: what it holds, and what it has done since its memory was made';

GRANT USAGE ON SCHEMA larder TO PUBLIC;
GRANT SELECT ON larder_stat_cache TO PUBLIC;
