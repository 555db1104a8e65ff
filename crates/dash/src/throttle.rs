//! Limits how many passwords can be tried. Knows no HTTP.
//!
//! Many people can share an address, and a program with the right password must not suffer from somebody who types
//! wrong ones. So wrong passwords of one user slow down only attempts with that user, many wrong passwords of an
//! address slow down all attempts of that address, and neither applies to credentials that were right before.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ring::digest::{SHA256, digest};

use crate::options::{ADDRESS_FAILURES_MAX, LOGIN_FAILURES_MAX, LOGINS_WAITING_MAX, SLOW_LOGIN_DELAY};

/// The time in which failures are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// Maximum number of addresses, and of users at an address, whose failures are remembered. If there are more, the
/// oldest failure of all is forgotten.
const COUNTED_MAX: usize = 4096;
/// Maximum number of credentials that are remembered because they were right. If there are more, the oldest is
/// forgotten.
const KNOWN_MAX: usize = 1024;
/// Maximum number of addresses of which attempts wait for a turn. All waiting attempts together take half of the
/// requests that the dashboard handles at a time.
const WAITING_ADDRESSES_MAX: usize = 4;

/// The recent failures, and the credentials that were right.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    failures: Mutex<HashMap<Counted, Vec<Instant>>>,
    /// The last turn that an attempt of an address with too many wrong passwords has got, while it lies ahead.
    turns: Mutex<HashMap<IpAddr, Instant>>,
    /// When credentials were last right, by their digest.
    known: Mutex<HashMap<Digest, Instant>>,
}

type Digest = [u8; 32];

/// Whose failures are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Counted {
    Address(IpAddr),
    User(IpAddr, Digest),
}

/// An attempt to log in. It counts as a failure until it is over.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) pace: Pace,
    counted: [Counted; 2],
    credentials: Digest,
    at: Instant,
}

/// When the password of an attempt may be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// The credentials were right before: at once.
    Known,
    AtOnce,
    /// The user or the address has had too many wrong passwords: after a wait.
    Slow(Duration),
    /// The address has had too many wrong passwords, and too many attempts wait already: not now.
    Never,
}

impl Throttle {
    /// Begins an attempt to log in from this address.
    pub(crate) fn begin(&self, address: IpAddr, user: Option<&str>, password: &str, now: Instant) -> Attempt {
        let address = network(address);
        let user = user.unwrap_or_default();
        let counted = [Counted::Address(address), Counted::User(address, digest_of(&[user]))];
        let credentials = digest_of(&[user, password]);
        let pace = match self.known.lock().contains_key(&credentials) {
            true => Pace::Known,
            false => self.pace(address, counted, now),
        };
        Attempt { pace, counted, credentials, at: now }
    }

    /// Decides when a password may be checked, and counts a failure if it may.
    fn pace(&self, address: IpAddr, counted: [Counted; 2], now: Instant) -> Pace {
        let mut failures = self.failures.lock();
        let [of_address, of_user] = counted.map(|key| {
            let Some(recent) = failures.get_mut(&key) else { return 0 };
            recent.retain(|at| now.duration_since(*at) < WINDOW);
            recent.len()
        });
        let pace = if of_address >= ADDRESS_FAILURES_MAX {
            self.take_turn(address, now).map_or(Pace::Never, Pace::Slow)
        } else if of_user >= LOGIN_FAILURES_MAX {
            Pace::Slow(SLOW_LOGIN_DELAY)
        } else {
            Pace::AtOnce
        };
        if pace != Pace::Never {
            count(&mut failures, counted, now);
        }
        pace
    }

    /// Takes the next turn of an address and returns how long to wait for it. Returns `None` if too many wait already.
    fn take_turn(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let mut turns = self.turns.lock();
        turns.retain(|_, turn| *turn > now);
        let last = match turns.get(&address) {
            Some(turn) => *turn,
            None if turns.len() < WAITING_ADDRESSES_MAX => now,
            None => return None,
        };
        let turn = last + SLOW_LOGIN_DELAY;
        let wait = turn.duration_since(now);
        if wait > SLOW_LOGIN_DELAY * LOGINS_WAITING_MAX {
            return None;
        }
        turns.insert(address, turn);
        Some(wait)
    }

    /// Ends an attempt whose password was right.
    pub(crate) fn succeeded(&self, attempt: &Attempt, now: Instant) {
        self.withdraw(attempt);
        let mut known = self.known.lock();
        if known.len() >= KNOWN_MAX && !known.contains_key(&attempt.credentials) {
            let oldest = known.iter().min_by_key(|(_, at)| **at).map(|(key, _)| *key);
            oldest.map(|key| known.remove(&key));
        }
        known.insert(attempt.credentials, now);
    }

    /// Ends an attempt whose password was wrong.
    pub(crate) fn failed(&self, attempt: &Attempt) {
        if attempt.pace == Pace::Known {
            self.known.lock().remove(&attempt.credentials);
            count(&mut self.failures.lock(), attempt.counted, attempt.at);
        }
    }

    /// Ends an attempt whose password was not checked: it does not count.
    pub(crate) fn withdraw(&self, attempt: &Attempt) {
        let mut failures = self.failures.lock();
        for key in attempt.counted {
            let Some(recent) = failures.get_mut(&key) else { continue };
            if matches!(attempt.pace, Pace::AtOnce | Pace::Slow(_))
                && let Some(own) = recent.iter().position(|at| *at == attempt.at)
            {
                recent.swap_remove(own);
            }
        }
    }
}

fn count(failures: &mut HashMap<Counted, Vec<Instant>>, counted: [Counted; 2], now: Instant) {
    for key in counted {
        if failures.len() >= COUNTED_MAX && !failures.contains_key(&key) {
            make_room(failures, now);
        }
        failures.entry(key).or_default().push(now);
    }
}

/// Removes the counts without a recent failure. If that makes no room, removes the count whose last failure is oldest.
fn make_room(failures: &mut HashMap<Counted, Vec<Instant>>, now: Instant) {
    failures.retain(|_, recent| recent.last().is_some_and(|at| now.duration_since(*at) < WINDOW));
    if failures.len() >= COUNTED_MAX {
        let oldest = failures.iter().min_by_key(|(_, recent)| recent.last().copied()).map(|(key, _)| *key);
        oldest.map(|key| failures.remove(&key));
    }
}

/// Returns the digest of texts, so that the throttle keeps neither names nor passwords.
fn digest_of(texts: &[&str]) -> Digest {
    let mut digest_of_all = [0; 32];
    // The NUL byte cannot be in a header, and the length of the user decides where the password begins.
    let text = format!("{}\0{}", texts[0].len(), texts.join("\0"));
    digest_of_all.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    digest_of_all
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

    const SHARED: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    /// Enters a wrong password, and returns the pace.
    fn fail(throttle: &Throttle, address: IpAddr, user: &str, now: Instant) -> Pace {
        let attempt = throttle.begin(address, Some(user), "wrong", now);
        throttle.failed(&attempt);
        attempt.pace
    }

    #[test]
    fn wrong_passwords_of_a_user_slow_down_that_user_at_that_address_for_a_minute() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        for _ in 0..LOGIN_FAILURES_MAX {
            assert_eq!(fail(&throttle, SHARED, "nobody", now), Pace::AtOnce);
        }
        let pace = |address, user, now| fail(&throttle, address, user, now);
        assert_eq!(pace(SHARED, "nobody", now), Pace::Slow(SLOW_LOGIN_DELAY));
        assert_eq!(pace(SHARED, "alice", now), Pace::AtOnce);
        assert_eq!(pace(IpAddr::from([10, 0, 0, 2]), "nobody", now), Pace::AtOnce);
        assert_eq!(pace(SHARED, "nobody", now + WINDOW), Pace::AtOnce);
    }

    #[test]
    fn wrong_passwords_of_an_address_slow_down_all_credentials_but_those_that_were_right() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let right = throttle.begin(SHARED, Some("alice"), "right", now);
        throttle.succeeded(&right, now);
        for number in 0..ADDRESS_FAILURES_MAX {
            assert_eq!(fail(&throttle, SHARED, &number.to_string(), now), Pace::AtOnce);
        }
        // The address has one attempt per second, with any user.
        for turn in 1..=LOGINS_WAITING_MAX {
            let pace = fail(&throttle, SHARED, &format!("waiting {turn}"), now);
            assert_eq!(pace, Pace::Slow(SLOW_LOGIN_DELAY * turn));
        }
        assert_eq!(fail(&throttle, SHARED, "another", now), Pace::Never);
        let later = throttle.begin(SHARED, Some("bob"), "right", now + SLOW_LOGIN_DELAY);
        assert_eq!(later.pace, Pace::Slow(SLOW_LOGIN_DELAY * LOGINS_WAITING_MAX));
        assert_eq!(fail(&throttle, IpAddr::from([10, 0, 0, 2]), "another", now), Pace::AtOnce);
        let again = throttle.begin(SHARED, Some("alice"), "right", now);
        assert_eq!(again.pace, Pace::Known);
        // The password has changed.
        throttle.failed(&again);
        assert_eq!(throttle.begin(SHARED, Some("alice"), "right", now).pace, Pace::Never);
        assert_eq!(fail(&throttle, SHARED, "another", now + 2 * WINDOW), Pace::AtOnce);
    }

    #[test]
    fn attempts_of_few_addresses_wait() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        for last in 0..WAITING_ADDRESSES_MAX as u8 {
            assert!(throttle.take_turn(IpAddr::from([10, 0, 0, last]), now).is_some());
        }
        let another = IpAddr::from([10, 0, 1, 0]);
        assert_eq!(throttle.take_turn(another, now), None);
        assert_eq!(throttle.take_turn(another, now + SLOW_LOGIN_DELAY), Some(SLOW_LOGIN_DELAY));
    }

    #[test]
    fn only_wrong_passwords_count() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        for number in 0..2 * ADDRESS_FAILURES_MAX {
            let attempt = throttle.begin(SHARED, Some("alice"), &number.to_string(), now);
            assert_eq!(attempt.pace, Pace::AtOnce);
            if number % 2 == 0 { throttle.succeeded(&attempt, now) } else { throttle.withdraw(&attempt) }
        }
    }

    #[test]
    fn the_addresses_of_an_ipv6_network_count_as_one() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        for last in 0..LOGIN_FAILURES_MAX {
            fail(&throttle, format!("2001:db8::{last}").parse().unwrap(), "x", now);
        }
        assert_eq!(
            fail(&throttle, "2001:db8::ffff".parse().unwrap(), "x", now),
            Pace::Slow(SLOW_LOGIN_DELAY)
        );
        assert_eq!(fail(&throttle, "2001:db8:0:1::1".parse().unwrap(), "x", now), Pace::AtOnce);
    }

    #[test]
    fn memory_is_limited() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        for number in 0..=COUNTED_MAX as u32 {
            let attempt = throttle.begin(IpAddr::from(number.to_be_bytes()), None, &number.to_string(), now);
            if number % 2 == 0 { throttle.failed(&attempt) } else { throttle.succeeded(&attempt, now) }
        }
        assert_eq!(throttle.failures.lock().len(), COUNTED_MAX);
        assert_eq!(throttle.known.lock().len(), KNOWN_MAX);
    }
}
