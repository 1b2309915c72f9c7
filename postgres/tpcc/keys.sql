-- SPDX-License-Identifier: MIT OR Apache-2.0
-- Primary keys (clause 1.3; history has none) and the two other ways in that clause 2 takes.

alter table warehouse add primary key (w_id);
alter table district add primary key (d_w_id, d_id);
alter table customer add primary key (c_w_id, c_d_id, c_id);
alter table new_order add primary key (no_w_id, no_d_id, no_o_id);
alter table orders add primary key (o_w_id, o_d_id, o_id);
alter table order_line add primary key (ol_w_id, ol_d_id, ol_o_id, ol_number);
alter table item add primary key (i_id);
alter table stock add primary key (s_w_id, s_i_id);

-- Payment and Order-Status: customers by last name, in the order of their first names.
create index customer_by_name on customer (c_w_id, c_d_id, c_last, c_first);
-- Order-Status: a customer's newest order.
create unique index orders_by_customer on orders (o_w_id, o_d_id, o_c_id, o_id);
