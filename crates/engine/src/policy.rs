//! Policies: settings of a stream or a group with which the server does work that no client requests.
//!
//! A [`Policy`] is what an operator has set, on a stream or on a group. What is set on a stream is the default of its
//! groups. [`GroupRules`] are the values in force in one group: its own, or else those of the stream.
//!
//! ```text
//! ready at   = delivery time + max(lease, back-off of this delivery)     a row with an owner
//!            = the due time, or at once                                  a released row
//! ```
//!
//! Nothing here stores a moment: leases and back-off follow from the row and the rules. So a changed policy applies to
//! every pending entry at once, and replay needs no clock.

use std::ops::RangeInclusive;

pub use crate::backoff::Backoff;
use crate::pending::{PendingEntry, ReadyRule};

const TEN_YEARS_MS: u64 = 10 * 365 * 24 * 60 * 60 * 1000;
const WEEK_MS: u64 = 7 * 24 * 60 * 60 * 1000;

/// Maximum length of the key for dead letters. A policy is set above `maxmemory` too, so it must be small.
pub const DEAD_LETTERS_BYTES_MAX: usize = 1024;

/// A field of a policy. Its number identifies it in the log and in snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum PolicyField {
    /// How long a delivered entry belongs to its consumer, in milliseconds.
    Lease = 1,
    /// Maximum number of deliveries of an entry.
    MaxDeliver = 2,
    /// The dead-letter stream.
    DeadLetters = 3,
    /// How long an entry waits between deliveries.
    Backoff = 4,
    /// Maximum number of entries in hand.
    MaxPending = 5,
    /// How long the server keeps a consumer that sends no requests and has no pending entries, in milliseconds.
    ConsumerTtl = 6,
    /// Maximum age of an entry, in milliseconds.
    MaxAge = 7,
    /// Maximum number of entries.
    MaxLength = 8,
    /// Maximum number of bytes.
    MaxBytes = 9,
    /// Age at which an entry is removed that every group has acknowledged, in milliseconds.
    AckedAge = 10,
}

impl PolicyField {
    /// All fields, in the order of their numbers.
    pub const ALL: [PolicyField; 10] = [
        PolicyField::Lease,
        PolicyField::MaxDeliver,
        PolicyField::DeadLetters,
        PolicyField::Backoff,
        PolicyField::MaxPending,
        PolicyField::ConsumerTtl,
        PolicyField::MaxAge,
        PolicyField::MaxLength,
        PolicyField::MaxBytes,
        PolicyField::AckedAge,
    ];

    /// Returns the field with this number.
    pub fn of_number(number: u8) -> Option<PolicyField> {
        Self::ALL.into_iter().find(|field| *field as u8 == number)
    }

    /// Returns the name of the field in commands.
    pub fn name(self) -> &'static str {
        match self {
            PolicyField::Lease => "LEASE",
            PolicyField::MaxDeliver => "MAXDELIVER",
            PolicyField::DeadLetters => "DLQ",
            PolicyField::Backoff => "BACKOFF",
            PolicyField::MaxPending => "MAXPENDING",
            PolicyField::ConsumerTtl => "CONSUMERTTL",
            PolicyField::MaxAge => "MAXAGE",
            PolicyField::MaxLength => "MAXLEN",
            PolicyField::MaxBytes => "MAXBYTES",
            PolicyField::AckedAge => "ACKEDAGE",
        }
    }

    /// Returns whether the field belongs to a stream and not to a group.
    pub fn is_of_stream(self) -> bool {
        self >= PolicyField::MaxAge
    }

    /// Returns the values that the field accepts, apart from the one that means "off".
    pub fn limits(self) -> RangeInclusive<u64> {
        match self {
            PolicyField::Lease => 100..=WEEK_MS,
            PolicyField::MaxDeliver => 1..=1_000_000,
            PolicyField::DeadLetters => 0..=0,
            PolicyField::Backoff => 1..=WEEK_MS,
            PolicyField::MaxPending => 1..=1_000_000_000,
            PolicyField::ConsumerTtl => 100..=TEN_YEARS_MS,
            PolicyField::MaxAge => 1..=TEN_YEARS_MS,
            PolicyField::MaxLength | PolicyField::MaxBytes => 1..=i64::MAX as u64,
            PolicyField::AckedAge => 0..=TEN_YEARS_MS,
        }
    }
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyValue<'a> {
    /// A number. 0 means off, except for [`PolicyField::AckedAge`].
    Number(u64),
    /// The waits between deliveries.
    Backoff(Backoff),
    /// A key. If it is empty, dead letters go to the default stream.
    Key(&'a [u8]),
}

/// Added to the delivery count of an entry that a consumer rejected (XNACK FATAL), in a group with a delivery limit. So
/// the dead letter has the count.
const REJECTED: u64 = 1 << 62;

/// Returns the delivery count of a rejected entry that had `deliveries`.
pub(crate) fn rejected(deliveries: u64) -> u64 {
    if is_rejected(deliveries) { deliveries } else { REJECTED + deliveries }
}

/// Returns whether this is the delivery count of a rejected entry.
pub fn is_rejected(deliveries: u64) -> bool {
    deliveries >= REJECTED
}

/// Returns how often an entry was delivered, also if it was rejected.
pub fn actual_deliveries(deliveries: u64) -> u64 {
    // The maximum is the count of an entry that was rejected in a group without a limit: the real one is lost.
    if is_rejected(deliveries) && deliveries < i64::MAX as u64 { deliveries - REJECTED } else { deliveries }
}

/// What was set on a stream or on a group. `None`: the field is not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// See [`PolicyField::Lease`].
    pub lease_ms: Option<u64>,
    /// See [`PolicyField::MaxDeliver`].
    pub max_deliveries: Option<u64>,
    /// See [`PolicyField::DeadLetters`].
    pub dead_letters: Option<Box<[u8]>>,
    /// See [`PolicyField::Backoff`].
    pub backoff: Option<Backoff>,
    /// See [`PolicyField::MaxPending`].
    pub max_pending: Option<u64>,
    /// See [`PolicyField::ConsumerTtl`].
    pub consumer_ttl_ms: Option<u64>,
    /// See [`PolicyField::MaxAge`].
    pub max_age_ms: Option<u64>,
    /// See [`PolicyField::MaxLength`].
    pub max_length: Option<u64>,
    /// See [`PolicyField::MaxBytes`].
    pub max_bytes: Option<u64>,
    /// See [`PolicyField::AckedAge`].
    pub acked_age_ms: Option<u64>,
}

impl Policy {
    /// Returns whether no field is set.
    pub fn is_empty(&self) -> bool {
        *self == Policy::default()
    }

    /// Returns the value of a field.
    pub fn get(&self, field: PolicyField) -> Option<PolicyValue<'_>> {
        match field {
            PolicyField::DeadLetters => self.dead_letters.as_deref().map(PolicyValue::Key),
            PolicyField::Backoff => self.backoff.map(PolicyValue::Backoff),
            _ => self.number(field).map(PolicyValue::Number),
        }
    }

    /// Sets a field.
    pub fn set(&mut self, field: PolicyField, value: PolicyValue<'_>) {
        match value {
            PolicyValue::Key(key) => self.dead_letters = Some(key.into()),
            PolicyValue::Backoff(backoff) => self.backoff = Some(backoff),
            PolicyValue::Number(number) => *self.number_mut(field) = Some(number),
        }
    }

    /// Forgets a field.
    pub fn unset(&mut self, field: PolicyField) {
        match field {
            PolicyField::DeadLetters => self.dead_letters = None,
            PolicyField::Backoff => self.backoff = None,
            _ => *self.number_mut(field) = None,
        }
    }

    /// Returns all fields that are set, in the order of their numbers.
    pub fn fields(&self) -> impl Iterator<Item = (PolicyField, PolicyValue<'_>)> {
        PolicyField::ALL.into_iter().filter_map(|field| Some((field, self.get(field)?)))
    }

    pub(crate) fn number(&self, field: PolicyField) -> Option<u64> {
        match field {
            PolicyField::Lease => self.lease_ms,
            PolicyField::MaxDeliver => self.max_deliveries,
            PolicyField::MaxPending => self.max_pending,
            PolicyField::ConsumerTtl => self.consumer_ttl_ms,
            PolicyField::MaxAge => self.max_age_ms,
            PolicyField::MaxLength => self.max_length,
            PolicyField::MaxBytes => self.max_bytes,
            PolicyField::AckedAge => self.acked_age_ms,
            PolicyField::DeadLetters | PolicyField::Backoff => None,
        }
    }

    fn number_mut(&mut self, field: PolicyField) -> &mut Option<u64> {
        match field {
            PolicyField::Lease => &mut self.lease_ms,
            PolicyField::MaxDeliver => &mut self.max_deliveries,
            PolicyField::MaxPending => &mut self.max_pending,
            PolicyField::ConsumerTtl => &mut self.consumer_ttl_ms,
            PolicyField::MaxAge => &mut self.max_age_ms,
            PolicyField::MaxLength => &mut self.max_length,
            PolicyField::MaxBytes => &mut self.max_bytes,
            PolicyField::AckedAge => &mut self.acked_age_ms,
            PolicyField::DeadLetters | PolicyField::Backoff => unreachable!("{field:?} is not a number"),
        }
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Policy>() + self.dead_letters.as_ref().map_or(0, |key| key.len())
    }

    /// Returns about how many bytes these fields take in each group that they apply to, never too few; 0 if they apply
    /// to no group.
    pub fn rules_bytes(&self) -> u64 {
        /// Bytes of the group's sets of rows at the delivery limit and of its counters.
        const FINALS_BYTES: usize = 512;
        if self.fields().all(|(field, _)| field.is_of_stream()) {
            return 0;
        }
        let names = 2 * self.dead_letters.as_ref().map_or(0, |key| key.len());
        (size_of::<Policy>() + size_of::<GroupRules>() + FINALS_BYTES + names) as u64
    }

    /// Returns the first field of a group that is set here and does nothing without a lease.
    pub fn needs_lease(&self) -> Option<PolicyField> {
        let of_group = self.fields().filter(|(field, _)| !field.is_of_stream());
        let mut others = of_group.filter(|(field, value)| *field != PolicyField::Lease && !value.is_off());
        others.next().map(|(field, _)| field)
    }
}

impl PolicyValue<'_> {
    /// Returns whether this value switches a field of a group off.
    pub fn is_off(self) -> bool {
        match self {
            PolicyValue::Number(number) => number == 0,
            PolicyValue::Backoff(backoff) => backoff == Backoff::default(),
            PolicyValue::Key(key) => key.is_empty(),
        }
    }

    /// Returns whether the field accepts this value.
    pub fn fits(self, field: PolicyField) -> bool {
        match (field, self) {
            (PolicyField::DeadLetters, PolicyValue::Key(key)) => key.len() <= DEAD_LETTERS_BYTES_MAX,
            (PolicyField::Backoff, PolicyValue::Backoff(backoff)) => {
                let limits = field.limits();
                let is_range = backoff.first_ms <= backoff.longest_ms;
                self.is_off()
                    || limits.contains(&backoff.first_ms) && limits.contains(&backoff.longest_ms) && is_range
            }
            (PolicyField::DeadLetters | PolicyField::Backoff, _) => false,
            (_, PolicyValue::Number(number)) => number == 0 || field.limits().contains(&number),
            _ => false,
        }
    }
}

/// The values in force in a group that has a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRules {
    /// How long a delivered entry belongs to its consumer.
    pub lease_ms: u64,
    /// Maximum number of deliveries of an entry; `u64::MAX` if there is no limit.
    pub max_deliveries: u64,
    /// The dead-letter stream; `None`: the default one.
    pub dead_letters: Option<Box<[u8]>>,
    /// How long an entry waits between deliveries.
    pub backoff: Backoff,
    /// Maximum number of entries in hand; `u64::MAX` if there is no limit.
    pub max_pending: u64,
    /// How long a consumer without requests stays; `None`: for ever.
    pub consumer_ttl_ms: Option<u64>,
}

impl GroupRules {
    /// Returns the rules of a group with this policy of its own, in a stream with this one. Returns `None` if no lease
    /// is in force: all other fields need it.
    pub fn new(own: &Policy, of_stream: &Policy) -> Option<GroupRules> {
        let number = |field| own.number(field).or(of_stream.number(field)).filter(|number| *number > 0);
        let dead_letters = own.dead_letters.as_ref().or(of_stream.dead_letters.as_ref());
        Some(GroupRules {
            lease_ms: number(PolicyField::Lease)?,
            max_deliveries: number(PolicyField::MaxDeliver).unwrap_or(u64::MAX),
            dead_letters: dead_letters.filter(|key| !key.is_empty()).cloned(),
            backoff: own.backoff.or(of_stream.backoff).unwrap_or_default(),
            max_pending: number(PolicyField::MaxPending).unwrap_or(u64::MAX),
            consumer_ttl_ms: number(PolicyField::ConsumerTtl),
        })
    }

    /// Returns the rules as a policy, without the fields that are off.
    pub fn to_policy(&self) -> Policy {
        let limited = |limit: u64| (limit < u64::MAX).then_some(limit);
        Policy {
            lease_ms: Some(self.lease_ms),
            max_deliveries: limited(self.max_deliveries),
            dead_letters: self.dead_letters.clone(),
            backoff: (self.backoff != Backoff::default()).then_some(self.backoff),
            max_pending: limited(self.max_pending),
            consumer_ttl_ms: self.consumer_ttl_ms,
            ..Policy::default()
        }
    }

    /// Returns whether the number of deliveries is limited.
    pub fn has_limit(&self) -> bool {
        self.max_deliveries < u64::MAX
    }

    /// Returns whether an entry with this many deliveries cannot be delivered again.
    pub fn is_at_limit(&self, deliveries: u64) -> bool {
        deliveries >= self.max_deliveries
    }

    /// Returns when a row that has an owner can be delivered to another consumer: its lease and its back-off are over.
    pub fn ready_at_ms(&self, row: &PendingEntry) -> u64 {
        row.delivered_at_ms.saturating_add(self.ready_rule().wait_ms(row.id, row.deliveries))
    }

    pub(crate) fn ready_rule(&self) -> ReadyRule {
        ReadyRule { lease_ms: self.lease_ms, backoff: self.backoff, max_deliveries: self.max_deliveries }
    }

    /// Returns whether a row can have to wait after its lease is over.
    pub(crate) fn waits_beyond_lease(&self) -> bool {
        self.backoff.longest_wait_ms() > self.lease_ms
    }

    /// Returns whether a read delivers this row again. A released row must be claimable at `now_ms`.
    pub fn is_ready(&self, row: &PendingEntry, now_ms: u64) -> bool {
        !self.is_at_limit(row.deliveries) && (row.consumer.is_none() || self.ready_at_ms(row) <= now_ms)
    }
}
