//! Delayed entries of the stream and of the naive model.

use std::ops::ControlFlow;

use millstream_engine::stream::{EntryRef, IdRange, Promotion};
use millstream_engine::{Due, IdSpec, Refusal, StreamEffect, StreamId};

use crate::naive::NaiveStream;
use crate::{NAMES, Run, VALUES, collect, fields_of};

impl NaiveStream {
    fn delay(&mut self, due_ms: u64, fields: &[&[u8]]) -> StreamId {
        self.last_ticket += 1;
        let ticket = StreamId::new(due_ms, self.last_ticket);
        let fields = fields.chunks(2).map(|pair| (pair[0].to_vec(), pair[1].to_vec())).collect();
        self.delayed.insert(ticket, fields);
        ticket
    }

    /// Promotes entries one by one, as XADD with `*` would add them. Returns how many.
    fn promote(&mut self, now_ms: u64, max_count: u64) -> u64 {
        for count in 0..max_count {
            let due = self.delayed.first_entry().filter(|first| first.key().ms <= now_ms);
            let (Some(first), Some(id)) =
                (due.map(|first| first.remove()), self.next_id(IdSpec::Auto, now_ms))
            else {
                return count;
            };
            let fields: Vec<&[u8]> = first.iter().flat_map(|(name, value)| [&**name, &**value]).collect();
            self.add(id, &fields);
        }
        max_count
    }
}

impl Run {
    pub(crate) fn delay(&mut self) {
        let fields: [&[u8]; 4] =
            [self.random.pick(&NAMES[..2]), self.random.pick(&VALUES), b"amount", self.random.pick(&VALUES)];
        let fields = &fields[..2 + 2 * self.random.below(2) as usize];
        let delay_ms = self.random.below(3) * self.random.below(100);
        let due = match self.random.below(2) {
            0 => Due::In(delay_ms),
            _ => Due::At(self.now_ms + delay_ms),
        };
        let Some(due_ms) = due.due_ms(self.now_ms).unwrap() else {
            // Not in the future: it is added at once.
            assert_eq!(delay_ms, 0);
            let id = self.stream.decide_add(IdSpec::Delayed(due), fields, self.now_ms);
            assert_eq!(id, self.stream.decide_add(IdSpec::Auto, fields, self.now_ms));
            return;
        };
        let ticket = self.stream.decide_delay(due_ms, fields).unwrap();
        self.apply(StreamEffect::Delay { ticket, fields, at_ms: self.now_ms });
        assert_eq!(self.naive.delay(due_ms, fields), ticket);
    }

    /// Promotes what is due, in one or several slices. Nothing is early, and replaying the effect gives the same.
    pub(crate) fn promote(&mut self) {
        let (max_count, at_ms) = (1 + self.random.below(9), self.now_ms);
        let decided = self.stream.decide_promote(at_ms, max_count);
        let Ok(Some(promotion)) = decided else {
            let is_exhausted = self.stream.last_id() == StreamId::MAX;
            assert!(decided != Err(Refusal::IdsExhausted) || is_exhausted, "{decided:?}");
            return assert_eq!(self.naive.promote(at_ms, max_count), 0);
        };
        let Promotion { through, count, first } = promotion;
        assert!(through.ms <= at_ms && self.stream.fits_promotion(&promotion));
        for wrong in [
            Promotion { count: count + 1, ..promotion },
            Promotion { count: count - 1, ..promotion },
            Promotion { through: StreamId::new(through.ms, through.seq + 1), ..promotion },
            Promotion { first: self.stream.last_id(), ..promotion },
        ] {
            assert!(!self.stream.fits_promotion(&wrong), "{wrong:?}");
        }
        self.apply(StreamEffect::Promote { through, count, first, at_ms });
        assert_eq!(self.naive.promote(at_ms, count), count);
    }

    pub(crate) fn undelay(&mut self) {
        let known: Vec<StreamId> = self.naive.delayed.keys().copied().collect();
        let mut tickets: Vec<StreamId> = (0..self.random.below(4)).map(|_| self.id()).collect();
        for _ in 0..self.random.below(3).min(known.len() as u64) {
            tickets.push(known[self.random.below(known.len() as u64) as usize]);
        }
        let found = self.stream.decide_undelay(&tickets);
        assert!(found.is_sorted_by(|a, b| a < b));
        self.apply(StreamEffect::Undelay { tickets: &found });
        let removed = tickets.iter().filter(|ticket| self.naive.delayed.remove(ticket).is_some());
        assert_eq!(removed.count(), found.len());
    }

    /// Promotes some entries by their tickets, before they are due.
    pub(crate) fn promote_tickets(&mut self) {
        let known: Vec<StreamId> = self.naive.delayed.keys().copied().collect();
        let mut tickets = vec![self.id()];
        for _ in 0..self.random.below(4).min(known.len() as u64) {
            tickets.push(known[self.random.below(known.len() as u64) as usize]);
        }
        let at_ms = self.now_ms;
        let Ok((found, first)) = self.stream.decide_promote_tickets(&tickets, at_ms) else { return };
        assert!(found.is_empty() || self.stream.fits_promotion_of(&found, first));
        assert!(!self.stream.fits_promotion_of(&[StreamId::MAX], first));
        assert!(!self.stream.fits_promotion_of(&found, self.stream.last_id()));
        if found.is_empty() {
            return;
        }
        self.apply(StreamEffect::PromoteTickets { tickets: &found, first, at_ms });
        for ticket in &found {
            let entry = self.naive.delayed.remove(ticket).unwrap();
            let fields: Vec<&[u8]> = entry.iter().flat_map(|(name, value)| [&**name, &**value]).collect();
            let id = self.naive.next_id(IdSpec::Auto, at_ms).unwrap();
            self.naive.add(id, &fields);
        }
    }

    pub(crate) fn compare_delayed(&self) {
        let Some(delayed) = self.stream.delayed() else {
            return assert_eq!(self.naive.last_ticket, 0);
        };
        assert_eq!(
            (delayed.last_number(), delayed.len()),
            (self.naive.last_ticket, self.stream.delayed_len())
        );
        let mut found = Vec::new();
        delayed.visit_range(IdRange::ALL, None, &mut collect(&mut found));
        assert_eq!(found, self.naive.delayed.clone().into_iter().collect::<Vec<_>>());
        assert_eq!(self.stream.next_promotion_ms(), found.first().map(|(ticket, _)| ticket.ms));
        if let Some((ticket, fields)) = found.get(found.len() / 2) {
            assert_eq!(delayed.get(*ticket).as_ref().map(fields_of).as_ref(), Some(fields));
            let after = IdRange { first: *ticket, last: StreamId::MAX };
            let rest = delayed.visit_range(after, None, &mut |_: &EntryRef<'_>| ControlFlow::Continue(()));
            assert_eq!(rest as usize, found.len() - found.len() / 2);
        }
    }
}
