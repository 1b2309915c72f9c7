// SPDX-License-Identifier: MIT OR Apache-2.0
//! TPC-C's five transactions as accesses to pages, in the order in which they are made.
//!
//! Clause numbers are those of the standard, revision 5.11. What an order contains is drawn from
//! its number, so that a transaction that comes back to it (Delivery, Order-Status, Stock-Level) finds what
//! New-Order put there, and nothing needs to be remembered of it.
//!
//! Invariant: memory is 4 bytes an undelivered order (900 a district when loaded; the mix places
//! 45 and delivers 40 of 100 transactions, so the standard's own table grows) and 16 for each
//! customer who ordered.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use hashbrown::HashMap;
use larder_model::SplitMix64;

use super::super::super::chance;
use super::pool::How;
use super::schema::{CUSTOMERS, DISTRICTS, ITEMS, LINES, Schema, UNDELIVERED_FROM};

/// An access to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub page: u64,
    pub how: How,
}

/// The transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

/// Percent of each (5.2.3; New-Order is what the others leave).
const MIX: [(Kind, u64); 5] = [
    (Kind::NewOrder, 45),
    (Kind::Payment, 43),
    (Kind::OrderStatus, 4),
    (Kind::Delivery, 4),
    (Kind::StockLevel, 4),
];

/// A number whose product with itself is 1 modulo [`CUSTOMERS`]: whose order each loaded one is.
const OWNER: u64 = 1_249;

struct District {
    /// The number of its next order.
    next: u32,
    /// The numbers over all districts of its orders that are not delivered, the oldest first.
    undelivered: VecDeque<u32>,
}

/// An order, by its number over all districts and by that within its district.
#[derive(Clone, Copy)]
struct Order {
    serial: u32,
    number: u32,
}

struct Contents {
    customer: u32,
    /// Item and supplying warehouse.
    lines: Vec<(u32, u32)>,
}

/// The company, see the module.
pub struct Business {
    pub schema: Schema,
    warehouses: u32,
    districts: Vec<District>,
    /// The last order of each customer who ordered since the load.
    last_orders: HashMap<u32, Order>,
    orders: u32,
    payments: u64,
    random: SplitMix64,
    seed: u64,
    /// NURand's C for items, customers and last names.
    constants: [u64; 3],
    accesses: VecDeque<Access>,
}

impl Business {
    /// As loaded.
    pub fn new(warehouses: u32, page_bytes: u64, seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let constants = [8_192, 1_024, 256].map(|bound| random.below(bound));
        let district = |district: u32| District {
            next: CUSTOMERS,
            undelivered: (UNDELIVERED_FROM..CUSTOMERS).map(|n| district * CUSTOMERS + n).collect(),
        };
        let districts = warehouses * DISTRICTS;
        Self {
            schema: Schema::new(warehouses, page_bytes),
            warehouses,
            districts: (0..districts).map(district).collect(),
            last_orders: HashMap::new(),
            orders: districts * CUSTOMERS,
            payments: u64::from(districts * CUSTOMERS),
            seed: random.next_u64(),
            random,
            constants,
            accesses: VecDeque::new(),
        }
    }

    /// Whether there are as many orders as can be numbered.
    pub fn is_full(&self) -> bool {
        self.orders == u32::MAX
    }

    /// The accesses of the next transaction.
    pub fn transaction(&mut self) -> (Kind, VecDeque<Access>) {
        let mut point = self.random.below(100);
        let found = MIX.iter().find(|(_, share)| {
            let here = point < *share;
            point = point.saturating_sub(*share);
            here
        });
        let kind = found.map_or(Kind::NewOrder, |(kind, _)| *kind);
        // Terminals are spread over all warehouses.
        let warehouse = self.random.below(u64::from(self.warehouses)) as u32;
        let district = warehouse * DISTRICTS + self.random.below(u64::from(DISTRICTS)) as u32;
        match kind {
            Kind::NewOrder => self.new_order(district),
            Kind::Payment => self.payment(district),
            Kind::OrderStatus => self.order_status(district),
            Kind::Delivery => self.delivery(warehouse),
            Kind::StockLevel => self.stock_level(district),
        }
        (kind, std::mem::take(&mut self.accesses))
    }

    fn touch(&mut self, page: u64, how: How) {
        self.accesses.push_back(Access { page, how });
    }

    /// 2.4.2.
    fn new_order(&mut self, district: u32) {
        let warehouse = district / DISTRICTS;
        let order = Order { serial: self.orders, number: self.district(district).next };
        self.orders = self.orders.saturating_add(1);
        let contents = self.contents(district, order);
        self.touch(self.schema.warehouse.of(warehouse.into()), How::Read);
        self.touch(self.schema.district.of(district.into()), How::Change);
        self.customer(district * CUSTOMERS + contents.customer, How::Read);
        self.place_order(district, order, contents.customer);
        for (line, (item, supplier)) in contents.lines.into_iter().enumerate() {
            self.touch(self.schema.item_key.of(item.into()), How::Read);
            self.touch(self.schema.item.of(item.into()), How::Read);
            self.stock(supplier, item, How::Change);
            // Its lines begin at ten times its number, so that their place need not be remembered.
            // Where it has more, the next one's share their rows, which pages do not show.
            let row = u64::from(order.serial) * LINES + line as u64;
            let made = self.schema.line.append(row, &mut self.schema.space);
            self.make(made);
        }
        let at = self.district(district);
        at.next += 1;
        at.undelivered.push_back(order.serial);
        self.last_orders.insert(district * CUSTOMERS + contents.customer, order);
    }

    /// The rows of an order without its lines, and all of its index entries.
    fn place_order(&mut self, district: u32, order: Order, customer: u32) {
        let row = self.new_order_row(district, order);
        let Schema { space, order: table, new_order, .. } = &mut self.schema;
        let rows = [table.append(order.serial.into(), space), new_order.append(row, space)];
        let leaves = [Schema::order_key, Schema::new_order_key, Schema::line_key]
            .map(|leaf| leaf(&mut self.schema, district, order.number));
        rows.into_iter().chain(leaves).for_each(|made| self.make(made));
        let customer = district * CUSTOMERS + customer;
        self.touch(self.schema.order_of_customer.of(customer.into()), How::Change);
    }

    /// Of the loaded orders, the last 900 of each district alone are new ones.
    fn new_order_row(&self, district: u32, order: Order) -> u64 {
        let new = CUSTOMERS - UNDELIVERED_FROM;
        let districts = self.districts.len() as u32;
        u64::from(match order.serial.checked_sub(districts * CUSTOMERS) {
            None => district * new + order.number - UNDELIVERED_FROM,
            Some(later) => districts * new + later,
        })
    }

    /// A row or entry is added to a page, which it may be the first to be on.
    fn make(&mut self, (page, makes): (u64, bool)) {
        self.touch(page, if makes { How::Make } else { How::Change });
    }

    /// 2.5.2: by last name in 60 of 100 cases, of another warehouse in 15.
    fn payment(&mut self, district: u32) {
        let mut of = district;
        if self.warehouses > 1 && chance(&mut self.random, 0.15) {
            let others = u64::from(self.warehouses - 1);
            let away = 1 + self.random.below(others) as u32;
            let warehouse = (district / DISTRICTS + away) % self.warehouses;
            of = warehouse * DISTRICTS + self.random.below(u64::from(DISTRICTS)) as u32;
        }
        self.touch(self.schema.warehouse.of((district / DISTRICTS).into()), How::Change);
        self.touch(self.schema.district.of(district.into()), How::Change);
        self.somebody(of, How::Change);
        let made = self.schema.history.append(self.payments, &mut self.schema.space);
        self.make(made);
        self.payments += 1;
    }

    /// 2.6.2: a customer's last order and its lines.
    fn order_status(&mut self, district: u32) {
        let customer = self.somebody(district, How::Read);
        let loaded = || {
            let owner = u64::from(customer % CUSTOMERS + CUSTOMERS - district % CUSTOMERS);
            let number = (owner * OWNER % u64::from(CUSTOMERS)) as u32;
            Order { serial: district * CUSTOMERS + number, number }
        };
        let order = self.last_orders.get(&customer).copied().unwrap_or_else(loaded);
        self.touch(self.schema.order_of_customer.of(customer.into()), How::Read);
        self.order(order, How::Read);
        self.lines(district, order, How::Read);
    }

    /// 2.7.4: the oldest undelivered order of each of the ten districts.
    fn delivery(&mut self, warehouse: u32) {
        for district in warehouse * DISTRICTS..(warehouse + 1) * DISTRICTS {
            let at = self.district(district);
            let number = at.next - at.undelivered.len() as u32;
            let Some(serial) = at.undelivered.pop_front() else { continue };
            let order = Order { serial, number };
            let customer = self.contents(district, order).customer;
            let (page, _) = self.schema.new_order_key(district, number);
            self.touch(page, How::Change);
            let row = self.new_order_row(district, order);
            let pages = self.schema.new_order.rows(row, 1, &mut self.schema.space);
            pages.into_iter().for_each(|page| self.touch(page, How::Change));
            let (page, _) = self.schema.order_key(district, number);
            self.touch(page, How::Read);
            self.order(order, How::Change);
            self.lines(district, order, How::Change);
            self.customer(district * CUSTOMERS + customer, How::Change);
        }
    }

    /// 2.8.2: the stock of what the last twenty orders contain.
    fn stock_level(&mut self, district: u32) {
        self.touch(self.schema.district.of(district.into()), How::Read);
        let at = self.district(district);
        // There are more than twenty that are undelivered, see the module.
        let last = at.undelivered.iter().rev().take(20).enumerate();
        let orders: Vec<Order> = last
            .map(|(back, serial)| Order { serial: *serial, number: at.next - 1 - back as u32 })
            .collect();
        let mut items = Vec::new();
        for order in orders.into_iter().rev() {
            self.lines(district, order, How::Read);
            items.extend(self.contents(district, order).lines.into_iter().map(|(item, _)| item));
        }
        items.sort_unstable();
        items.dedup();
        items.into_iter().for_each(|item| self.stock(district / DISTRICTS, item, How::Read));
    }

    /// A customer by number or by last name: three have the same, and the middle one is meant
    /// (2.5.1.2). Which one it is.
    fn somebody(&mut self, district: u32, how: How) -> u32 {
        let base = district * CUSTOMERS;
        if !chance(&mut self.random, 0.6) {
            let draw = nurand(&mut self.random, 1_023, 1..=CUSTOMERS.into(), self.constants[1]);
            self.customer(base + draw as u32, how);
            return base + draw as u32;
        }
        let name = nurand(&mut self.random, 255, 0..=999, self.constants[2]);
        // The first thousand have each name once (4.3.3.1); of the others, two more have it.
        let other = |n: u64| 1_000 + (name * 2 + n) * OWNER % 2_000;
        let meant = base + other(0) as u32;
        self.touch(self.schema.customer_name.of(u64::from(base) + name * 3), How::Read);
        for (customer, how) in [(name, How::Read), (other(0), how), (other(1), How::Read)] {
            self.touch(self.schema.customer.of(u64::from(base) + customer), how);
        }
        meant
    }

    fn customer(&mut self, customer: u32, how: How) {
        self.touch(self.schema.customer_key.of(customer.into()), How::Read);
        self.touch(self.schema.customer.of(customer.into()), how);
    }

    fn stock(&mut self, warehouse: u32, item: u32, how: How) {
        let row = u64::from(warehouse) * u64::from(ITEMS) + u64::from(item);
        self.touch(self.schema.stock_key.of(row), How::Read);
        self.touch(self.schema.stock.of(row), how);
    }

    fn order(&mut self, order: Order, how: How) {
        let pages = self.schema.order.rows(order.serial.into(), 1, &mut self.schema.space);
        pages.into_iter().for_each(|page| self.touch(page, how));
    }

    /// All lines of an order.
    fn lines(&mut self, district: u32, order: Order, how: How) {
        let (leaf, _) = self.schema.line_key(district, order.number);
        self.touch(leaf, How::Read);
        let lines = self.contents(district, order).lines.len() as u64;
        let row = u64::from(order.serial) * LINES;
        let pages = self.schema.line.rows(row, lines, &mut self.schema.space);
        pages.into_iter().for_each(|page| self.touch(page, how));
    }

    /// What an order is of, drawn from its number: 2.4.1, or 4.3.3.1 of a loaded one.
    fn contents(&self, district: u32, order: Order) -> Contents {
        let mut random = SplitMix64::new(self.seed ^ u64::from(order.serial));
        let mut random = SplitMix64::new(random.next_u64());
        let home = district / DISTRICTS;
        let loaded = order.number < CUSTOMERS;
        let customer = if loaded {
            (u64::from(order.number) * OWNER + u64::from(district)) % u64::from(CUSTOMERS)
        } else {
            nurand(&mut random, 1_023, 1..=CUSTOMERS.into(), self.constants[1])
        };
        let count = 5 + random.below(11);
        let lines = (0..count).map(|_| {
            if loaded {
                return (random.below(ITEMS.into()) as u32, home);
            }
            let item = nurand(&mut random, 8_191, 1..=ITEMS.into(), self.constants[0]) as u32;
            let away = self.warehouses > 1 && chance(&mut random, 0.01);
            let step = 1 + random.below(u64::from(self.warehouses).saturating_sub(1)) as u32;
            (item, if away { (home + step) % self.warehouses } else { home })
        });
        Contents { customer: customer as u32, lines: lines.collect() }
    }

    fn district(&mut self, district: u32) -> &mut District {
        &mut self.districts[district as usize]
    }
}

impl Schema {
    fn order_key(&mut self, district: u32, number: u32) -> (u64, bool) {
        self.order_key.leaf(district.into(), number.into(), &mut self.space)
    }

    fn new_order_key(&mut self, district: u32, number: u32) -> (u64, bool) {
        self.new_order_key.leaf(district.into(), number.into(), &mut self.space)
    }

    fn line_key(&mut self, district: u32, number: u32) -> (u64, bool) {
        self.line_key.leaf(district.into(), number.into(), &mut self.space)
    }
}

/// The standard's uneven law (2.1.6) over `range`, in numbers from zero on: `a` is its A, a power
/// of two less one, and `c` its C.
fn nurand(random: &mut SplitMix64, a: u64, range: RangeInclusive<u64>, c: u64) -> u64 {
    let count = range.end() - range.start() + 1;
    let uneven = random.below(a + 1) | (range.start() + random.below(count));
    (uneven + c) % count
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap as Map;

    use super::*;

    #[test]
    fn the_mix_is_the_standards_and_accesses_stay_in_the_database() {
        let mut business = Business::new(2, 4096, 3);
        let mut counts = Map::<&str, (f64, f64)>::new();
        for _ in 0..50_000 {
            let (kind, accesses) = business.transaction();
            assert!(accesses.iter().all(|a| a.page < business.schema.space.end));
            let name = match kind {
                Kind::NewOrder => "new",
                Kind::Payment => "pay",
                Kind::OrderStatus => "status",
                Kind::Delivery => "deliver",
                Kind::StockLevel => "level",
            };
            let count = counts.entry(name).or_default();
            *count = (count.0 + 1.0, count.1 + accesses.len() as f64);
        }
        for (name, share, accesses) in [
            ("new", 0.45, 60.5),
            ("pay", 0.43, 6.2),
            ("status", 0.04, 7.2),
            ("deliver", 0.04, 82.0),
            ("level", 0.04, 440.0),
        ] {
            let (count, sum) = counts[name];
            assert!((count / 50_000.0 - share).abs() < 0.005, "{name} {count}");
            assert!((sum / count / accesses - 1.0).abs() < 0.05, "{name}: {}", sum / count);
        }
    }

    #[test]
    fn every_order_is_found_again_by_its_customer_and_its_delivery() {
        let mut business = Business::new(1, 4096, 3);
        // Each loaded order is of another customer of its district.
        for district in 0..10 {
            let of = |number| Order { serial: district * CUSTOMERS + number, number };
            let mut owners: Vec<u32> = (0..CUSTOMERS)
                .map(|number| {
                    let customer = business.contents(district, of(number)).customer;
                    let owner = u64::from(customer + CUSTOMERS - district);
                    assert_eq!(owner * OWNER % 3_000, u64::from(number));
                    customer
                })
                .collect();
            owners.sort_unstable();
            assert!(owners.into_iter().eq(0..CUSTOMERS));
        }
        business.new_order(4);
        let (customer, order) = business.last_orders.iter().map(|(c, o)| (*c, *o)).next().unwrap();
        assert_eq!(business.contents(4, order).customer, customer - 4 * CUSTOMERS);
        assert_eq!((order.serial, order.number), (30_000, 3_000));
        for _ in 0..900 {
            business.delivery(0);
        }
        let left = |n: usize| business.districts[n].undelivered.clone();
        assert_eq!((left(3), left(4)), (VecDeque::new(), VecDeque::from([30_000])));
    }

    #[test]
    fn pages_are_made_once_and_before_they_are_looked_at() {
        let mut business = Business::new(1, 4096, 5);
        let loaded = business.schema.space.end;
        let mut there = std::collections::HashSet::new();
        for _ in 0..30_000 {
            for Access { page, how } in business.transaction().1 {
                if how == How::Make {
                    assert!(there.insert(page), "page {page} is made twice");
                } else if page >= loaded {
                    assert!(there.contains(&page), "page {page} is not there yet");
                }
            }
        }
        assert!(there.len() > 1_000);
    }

    /// 84 % of the accesses go to 20 % of the rows of stock (Leutenegger and Dias, SIGMOD 1993).
    #[test]
    fn nurand_is_as_skewed_as_is_known() {
        let mut random = SplitMix64::new(1);
        let mut counts = vec![0_u32; ITEMS as usize];
        let mut draw = || nurand(&mut random, 8_191, 1..=ITEMS.into(), 77);
        (0..5_000_000).for_each(|_| counts[draw() as usize] += 1);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let top: u32 = counts[..ITEMS as usize / 5].iter().sum();
        assert!((f64::from(top) / 5e6 - 0.84).abs() < 0.02, "{top}");
    }
}
