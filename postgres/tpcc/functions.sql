-- SPDX-License-Identifier: MIT OR Apache-2.0
-- The bodies of the five transactions (clause 2), and what the load draws its values with.
--
-- Chance comes from outside: pgbench's variables, or for what is drawn a number of times, a seed that is
-- hashed. So pgbench's --random-seed decides everything that one client does, but the dates.
-- The order of a transaction's statements is free (clause 2). Here what many wait for, the rows of a district
-- and of a warehouse, comes last, so that no one reads from a device while holding them. No deadlocks:
--   New-Order  locks stock in the order of items, then its district;
--   Payment    locks one customer, its warehouse, its district;
--   Delivery   locks, district by district, the oldest new order, then that order's customer.
-- All is right at READ COMMITTED: what a transaction changes, it reads by locking it.

-- Hashing: (key, salt) to a number, to NURand (clause 2.1.6), to letters and digits. hashint8extended is what
-- hash partitions lie by, so it stays the same from one version of PostgreSQL to the next.
create function tpcc_pick(key bigint, salt bigint, low integer, high integer) returns integer
language sql immutable parallel safe as $$
    select (low + (hashint8extended(key, salt) & 9223372036854775807) % (high - low + 1))::integer
$$;

create function tpcc_nurand(key bigint, salt bigint, a integer, c integer, low integer, high integer)
returns integer
language sql immutable parallel safe as $$
    select ((tpcc_pick(key, salt, 0, a) | tpcc_pick(key, salt + 1, low, high)) + c) % (high - low + 1) + low
$$;

-- 64 of them: what the 48 bytes of SHA-384 are in base64.
create function tpcc_letters(key bigint, salt bigint) returns text
language sql immutable parallel safe as $$
    select replace(replace(encode(sha384(int8send(hashint8extended(key, salt))), 'base64'), '+', 'x'), '/', 'y')
$$;

create function tpcc_text(key bigint, salt bigint, low integer, high integer) returns text
language sql immutable parallel safe as $$
    select left(tpcc_letters(key, salt), tpcc_pick(key, salt + 1, low, high))
$$;

-- I_DATA and S_DATA: every tenth has ORIGINAL somewhere.
create function tpcc_data(key bigint, salt bigint) returns text
language sql immutable parallel safe as $$
    select case when tpcc_pick(key, salt + 2, 1, 10) = 1
        then overlay(data placing 'ORIGINAL' from tpcc_pick(key, salt + 3, 1, length(data) - 7))
        else data end
    from tpcc_text(key, salt, 26, 50) as data
$$;

create function tpcc_zip(key bigint, salt bigint) returns text
language sql immutable parallel safe as $$
    select lpad(tpcc_pick(key, salt, 0, 9999)::text, 4, '0') || '11111'
$$;

-- C_LAST of a number from 0 to 999 (clause 4.3.2.3).
create function tpcc_last_name(number integer) returns text
language sql immutable parallel safe as $$
    select s[number / 100 + 1] || s[number / 10 % 10 + 1] || s[number % 10 + 1]
    from (values ('{BAR,OUGHT,ABLE,PRI,PRES,ESE,ANTI,CALLY,ATION,EING}'::text[])) as syllables (s)
$$;

-- The one in the middle, rounded up, of those with a last name (clause 2.5.2.2).
create function tpcc_customer_by_name(w integer, d integer, last_name text) returns integer
language sql stable as $$
    select (ids)[(cardinality(ids) + 1) / 2]
    from (select array_agg(c_id order by c_first, c_id) as ids
          from customer where c_w_id = w and c_d_id = d and c_last = last_name) as found
$$;

-- Clause 2.4. With `unused`, the last line is of an item that does not exist, and all is rolled back: order_id
-- is null then. A procedure, so that it can do so itself.
create procedure new_order(
    w integer, d integer, c integer, lines integer, unused boolean, seed bigint, warehouses integer,
    inout order_id integer default null, inout total numeric default null, inout brands text default null)
language plpgsql as $$
declare
    line record;
    price numeric;
    item_data text;
    stock_info record;
    discount numeric;
    w_rate numeric;
    d_rate numeric;
    all_local integer := 1;
    items integer[];
    supplies integer[];
    quantities integer[];
    amounts numeric[];
    infos text[];
    marks text[];
begin
    select c_discount into strict discount from customer where c_w_id = w and c_d_id = d and c_id = c;
    for line in
        -- The item that does not exist has the highest number: the others are done by then, as they should be.
        select n,
            case when unused and n = lines then 100001
                else tpcc_nurand(seed, n * 8, 8191, 5987, 1, 100000) end as item,
            case when warehouses > 1 and tpcc_pick(seed, n * 8 + 2, 1, 100) = 1
                then (w + tpcc_pick(seed, n * 8 + 3, 0, warehouses - 2)) % warehouses + 1
                else w end as supply,
            tpcc_pick(seed, n * 8 + 4, 1, 10) as quantity
        from generate_series(1, lines) as n
        order by item, supply
    loop
        select i_price, i_data into price, item_data from item where i_id = line.item;
        exit when not found;
        update stock set
            s_quantity = case when s_quantity >= line.quantity + 10 then s_quantity - line.quantity
                else s_quantity - line.quantity + 91 end,
            s_ytd = s_ytd + line.quantity,
            s_order_cnt = s_order_cnt + 1,
            s_remote_cnt = s_remote_cnt + (line.supply <> w)::integer
        where s_w_id = line.supply and s_i_id = line.item
        returning s_data, case d when 1 then s_dist_01 when 2 then s_dist_02 when 3 then s_dist_03
            when 4 then s_dist_04 when 5 then s_dist_05 when 6 then s_dist_06 when 7 then s_dist_07
            when 8 then s_dist_08 when 9 then s_dist_09 else s_dist_10 end as info
        into strict stock_info;
        if line.supply <> w then
            all_local := 0;
        end if;
        items[line.n] := line.item;
        supplies[line.n] := line.supply;
        quantities[line.n] := line.quantity;
        amounts[line.n] := line.quantity * price;
        infos[line.n] := stock_info.info;
        marks[line.n] := case when item_data like '%ORIGINAL%' and stock_info.s_data like '%ORIGINAL%'
            then 'B' else 'G' end;
    end loop;
    if cardinality(items) is distinct from lines then
        rollback;
        return;
    end if;

    select w_tax into strict w_rate from warehouse where w_id = w;
    update district set d_next_o_id = d_next_o_id + 1 where d_w_id = w and d_id = d
        returning d_next_o_id - 1, d_tax into strict order_id, d_rate;
    insert into orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local)
        values (order_id, d, w, c, localtimestamp, lines, all_local);
    insert into new_order (no_o_id, no_d_id, no_w_id) values (order_id, d, w);
    insert into order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity,
            ol_amount, ol_dist_info)
        select order_id, d, w, n, items[n], supplies[n], quantities[n], amounts[n], infos[n]
        from generate_series(1, lines) as n;
    select sum(amount) * (1 - discount) * (1 + w_rate + d_rate) into total from unnest(amounts) as amount;
    brands := array_to_string(marks, '');
end
$$;

-- Clause 2.5. The customer of (cw, cd) is found by last name (its number), or by c where that is -1:
-- pgbench has no null to hand over.
create procedure payment(
    w integer, d integer, cw integer, cd integer, c integer, name integer, cents integer,
    inout balance numeric default null)
language plpgsql as $$
declare
    amount numeric(6,2) := cents / 100.0;
    customer_id integer := c;
    warehouse_name text;
    district_name text;
begin
    if name >= 0 then
        customer_id := tpcc_customer_by_name(cw, cd, tpcc_last_name(name));
    end if;
    update customer set
        c_balance = c_balance - amount,
        c_ytd_payment = c_ytd_payment + amount,
        c_payment_cnt = c_payment_cnt + 1,
        c_data = case c_credit when 'BC'
            then left(concat_ws(' ', c_id, c_d_id, c_w_id, d, w, amount, c_data), 500) else c_data end
    where c_w_id = cw and c_d_id = cd and c_id = customer_id
    returning c_balance into strict balance;
    update warehouse set w_ytd = w_ytd + amount where w_id = w returning w_name into strict warehouse_name;
    update district set d_ytd = d_ytd + amount where d_w_id = w and d_id = d
        returning d_name into strict district_name;
    insert into history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data)
        values (customer_id, cd, cw, d, w, localtimestamp, amount,
            warehouse_name || '    ' || district_name);
end
$$;

-- Clause 2.6: a customer's newest order, line by line; the customer as in Payment.
create function order_status(w integer, d integer, c integer, name integer)
returns table (customer_id integer, balance numeric, order_id integer, entered timestamp, carrier integer,
    item integer, supply integer, quantity integer, amount numeric, delivered timestamp)
language plpgsql stable as $$
begin
    customer_id := c;
    if name >= 0 then
        customer_id := tpcc_customer_by_name(w, d, tpcc_last_name(name));
    end if;
    select c_balance into strict balance from customer
        where c_w_id = w and c_d_id = d and c_id = customer_id;
    select o_id, o_entry_d, o_carrier_id into strict order_id, entered, carrier from orders
        where o_w_id = w and o_d_id = d and o_c_id = customer_id order by o_id desc limit 1;
    for item, supply, quantity, amount, delivered in
        select ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d from order_line
        where ol_w_id = w and ol_d_id = d and ol_o_id = order_id
    loop
        return next;
    end loop;
end
$$;

-- Clause 2.7: the oldest new order of each district is delivered. A district without one is left out.
create procedure delivery(w integer, new_carrier integer, inout orders_delivered integer default null)
language plpgsql as $$
declare
    oldest integer;
    customer_id integer;
    total numeric;
begin
    orders_delivered := 0;
    for d in 1..10 loop
        -- Waits for another delivery of this district, rather than SKIP LOCKED: were that one lost, a newer
        -- order would have gone before an older one, which condition 3 forbids.
        select no_o_id into oldest from new_order where no_w_id = w and no_d_id = d
            order by no_o_id limit 1 for update;
        continue when not found;
        delete from new_order where no_w_id = w and no_d_id = d and no_o_id = oldest;
        update orders set o_carrier_id = new_carrier where o_w_id = w and o_d_id = d and o_id = oldest
            returning o_c_id into strict customer_id;
        with delivered as (
            update order_line set ol_delivery_d = localtimestamp
            where ol_w_id = w and ol_d_id = d and ol_o_id = oldest returning ol_amount)
        select sum(ol_amount) into strict total from delivered;
        update customer set c_balance = c_balance + total, c_delivery_cnt = c_delivery_cnt + 1
            where c_w_id = w and c_d_id = d and c_id = customer_id;
        orders_delivered := orders_delivered + 1;
    end loop;
end
$$;

-- Clause 2.8: how many items of a district's last 20 orders are below the threshold.
create function stock_level(w integer, d integer, threshold integer) returns bigint
language plpgsql stable as $$
declare
    next_order integer;
    low bigint;
begin
    select d_next_o_id into strict next_order from district where d_w_id = w and d_id = d;
    select count(distinct s_i_id) into low
        from order_line join stock on s_w_id = w and s_i_id = ol_i_id
        where ol_w_id = w and ol_d_id = d and ol_o_id >= next_order - 20 and ol_o_id < next_order
            and s_quantity < threshold;
    return low;
end
$$;
