// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reuse distances (Olken): how many other pages were accessed since the last access to this one. The smallest LRU
//! cache in which the access hits has one page more.
//!
//! Each page has the position of its last access. A Fenwick tree over positions counts the pages after a position in
//! logarithmic time. When the positions are used up, gaps are removed.

use hashbrown::HashMap;

/// Memory of a page at worst: its table entry, its position, two to four slots and tree nodes, its window, and a count
/// of distances.
pub(super) const BYTES_PER_PAGE: u64 = 112;

const NO_PAGE: u32 = u32::MAX;
const LEAST_POSITIONS: usize = 1 << 12;

/// The pages accessed so far, by last access.
#[derive(Default)]
pub(super) struct Distances {
    ids: HashMap<u64, u32>,
    /// The position of each page.
    position: Vec<u32>,
    /// The page at each position; shorter than the tree.
    at: Vec<u32>,
    /// Fenwick tree: node `n` (from 1) counts the pages at the last `n & -n` positions up to it.
    tree: Vec<u32>,
}

impl Distances {
    pub(super) fn pages(&self) -> u64 {
        self.position.len() as u64
    }

    /// The number of a page, and how many other pages were accessed since its last access; `None` at its first access.
    pub(super) fn access(&mut self, page: u64) -> (u32, Option<u32>) {
        if self.at.len() + 1 >= self.tree.len() {
            self.compact();
        }
        let next = self.position.len() as u32;
        let id = *self.ids.entry(page).or_insert(next);
        let mut distance = None;
        if id == next {
            self.position.push(NO_PAGE);
        } else {
            let before = self.position[id as usize];
            distance = Some(self.pages() as u32 - self.up_to(before));
            self.at[before as usize] = NO_PAGE;
            self.change(before, u32::wrapping_sub);
        }
        self.position[id as usize] = self.at.len() as u32;
        self.at.push(id);
        self.change(self.position[id as usize], u32::wrapping_add);
        (id, distance)
    }

    /// Pages at positions up to this one.
    fn up_to(&self, position: u32) -> u32 {
        let (mut node, mut sum) = (position as usize + 1, 0);
        while node > 0 {
            sum += self.tree[node];
            node &= node - 1;
        }
        sum
    }

    fn change(&mut self, position: u32, by_one: impl Fn(u32, u32) -> u32) {
        let mut node = position as usize + 1;
        while node < self.tree.len() {
            self.tree[node] = by_one(self.tree[node], 1);
            node += node & node.wrapping_neg();
        }
    }

    /// Removes gaps between positions and makes room for as many new ones as there are pages.
    fn compact(&mut self) {
        self.at.retain(|id| *id != NO_PAGE);
        for (position, id) in self.at.iter().enumerate() {
            self.position[*id as usize] = position as u32;
        }
        let nodes = (2 * self.at.len()).max(LEAST_POSITIONS) + 2;
        self.tree.clear();
        self.tree.resize(nodes, 0);
        for node in 1..nodes {
            self.tree[node] += u32::from(node <= self.at.len());
            let parent = node + (node & node.wrapping_neg());
            if parent < nodes {
                self.tree[parent] += self.tree[node];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_equal_those_of_a_linear_search() {
        let (mut distances, mut list) = (Distances::default(), Vec::<u64>::new());
        let mut seed = 1_u64;
        for n in 0..30_000_u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let page = ((seed >> 33) % 300).min((seed >> 40) % 300) + n / 3000 * 100;
            let place = list.iter().rev().position(|p| *p == page);
            if let Some(place) = place {
                list.remove(list.len() - 1 - place);
            }
            list.push(page);
            assert_eq!(distances.access(page).1, place.map(|p| p as u32));
        }
    }
}
