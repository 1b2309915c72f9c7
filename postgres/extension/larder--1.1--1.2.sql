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
