//! Runs the shell blocks of two pages in a shell, with redis-py for their programs, and compares what they print with
//! the text block after each of them. Only ports are replaced, and numbers of 13 or more digits are not compared: ids
//! and times. Then runs the commands of `millstream` that the text of the section names.
//!
//! Each section is a shell session of its own. All of them run at the same time, on one server.
//! `UPDATE_DOCS=1` writes what the blocks print into the page.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;

use crate::program;
use crate::support::process::Server;
use crate::support::run::new_folder;

/// A line that separates the output of one block from that of the next.
const BETWEEN: &str = "===== next block =====";

#[test]
fn every_recipe_of_policies_prints_what_the_page_shows() {
    check("docs/policies.md", 13);
}

#[test]
fn every_recipe_of_partitions_prints_what_the_page_shows() {
    check("docs/partitions.md", 3);
}

/// Checks a page that has at least this number of sections with shell blocks.
fn check(page: &str, sections_min: usize) {
    let server = Server::millstream(&[]);
    let path = program::repository().join(page);
    let page = fs::read_to_string(&path).expect("read the page");
    let sections = sections(&page);
    let with_scripts = sections.iter().filter(|section| !section.scripts().is_empty()).count();
    assert!(with_scripts >= sections_min, "recipes are missing");
    let mut written = page.clone();
    thread::scope(|scope| {
        let with_scripts = sections.iter().filter(|section| !section.scripts().is_empty());
        let runs: Vec<_> =
            with_scripts.map(|section| (section, scope.spawn(|| section.run(&server)))).collect();
        for (section, run) in runs {
            let printed = run.join().unwrap_or_else(|_| panic!("{}: failed", section.title));
            let scripts = section.scripts();
            assert_eq!(printed.len(), scripts.len(), "{}: {printed:#?}", section.title);
            for ((script, shown), printed) in scripts.iter().zip(printed) {
                if std::env::var_os("UPDATE_DOCS").is_some() {
                    let shown = format!("{script}```\n\n```text\n{shown}");
                    written = written.replace(&shown, &format!("{script}```\n\n```text\n{printed}"));
                } else {
                    let differs =
                        format!("{}: the page shows something else:\n{script}\n{printed}", section.title);
                    assert_eq!(without_times(shown), without_times(&printed), "{differs}");
                }
            }
        }
    });
    if written != page {
        fs::write(path, written).expect("write the page");
    }
}

/// A section of the page, with the language and the code of each of its blocks.
struct Section<'p> {
    title: &'p str,
    blocks: Vec<(&'p str, String)>,
    /// The text without the blocks.
    text: String,
}

fn sections(page: &str) -> Vec<Section<'_>> {
    let section = |title| Section { title, blocks: Vec::new(), text: String::new() };
    let mut sections = vec![section("")];
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let code =
                lines.by_ref().take_while(|line| *line != "```").map(|line| format!("{line}\n")).collect();
            sections.last_mut().expect("a section").blocks.push((language, code));
        } else if line.starts_with("##") {
            sections.push(section(line.trim_start_matches(['#', ' '])));
        } else {
            sections.last_mut().expect("a section").text += &format!("{line}\n");
        }
    }
    sections
}

impl Section<'_> {
    /// The shell blocks, each with the text block that follows it.
    fn scripts(&self) -> Vec<(&str, &str)> {
        let mut found = Vec::new();
        for (n, (language, code)) in self.blocks.iter().enumerate() {
            if *language == "sh" {
                let shown = self.blocks.get(n + 1).filter(|(language, _)| *language == "text");
                let (_, shown) = shown.unwrap_or_else(|| panic!("{}: no output after:\n{code}", self.title));
                found.push((code.as_str(), shown.as_str()));
            }
        }
        found
    }

    /// The commands of `millstream` in the text.
    fn commands(&self) -> impl Iterator<Item = &str> {
        self.text.split('`').skip(1).step_by(2).filter(|code| code.starts_with("millstream "))
    }

    /// Runs the shell blocks and the commands in one shell. Returns what each block prints.
    fn run(&self, server: &Server) -> Vec<String> {
        let folder = new_folder();
        for (_, code) in self.blocks.iter().filter(|(language, _)| *language == "python") {
            let name = code.strip_prefix("# ").and_then(|rest| rest.split_whitespace().next());
            let code = code.replace("redis.Redis(", &format!("redis.Redis(port={}, ", server.port));
            fs::write(folder.join(name.expect("the name of the file")), code).expect("write a program");
        }
        let mut script = "set -e\n".to_owned();
        for (block, _) in self.scripts() {
            script += &format!("{block}echo '{BETWEEN}'\n");
        }
        for command in self.commands() {
            script += &format!("{command} > /dev/null\n");
        }
        let mut shell = program::command("timeout", server);
        shell
            .args(["30", "sh", "-c", &script])
            .current_dir(&folder)
            .env("PATH", path_with_tools(&folder, server));
        shell.env("MILLSTREAM_URL", format!("redis://127.0.0.1:{}", server.port));
        let printed = program::run(&mut shell);
        fs::remove_dir_all(&folder).expect("remove the folder");
        printed.split(&format!("{BETWEEN}\n")).take(self.scripts().len()).map(str::to_owned).collect()
    }
}

/// Returns a search path with this `millstream`, Python with redis-py, and a `redis-cli` that connects to the server
/// and prints as on a terminal, unless it writes into a pipe.
fn path_with_tools(folder: &Path, server: &Server) -> String {
    let redis_cli = format!(
        "#!/bin/sh\n[ -p /dev/fd/1 ] || format=--no-raw\nPATH=${{PATH#*:}} exec redis-cli -p {} $format \"$@\"\n",
        server.port
    );
    let tools = folder.join("bin");
    fs::create_dir(&tools).expect("create a folder");
    fs::write(tools.join("redis-cli"), redis_cli).expect("write a script");
    fs::set_permissions(tools.join("redis-cli"), fs::Permissions::from_mode(0o755))
        .expect("make it executable");
    let python = PathBuf::from(program::python("python", server).get_program());
    let millstream = Path::new(env!("CARGO_BIN_EXE_millstream"));
    let folders = [Some(tools.as_path()), millstream.parent(), python.parent()];
    let folders = folders.into_iter().flatten().map(|folder| folder.display().to_string());
    folders.chain(std::env::var("PATH")).collect::<Vec<_>>().join(":")
}

/// Replaces numbers of 13 or more digits.
fn without_times(text: &str) -> String {
    let mut replaced = String::new();
    for part in text.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let digits = part.trim_end_matches(|c: char| !c.is_ascii_digit());
        let rest = &part[digits.len()..];
        replaced += if digits.len() >= 13 { "TIME" } else { digits };
        replaced += rest;
    }
    replaced
}
