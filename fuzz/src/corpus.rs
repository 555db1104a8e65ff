//! Files of inputs: one input a line, with every byte that is not printable escaped.

use std::fs;
use std::io;
use std::path::Path;

/// Reads the inputs of a file. A file that does not exist has none.
pub(crate) fn read(path: &Path) -> Result<Vec<Vec<u8>>, String> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.map_err(|error| format!("cannot read {}: {error}", path.display()))?,
    };
    let lines = text.lines().zip(1..);
    let inputs = lines.map(|(line, number)| {
        unescape(line).ok_or_else(|| format!("{}: line {number} is not an escaped input", path.display()))
    });
    inputs.collect()
}

/// Reads the inputs of all files of a folder, ordered by name. A folder that does not exist has none.
pub(crate) fn read_folder(dir: &Path) -> Result<Vec<Vec<u8>>, String> {
    let Ok(listed) = fs::read_dir(dir) else { return Ok(Vec::new()) };
    let mut paths: Vec<_> = listed.filter_map(|file| Some(file.ok()?.path())).collect();
    paths.sort();
    let inputs: Result<Vec<_>, _> = paths.iter().map(|path| read(path)).collect();
    Ok(inputs?.concat())
}

/// Writes the inputs to a file.
pub(crate) fn write(path: &Path, inputs: &[Vec<u8>]) -> Result<(), String> {
    let text: String = inputs.iter().map(|input| format!("{}\n", input.escape_ascii())).collect();
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    folder
        .and_then(|()| fs::write(path, text))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Reverses `escape_ascii`.
fn unescape(line: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(line.len());
    let mut rest = line.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next()? {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'x' => hex(rest.next()?)? << 4 | hex(rest.next()?)?,
                escaped @ (b'\\' | b'\'' | b'"') => escaped,
                _ => return None,
            },
            plain => plain,
        });
    }
    Some(bytes)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_in_a_line() {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        let line = all.escape_ascii().to_string();
        assert!(!line.contains('\n'));
        assert_eq!(unescape(&line), Some(all));
        assert_eq!(unescape("\\q"), None);
        assert_eq!(unescape("\\x1"), None);
    }
}
