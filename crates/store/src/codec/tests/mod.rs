//! Tests of the codec: round trips, damaged input, and the stability of the encoding.

mod changes;
mod fixtures;
mod values;

use millstream_engine::value::Hashing;

fn hashing() -> Hashing {
    Hashing::new(7)
}
