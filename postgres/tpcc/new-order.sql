-- SPDX-License-Identifier: MIT OR Apache-2.0
-- New-Order (clause 2.4). Wants -D warehouses=N. The lines are drawn from the seed, in the procedure.
\set w random(1, :warehouses)
\set d random(1, 10)
\set c ((random(0, 1023) | random(1, 3000)) + 259) % 3000 + 1
\set lines random(5, 15)
\set unused random(1, 100) = 1
\set seed random(1, 1000000000000000)
call new_order(:w, :d, :c, :lines, :unused, :seed, :warehouses);
