//! Encodes policies.
//!
//! ```text
//! policy := count:number  (field:1  value)…       fields in ascending order of their numbers
//! value  := number | number number (BACKOFF: first, longest) | text (DLQ)
//! ```

use millstream_engine::policy::{Backoff, Policy, PolicyField, PolicyValue};

use super::wire::{ByteReader, CodecError, put_number, put_text};

pub(super) fn put_policy(out: &mut Vec<u8>, policy: &Policy) {
    put_number(out, policy.fields().count() as u64);
    for (field, value) in policy.fields() {
        out.push(field as u8);
        match value {
            PolicyValue::Number(number) => put_number(out, number),
            PolicyValue::Backoff(Backoff { first_ms, longest_ms }) => {
                put_number(out, first_ms);
                put_number(out, longest_ms);
            }
            PolicyValue::Key(key) => put_text(out, key),
        }
    }
}

pub(super) fn read_policy(reader: &mut ByteReader<'_>) -> Result<Policy, CodecError> {
    /// A field and a short value.
    const FIELD_BYTES_MIN: usize = 2;
    let (mut policy, mut last) = (Policy::default(), 0);
    for _ in 0..reader.count(FIELD_BYTES_MIN)? {
        let number = reader.byte()?;
        if number <= last {
            return Err(reader.error("the fields of a policy are not in the order of their numbers"));
        }
        last = number;
        let field = PolicyField::of_number(number)
            .ok_or_else(|| reader.error("unknown field of a policy; a newer version may have written it"))?;
        let value = match field {
            PolicyField::DeadLetters => PolicyValue::Key(reader.text()?),
            PolicyField::Backoff => {
                PolicyValue::Backoff(Backoff { first_ms: reader.number()?, longest_ms: reader.number()? })
            }
            _ => PolicyValue::Number(reader.number()?),
        };
        policy.set(field, value);
    }
    Ok(policy)
}
