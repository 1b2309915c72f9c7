-- SPDX-License-Identifier: MIT OR Apache-2.0
-- Delivery (clause 2.7), at once and not from a queue. Wants -D warehouses=N.
\set w random(1, :warehouses)
\set carrier random(1, 10)
call delivery(:w, :carrier);
