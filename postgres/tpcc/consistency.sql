-- SPDX-License-Identifier: MIT OR Apache-2.0
-- Conditions 1 to 4 of clause 3.3.2: a line for each, and an error at the end if one is violated. In one
-- snapshot, so that it may be run beside the load.
\set ON_ERROR_STOP on
\set QUIET on
\set VERBOSITY terse
\pset format unaligned
\pset tuples_only on
begin isolation level repeatable read read only;

-- 1: W_YTD is the sum of D_YTD.
select count(*) as bad_1
from warehouse
full join (select d_w_id, sum(d_ytd) as ytd from district group by 1) as d on d_w_id = w_id
where w_ytd is distinct from ytd \gset

-- 2: D_NEXT_O_ID - 1 is the newest of orders, and of new_order where the district has any there.
select count(*) as bad_2
from district
full join (select o_w_id, o_d_id, max(o_id) as newest from orders group by 1, 2) as o
    on o_w_id = d_w_id and o_d_id = d_id
full join (select no_w_id, no_d_id, max(no_o_id) as newest from new_order group by 1, 2) as n
    on no_w_id = coalesce(d_w_id, o_w_id) and no_d_id = coalesce(d_id, o_d_id)
where d_next_o_id - 1 is distinct from o.newest
    or n.newest is distinct from case when n.no_w_id is not null then d_next_o_id - 1 end \gset

-- 3: the numbers in new_order have no gaps.
select count(*) as bad_3
from (select 1 from new_order group by no_w_id, no_d_id
    having max(no_o_id) - min(no_o_id) + 1 <> count(*)) as gaps \gset

-- 4: the sum of O_OL_CNT is the number of order lines.
select count(*) as bad_4
from (select o_w_id, o_d_id, sum(o_ol_cnt) as lines from orders group by 1, 2) as o
full join (select ol_w_id, ol_d_id, count(*) as lines from order_line group by 1, 2) as l
    on ol_w_id = o_w_id and ol_d_id = o_d_id
where o.lines is distinct from l.lines \gset

select format('condition %s: %s', condition,
    case when violations = 0 then 'ok' else place || ' that violate it: ' || violations end)
from (values (1, :bad_1, 'warehouses'), (2, :bad_2, 'districts'), (3, :bad_3, 'districts'),
    (4, :bad_4, 'districts')) as conditions (condition, violations, place)
order by condition;
commit;

select :bad_1 + :bad_2 + :bad_3 + :bad_4 > 0 as violated \gset
\if :violated
    do $$ begin raise exception 'the database is not consistent'; end $$;
\endif
