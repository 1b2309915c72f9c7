-- SPDX-License-Identifier: MIT OR Apache-2.0
-- Stock-Level (clause 2.8). Wants -D warehouses=N.
\set w random(1, :warehouses)
\set d random(1, 10)
\set threshold random(10, 20)
select stock_level(:w, :d, :threshold);
