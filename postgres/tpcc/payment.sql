-- SPDX-License-Identifier: MIT OR Apache-2.0
-- Payment (clause 2.5). Wants -D warehouses=N. Customers: 15 in 100 of another warehouse, 60 in 100 by name.
\set w random(1, :warehouses)
\set d random(1, 10)
\set remote random(1, 100) <= 15 and :warehouses > 1
\set other (:w + random(0, greatest(:warehouses - 2, 0))) % :warehouses + 1
\set other_d random(1, 10)
\set cw case when :remote then :other else :w end
\set cd case when :remote then :other_d else :d end
\set c ((random(0, 1023) | random(1, 3000)) + 259) % 3000 + 1
\set named random(1, 100) <= 60
\set drawn ((random(0, 255) | random(0, 999)) + 223) % 1000
\set name case when :named then :drawn else -1 end
\set cents random(100, 500000)
call payment(:w, :d, :cw, :cd, :c, :name, :cents);
