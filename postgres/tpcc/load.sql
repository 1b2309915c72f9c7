-- SPDX-License-Identifier: MIT OR Apache-2.0
-- Fills the tables for :warehouses of them (clause 4.3.3). Values are hashes of a row's number, which counts
-- through all warehouses, so a warehouse has the same rows however many there are. Dates are constant.
-- Each table has salts of its own, in tens of thousands below.

\if :{?warehouses}
\else
    \set warehouses 1
\endif

insert into item
select n, tpcc_pick(n, 10000, 1, 10000), tpcc_text(n, 10010, 14, 24), tpcc_pick(n, 10020, 100, 10000) / 100.0,
    tpcc_data(n, 10030)
from generate_series(1, 100000) as n;

insert into warehouse
select n, tpcc_text(n, 20000, 6, 10), tpcc_text(n, 20010, 10, 20), tpcc_text(n, 20020, 10, 20),
    tpcc_text(n, 20030, 10, 20), tpcc_text(n, 20040, 2, 2), tpcc_zip(n, 20050),
    tpcc_pick(n, 20060, 0, 2000) / 10000.0, 300000
from generate_series(1, :warehouses) as n;

insert into district
select n % 10 + 1, n / 10 + 1, tpcc_text(n, 30000, 6, 10), tpcc_text(n, 30010, 10, 20),
    tpcc_text(n, 30020, 10, 20), tpcc_text(n, 30030, 10, 20), tpcc_text(n, 30040, 2, 2), tpcc_zip(n, 30050),
    tpcc_pick(n, 30060, 0, 2000) / 10000.0, 30000, 3001
from generate_series(0, :warehouses * 10 - 1) as n;

-- OFFSET 0 keeps the letters from being made anew for each column.
insert into stock
select n % 100000 + 1, n / 100000 + 1, tpcc_pick(n, 40000, 10, 100),
    substr(t, 1, 24), substr(t, 25, 24), substr(t, 49, 24), substr(t, 73, 24), substr(t, 97, 24),
    substr(t, 121, 24), substr(t, 145, 24), substr(t, 169, 24), substr(t, 193, 24), substr(t, 217, 24),
    0, 0, 0, tpcc_data(n, 40010)
from (select n, tpcc_letters(n, 40020) || tpcc_letters(n, 40021) || tpcc_letters(n, 40022)
        || tpcc_letters(n, 40023) as t
    from generate_series(0, :warehouses * 100000 - 1) as n offset 0) as stock_numbers;

-- The first thousand of a district have each last name once, so that every name is found; the others as
-- NURand draws them, with a constant 100 away from the one that the transactions draw with (clause 2.1.6.1).
insert into customer
select c, n / 3000 % 10 + 1, n / 30000 + 1, tpcc_text(n, 50000, 8, 16), 'OE',
    tpcc_last_name(case when c <= 1000 then c - 1 else tpcc_nurand(n, 50010, 255, 123, 0, 999) end),
    tpcc_text(n, 50020, 10, 20), tpcc_text(n, 50030, 10, 20), tpcc_text(n, 50040, 10, 20),
    tpcc_text(n, 50050, 2, 2), tpcc_zip(n, 50060),
    lpad(tpcc_pick(n, 50070, 0, 99999999)::text, 8, '0')
        || lpad(tpcc_pick(n, 50080, 0, 99999999)::text, 8, '0'),
    timestamp '2000-01-01', case when tpcc_pick(n, 50090, 1, 10) = 1 then 'BC' else 'GC' end, 50000,
    tpcc_pick(n, 50100, 0, 5000) / 10000.0, -10, 10, 1, 0,
    left(tpcc_letters(n, 50110) || tpcc_letters(n, 50111) || tpcc_letters(n, 50112) || tpcc_letters(n, 50113)
        || tpcc_letters(n, 50114) || tpcc_letters(n, 50115) || tpcc_letters(n, 50116)
        || tpcc_letters(n, 50117), tpcc_pick(n, 50120, 300, 500))
from (select n, n % 3000 + 1 as c from generate_series(0, :warehouses * 30000 - 1) as n) as customer_numbers;

insert into history
select n % 3000 + 1, n / 3000 % 10 + 1, n / 30000 + 1, n / 3000 % 10 + 1, n / 30000 + 1,
    timestamp '2000-01-01', 10, tpcc_text(n, 60000, 12, 24)
from generate_series(0, :warehouses * 30000 - 1) as n;

-- Each customer of a district has one order: they are numbered in the order of a hash.
insert into orders
select row_number() over district, n / 3000 % 10 + 1, n / 30000 + 1, n % 3000 + 1, timestamp '2000-01-01',
    case when row_number() over district <= 2100 then tpcc_pick(n, 70000, 1, 10) end,
    tpcc_pick(n, 70010, 5, 15), 1
from generate_series(0, :warehouses * 30000 - 1) as n
window district as (partition by n / 3000 order by hashint8extended(n, 70020), n);

-- The rest follows the orders: the last 900 of a district are not delivered.
set synchronize_seqscans = off; -- the lines in the order of the orders
insert into order_line
select o_id, o_d_id, o_w_id, l, tpcc_pick(n + l, 80000, 1, 100000), o_w_id,
    case when o_id <= 2100 then o_entry_d end, 5,
    case when o_id <= 2100 then 0 else tpcc_pick(n + l, 80010, 1, 999999) / 100.0 end,
    left(tpcc_letters(n + l, 80020), 24)
from (select *, ((o_w_id::bigint * 10 + o_d_id) * 3000 + o_id) * 16 as n from orders) as numbered,
    generate_series(1, o_ol_cnt) as l;

insert into new_order
select o_id, o_d_id, o_w_id from orders where o_id > 2100;
reset synchronize_seqscans;
