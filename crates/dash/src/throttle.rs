//! Counts wrong passwords for each address, so that nobody can try many. Knows no HTTP.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::options::LOGIN_FAILURES_MAX;

/// The time in which [`LOGIN_FAILURES_MAX`] wrong passwords block an address.
const WINDOW: Duration = Duration::from_secs(60);
/// Maximum number of addresses to remember. If there are more, the oldest failure of all is forgotten.
const ADDRESSES_MAX: usize = 4096;

/// The recent failures of each address.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    failures: Mutex<HashMap<IpAddr, Vec<Instant>>>,
}

impl Throttle {
    /// Whether the address has sent too many wrong passwords in the last minute.
    pub(crate) fn is_blocked(&self, address: IpAddr, now: Instant) -> bool {
        let mut failures = self.failures.lock();
        let Some(recent) = failures.get_mut(&network(address)) else { return false };
        recent.retain(|at| now.duration_since(*at) < WINDOW);
        recent.len() >= LOGIN_FAILURES_MAX
    }

    /// Counts a wrong password.
    pub(crate) fn failed(&self, address: IpAddr, now: Instant) {
        let mut failures = self.failures.lock();
        if failures.len() >= ADDRESSES_MAX {
            failures.retain(|_, recent| recent.last().is_some_and(|at| now.duration_since(*at) < WINDOW));
        }
        if failures.len() >= ADDRESSES_MAX {
            let oldest =
                failures.iter().min_by_key(|(_, recent)| recent.last().copied()).map(|(key, _)| *key);
            oldest.map(|key| failures.remove(&key));
        }
        let recent = failures.entry(network(address)).or_default();
        recent.retain(|at| now.duration_since(*at) < WINDOW);
        recent.push(now);
    }
}

/// Returns the address, or the network of an IPv6 address: one machine can have all addresses of its /64.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => IpAddr::V4(address),
            None => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_blocked_after_five_failures_in_a_minute() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let (address, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        for _ in 0..LOGIN_FAILURES_MAX {
            assert!(!throttle.is_blocked(address, now));
            throttle.failed(address, now);
        }
        assert!(throttle.is_blocked(address, now));
        assert!(!throttle.is_blocked(other, now));
        assert!(!throttle.is_blocked(address, now + WINDOW));
    }

    #[test]
    fn the_addresses_of_an_ipv6_network_count_as_one() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        for last in 0..LOGIN_FAILURES_MAX {
            throttle.failed(format!("2001:db8::{last}").parse().unwrap(), now);
        }
        assert!(throttle.is_blocked("2001:db8::ffff".parse().unwrap(), now));
        assert!(!throttle.is_blocked("2001:db8:0:1::1".parse().unwrap(), now));
    }

    #[test]
    fn the_number_of_addresses_is_limited() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        for number in 0..=ADDRESSES_MAX as u32 {
            throttle.failed(IpAddr::from(number.to_be_bytes()), now);
        }
        assert_eq!(throttle.failures.lock().len(), ADDRESSES_MAX);
    }
}
