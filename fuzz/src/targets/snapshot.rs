//! Snapshots: keys, whole files with the checksums made right, and damaged streams.

use millstream_store::fuzzing::{damage_stream, read_snapshot_file, read_snapshot_key, repair_checksums};

pub(crate) fn run(input: &[u8]) -> usize {
    let Some((&mode, rest)) = input.split_first() else { return 0 };
    match mode % 3 {
        0 => {
            read_snapshot_key(rest);
        }
        1 => {
            read_snapshot_file(&file_of(rest));
        }
        _ => return damage_stream(rest),
    }
    input.len()
}

/// Returns a snapshot with one key. The first byte chooses the damage outside of the key.
fn file_of(input: &[u8]) -> Vec<u8> {
    let (damage, key) = input.split_first().unwrap_or((&0, &[]));
    let version = if damage % 8 == 1 { 1 } else { 2_u32 };
    let mut file = b"MILLSNAP".to_vec();
    file.extend(version.to_le_bytes());
    file.extend([7; 24]);
    file.extend([0; 4]);
    let keys = u64::from(damage % 8 != 2);
    if keys == 1 {
        file.push(b'K');
        let length = if damage % 8 == 3 { u64::MAX } else { key.len() as u64 };
        file.extend(length.to_le_bytes());
        file.extend([0; 4]);
        file.extend(key);
    }
    file.push(b'F');
    file.extend(keys.to_le_bytes());
    file.extend([0; 8]);
    match damage % 8 {
        4 => file.truncate(usize::from(*damage)),
        5 => file.push(0),
        6 => {
            let at = usize::from(*damage) % file.len();
            file[at] ^= 0x40;
        }
        _ => {}
    }
    repair_checksums("snapshot-00000000000000000001", &mut file, false);
    if damage % 8 == 7 {
        let at = usize::from(*damage) % file.len();
        file[at] ^= 1;
    }
    file
}
