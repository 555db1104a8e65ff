//! How much memory this process may use: the limit of its control group, or the memory of the machine.

use std::fs;
use std::path::Path;

use super::process::kilobytes;

/// Where control groups are mounted. Version 1 has a folder per controller in it.
const CGROUPS: &str = "/sys/fs/cgroup";

/// The memory that this process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Available {
    /// Its size.
    pub bytes: u64,
    /// What sets this limit.
    pub source: Source,
}

/// What limits the memory of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The control group of the process or one that contains it, for example that of a container.
    ControlGroup,
    /// The memory of the machine.
    Machine,
}

impl Available {
    /// Returns the smaller of the two limits, or `None` if the system reports neither.
    pub fn read() -> Option<Available> {
        let group = group_limit(Path::new(CGROUPS), &read(Path::new("/proc/self/cgroup")));
        Available::smaller(group, machine_bytes())
    }

    fn smaller(group: Option<u64>, machine: u64) -> Option<Available> {
        match (group, machine) {
            (Some(bytes), machine) if machine == 0 || bytes < machine => {
                Some(Available { bytes, source: Source::ControlGroup })
            }
            (_, 0) => None,
            (_, bytes) => Some(Available { bytes, source: Source::Machine }),
        }
    }

    /// Returns this share of the memory, in bytes.
    pub fn percent(self, percent: u64) -> u64 {
        u64::try_from(u128::from(self.bytes) * u128::from(percent) / 100).unwrap_or(u64::MAX)
    }
}

/// Returns the machine's memory in bytes, or 0 if the system does not report it.
pub(crate) fn machine_bytes() -> u64 {
    kilobytes(&read(Path::new("/proc/meminfo")), "MemTotal:").unwrap_or(0) * 1024
}

/// Returns the smallest memory limit of the control groups that `groups`, the text of `/proc/self/cgroup`, lists, and
/// of the groups that contain them. `root` is the folder where control groups are mounted.
///
/// A line is `0::PATH` for version 2 and `N:CONTROLLERS:PATH` for version 1. In a container without a namespace of its
/// own, the path is that of the host, and only the group at the root exists.
fn group_limit(root: &Path, groups: &str) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        match controllers {
            "" => smallest_limit(root, path, "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                smallest_limit(&root.join("memory"), path, "memory.limit_in_bytes")
            }
            _ => None,
        }
    });
    limits.min()
}

/// Returns the smallest number in the files `name` of the folder `path` and of all folders above it, up to `root`.
fn smallest_limit(root: &Path, path: &str, name: &str) -> Option<u64> {
    // A group outside of the namespace has a path with `..`. Only its root can be read.
    let path = if path.split('/').any(|part| part == "..") { "" } else { path.trim_start_matches('/') };
    // A file contains `max` if there is no limit.
    let limit = |folder: &Path| read(&root.join(folder).join(name)).trim().parse::<u64>().ok();
    Path::new(path).ancestors().filter_map(limit).min()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(name: &str, files: &[(&str, &str)]) -> std::path::PathBuf {
        let root = std::env::temp_dir().join(format!("millstream-cgroup-{name}-{}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_smallest_limit_of_a_group_and_those_above_it_counts() {
        let files = [
            ("a/memory.max", "2000\n"),
            ("a/b/memory.max", "3000\n"),
            ("a/c/memory.max", "max\n"),
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/docker/memory.limit_in_bytes", "700\n"),
        ];
        let root = tree("limits", &files);
        for (groups, expected) in [
            ("0::/a/b\n", Some(2000)),
            ("0::/a/c\n", Some(2000)),
            ("0::/a/gone/deeper\n", Some(2000)),
            ("0::/\n", None),
            ("0::/../../a\n", None),
            ("12:cpu,memory:/docker/x\n0::/a\n", Some(700)),
            ("4:memory:/other\n", Some(9_223_372_036_854_771_712)),
            ("3:cpuset:/docker\n", None),
            ("", None),
            ("nonsense\n1\n2:\n", None),
        ] {
            assert_eq!(group_limit(&root, groups), expected, "{groups}");
        }
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn the_smaller_of_group_and_machine_counts() {
        let found =
            |group, machine| Available::smaller(group, machine).map(|found| (found.bytes, found.source));
        assert_eq!(found(Some(5), 10), Some((5, Source::ControlGroup)));
        assert_eq!(found(Some(10), 10), Some((10, Source::Machine)));
        assert_eq!(found(None, 10), Some((10, Source::Machine)));
        assert_eq!(found(Some(5), 0), Some((5, Source::ControlGroup)));
        assert_eq!(found(None, 0), None);
        assert_eq!(Available { bytes: 1000, source: Source::Machine }.percent(80), 800);
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(Available::read().unwrap().bytes <= machine_bytes());
    }
}
