//! Embeds the files of `assets/`: copies each into the output folder, compressed if that makes it smaller, and writes
//! the table that `src/assets.rs` includes. Knows nothing about the contents of the files.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

fn main() -> io::Result<()> {
    let folder =
        PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").ok_or(io::ErrorKind::NotFound)?).join("assets");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut names = Vec::new();
    list(&folder, &folder, &mut names)?;
    names.sort();
    let mut table = String::from("[\n");
    let mut hash = Fnv::default();
    for (number, name) in names.iter().enumerate() {
        let bytes = fs::read(folder.join(name))?;
        hash.add(name.as_bytes());
        hash.add(&(bytes.len() as u64).to_le_bytes());
        hash.add(&bytes);
        let plain = out.join(format!("asset-{number}"));
        fs::write(&plain, &bytes)?;
        let gzip = compress(&bytes)?;
        let gzip = if gzip.len() < bytes.len() {
            let path = out.join(format!("asset-{number}.gz"));
            fs::write(&path, &gzip)?;
            format!("Some(include_bytes!({:?}))", path.display().to_string())
        } else {
            "None".to_owned()
        };
        let _ = writeln!(
            table,
            "    Asset {{ name: {name:?}, bytes: include_bytes!({:?}), gzip: {gzip} }},",
            plain.display().to_string()
        );
    }
    table.push(']');
    fs::write(out.join("assets.rs"), table)?;
    println!("cargo::rustc-env=MILLSTREAM_DASH_ASSETS={:016x}", hash.0);
    Ok(())
}

/// Lists all files of a folder, as paths relative to `root` with `/`. Leaves out hidden files and documents for
/// developers.
fn list(root: &Path, folder: &Path, names: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
        let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if is_hidden || name == "node_modules" || name == "test" {
            continue;
        }
        if path.is_dir() {
            list(root, &path, names)?;
        } else if !name.ends_with(".md") && !name.ends_with(".test.js") {
            println!("cargo::rerun-if-changed={}", path.display());
            names.push(name);
        }
    }
    Ok(())
}

fn compress(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// FNV-1a: tells versions of the assets apart. Nobody attacks it.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
