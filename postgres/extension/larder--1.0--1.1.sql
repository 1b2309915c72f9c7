-- SPDX-License-Identifier: MIT OR Apache-2.0
-- Counters of pages that were read from the page cache, and of pages of scans (docs/postgresql.md). New columns are the last
-- ones, so that views over this one stay.
\echo Use "ALTER EXTENSION larder UPDATE TO '1.1'" to load this file. \quit

CREATE OR REPLACE VIEW larder_stat_cache AS
    SELECT
        caching, reason, policy, page_bytes, flash_pages, pages_cached, pages_dirty, reads, hits, writes, writes_absorbed,
        written_back, writes_entered, clean_entered, clean_kept, clean_changed, clean_no_room, pages_written_to_flash,
        writes_to_flash, pages_again, pages_left, forks_retired, starts,
        round(100.0 * hits / nullif(reads, 0), 1) AS hit_percent,
        hits_page_cache, clean_scanned
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
        starts bigint
    );
