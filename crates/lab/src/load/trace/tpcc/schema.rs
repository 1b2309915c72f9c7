// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the rows of TPC-C's tables and the leaves of their indexes lie.
//!
//! Rows have the lengths that the standard calls typical (clause 4.2.2) and the overhead of
//! PostgreSQL, with which FaCE was measured: 28 bytes a row, 24 a page; an index entry is 12 bytes
//! and its key, leaves are filled to 90 %. That makes some 105 MB a warehouse with pages of 4 KiB
//! and so 52 GB of the paper's 500, where it states "approximately 57 GB including indexes and other
//! data files" (section 6.2).
//!
//! What is loaded lies table by table. What grows gets extents of 1 MiB behind all of that, in the
//! order in which they are needed.
//!
//! Why no inner pages of indexes: they are a hundredth of the leaves, and in any pool always.

/// Districts of a warehouse.
pub const DISTRICTS: u32 = 10;
/// Customers of a district, and orders with which it is loaded.
pub const CUSTOMERS: u32 = 3_000;
/// Items, and so rows of stock of a warehouse.
pub const ITEMS: u32 = 100_000;
/// Lines of an order, in the mean.
pub const LINES: u64 = 10;
/// The first order of a district that is loaded as not yet delivered.
pub const UNDELIVERED_FROM: u32 = 2_100;

const EXTENT_BYTES: u64 = 1 << 20;
const ROW_OVERHEAD: u64 = 28;
const PAGE_OVERHEAD: u64 = 24;
const ENTRY_OVERHEAD: u64 = 12;
const LEAF_OVERHEAD: u64 = 40;

/// The end of what is in use.
#[derive(Debug)]
pub struct Space {
    /// The first free page.
    pub end: u64,
    extent_pages: u64,
}

/// Rows of a table, or entries of an index, in page after page.
#[derive(Debug)]
pub struct Table {
    per_page: u64,
    first: u64,
    loaded: u64,
    /// Pages that were loaded or made, of a table to which rows are appended.
    made: u64,
    /// The first page of each extent behind what was loaded.
    extents: Vec<u64>,
}

impl Table {
    /// The page of a row that was loaded.
    pub fn of(&self, row: u64) -> u64 {
        self.first + row / self.per_page
    }

    /// The pages of rows that are there, `count` of them from one on.
    pub fn rows(&mut self, row: u64, count: u64, space: &mut Space) -> Vec<u64> {
        let pages = row / self.per_page..=(row + count - 1) / self.per_page;
        pages.map(|page| self.place(page, space)).collect()
    }

    /// The page to which a row is added, and whether the row makes it.
    pub fn append(&mut self, row: u64, space: &mut Space) -> (u64, bool) {
        let page = row / self.per_page;
        let makes = page >= self.made;
        self.made = self.made.max(page + 1);
        (self.place(page, space), makes)
    }

    /// The place of the table's page of this number; if there is none yet, in a new extent.
    fn place(&mut self, page: u64, space: &mut Space) -> u64 {
        let Some(behind) = page.checked_sub(self.loaded) else { return self.first + page };
        let (extent, within) = (behind / space.extent_pages, behind % space.extent_pages);
        while self.extents.len() as u64 <= extent {
            self.extents.push(space.end);
            space.end += space.extent_pages;
        }
        self.extents[extent as usize] + within
    }
}

/// An index by district and order: each district fills leaves of its own.
#[derive(Debug)]
pub struct OrderIndex {
    table: Table,
    districts: u64,
    /// Entries of an order.
    entries: u64,
    /// Leaves with which each district is loaded.
    leaves: u64,
}

impl OrderIndex {
    /// The leaf of a district's order, and whether the order is the first on it. Loaded leaves lie
    /// district by district; of later ones, all districts' first lie side by side, then all
    /// second, since districts fill theirs at one pace.
    pub fn leaf(&mut self, district: u64, order: u64, space: &mut Space) -> (u64, bool) {
        let leaf_of = |order: u64| order * self.entries / self.table.per_page;
        let leaf = leaf_of(order);
        let first = order > 0 && leaf_of(order - 1) < leaf;
        let page = if leaf < self.leaves {
            district * self.leaves + leaf
        } else {
            leaf * self.districts + district
        };
        (self.table.place(page, space), first)
    }
}

/// All of them.
#[derive(Debug)]
pub struct Schema {
    pub space: Space,
    pub warehouse: Table,
    pub district: Table,
    pub customer: Table,
    pub customer_key: Table,
    pub customer_name: Table,
    pub item: Table,
    pub item_key: Table,
    pub stock: Table,
    pub stock_key: Table,
    pub order: Table,
    pub order_key: OrderIndex,
    pub order_of_customer: Table,
    pub line: Table,
    pub line_key: OrderIndex,
    pub new_order: Table,
    pub new_order_key: OrderIndex,
    pub history: Table,
}

impl Schema {
    /// As loaded, for so many warehouses in pages of so many bytes.
    pub fn new(warehouses: u32, page_bytes: u64) -> Self {
        let mut space = Space { end: 0, extent_pages: (EXTENT_BYTES / page_bytes).max(1) };
        let mut table = |rows: u64, per_page: u64| {
            let (first, loaded) = (space.end, rows.div_ceil(per_page));
            space.end += loaded;
            Table { per_page, first, loaded, made: loaded, extents: Vec::new() }
        };
        let rows = |bytes: u64| ((page_bytes - PAGE_OVERHEAD) / (bytes + ROW_OVERHEAD)).max(1);
        let entries =
            |key: u64| ((page_bytes - LEAF_OVERHEAD) * 9 / 10 / (key + ENTRY_OVERHEAD)).max(1);
        let warehouses = u64::from(warehouses);
        let districts = warehouses * u64::from(DISTRICTS);
        let customers = districts * u64::from(CUSTOMERS);
        let stock = warehouses * u64::from(ITEMS);
        let mut by_order = |per_order: u64| {
            let per_page = entries(16);
            let leaves = (u64::from(CUSTOMERS) * per_order).div_ceil(per_page);
            let table = table(districts * leaves * per_page, per_page);
            OrderIndex { table, districts, entries: per_order, leaves }
        };
        let order_key = by_order(1);
        let line_key = by_order(LINES);
        let new_order_key = by_order(1);
        Self {
            order_key,
            line_key,
            new_order_key,
            warehouse: table(warehouses, rows(89)),
            district: table(districts, rows(95)),
            customer: table(customers, rows(655)),
            customer_key: table(customers, entries(16)),
            customer_name: table(customers, entries(48)),
            item: table(u64::from(ITEMS), rows(82)),
            item_key: table(u64::from(ITEMS), entries(8)),
            stock: table(stock, rows(306)),
            stock_key: table(stock, entries(8)),
            order: table(customers, rows(24)),
            order_of_customer: table(customers, entries(16)),
            line: table(customers * LINES, rows(54)),
            new_order: table(districts * 900, rows(8)),
            history: table(customers, rows(46)),
            space,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warehouse_has_the_size_that_the_module_names_and_tables_do_not_overlap() {
        let schema = Schema::new(500, 4096);
        let bytes = schema.space.end * 4096;
        assert!((52_000_000_000..53_000_000_000).contains(&bytes), "{bytes}");
        let last_stock = schema.stock.of(500 * u64::from(ITEMS) - 1);
        assert!(schema.stock.of(0) < last_stock && last_stock < schema.stock_key.of(0));
        assert_eq!(schema.customer.of(4) + 1, schema.customer.of(5));
    }

    #[test]
    fn what_grows_gets_extents_behind_all_of_it() {
        let mut schema = Schema::new(1, 4096);
        let loaded = schema.space.end;
        let pages = schema.history.loaded;
        let space = &mut schema.space;
        assert_eq!(schema.history.place(pages - 1, space), schema.history.first + pages - 1);
        assert_eq!(schema.history.place(pages, space), loaded);
        assert_eq!(schema.line.place(schema.line.loaded, space), loaded + 256);
        assert_eq!(schema.history.place(pages + 255, space), loaded + 255);
        assert_eq!(schema.history.place(pages + 256, space), loaded + 512);
        assert_eq!(schema.history.place(pages, space), loaded);
    }

    #[test]
    fn districts_fill_leaves_of_their_own() {
        let mut schema = Schema::new(2, 4096);
        let (space, key) = (&mut schema.space, &mut schema.line_key);
        let mut seen = std::collections::HashSet::new();
        for district in 0..20 {
            let mut last = None;
            for order in 0..4_000 {
                let (page, first) = key.leaf(district, order, space);
                assert_eq!(first, last.is_some_and(|last| last != page));
                assert!(last == Some(page) || seen.insert(page), "a page has two owners");
                last = Some(page);
            }
        }
    }
}
