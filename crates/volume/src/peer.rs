// SPDX-License-Identifier: MIT OR Apache-2.0
//! A peer: the clients whose connections and memory one limit counts together.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// Connections of one peer that a volume serves at a time, by default.
pub const MOST_CONNECTIONS: usize = 64;

/// Seats of a volume that are left for other peers, if one peer has at most `most_each`: a quarter as many, and at least one.
#[must_use]
pub const fn reserved(most_each: usize) -> usize {
    if most_each < 8 { 1 } else { most_each / 4 }
}

/// All seats of a volume.
#[must_use]
pub const fn seats(most_each: usize) -> usize {
    most_each + reserved(most_each)
}

/// Clients whose connections are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A user of this machine, on a unix socket.
    User(u32),
    /// An address on TCP. An IPv6 address is reduced to its network of 64 bits, because one machine may use all of them.
    Address(IpAddr),
}

impl Peer {
    /// The peer of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(ip) => {
                let network = ip.to_bits() & !u128::from(u64::MAX);
                Self::Address(IpAddr::V6(if ip.is_loopback() {
                    ip
                } else {
                    Ipv6Addr::from_bits(network)
                }))
            }
            ip @ IpAddr::V4(_) => Self::Address(ip),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "user {uid}"),
            Self::Address(IpAddr::V6(ip)) if !ip.is_loopback() => write!(f, "{ip}/64"),
            Self::Address(ip) => ip.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_network_are_one_peer() {
        let peer = |text: &str| Peer::of(text.parse().unwrap());
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::ffff:2"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        assert_eq!(peer("::ffff:192.0.2.1"), Peer::of(IpAddr::from([192, 0, 2, 1])));
        assert_eq!(peer("::1").to_string(), "::1");
        assert_eq!(peer("2001:db8::7").to_string(), "2001:db8::/64");
    }
}
