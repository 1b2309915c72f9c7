-- SPDX-License-Identifier: MIT OR Apache-2.0
-- Order-Status (clause 2.6). Wants -D warehouses=N. Customers: 60 in 100 by name.
\set w random(1, :warehouses)
\set d random(1, 10)
\set c ((random(0, 1023) | random(1, 3000)) + 259) % 3000 + 1
\set named random(1, 100) <= 60
\set drawn ((random(0, 255) | random(0, 999)) + 223) % 1000
\set name case when :named then :drawn else -1 end
select * from order_status(:w, :d, :c, :name);
