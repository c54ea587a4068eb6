//! The memory of this machine, as far as the flow tables may count on it.

use std::fs;
use std::path::{Path, PathBuf};

/// The memory that this process may use: that of the machine, or less where a control group limits it.
///
/// The kernel charges the memory of maps to the control group of the process that makes them, so that a
/// container with 256 MB on a machine with 256 GB has 256 MB for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsableMemory {
    /// Of the machine (`MemTotal`).
    pub machine_bytes: u64,
    /// The smallest limit of the control groups that this process is in, where one has less than the
    /// machine.
    pub limit_bytes: Option<u64>,
}

impl UsableMemory {
    /// Reads it from `/proc` and the control groups; `None` where the kernel does not say.
    #[must_use]
    pub fn read() -> Option<Self> {
        Self::below(Path::new("/"))
    }

    /// The smaller of the two.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self.limit_bytes {
            Some(limit) => limit,
            None => self.machine_bytes,
        }
    }

    fn below(root: &Path) -> Option<Self> {
        let read = |path: &Path| fs::read_to_string(root.join(path)).ok();
        let machine_bytes = mem_total(&read(Path::new("proc/meminfo"))?)?;
        let groups = read(Path::new("proc/self/cgroup")).unwrap_or_default();
        let limits = groups.lines().flat_map(limit_files);
        let limits = limits.filter_map(|path| read(&path)?.trim().parse().ok());
        Some(Self {
            machine_bytes,
            // Of the first version, one without a limit says a number beyond any memory.
            limit_bytes: limits.min().filter(|limit| *limit < machine_bytes),
        })
    }
}

fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|it| it.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1 << 10)
}

/// The files that may limit a process with this line in `/proc/PID/cgroup`, from its group up to the
/// root: in a container, what the line names may lie above what is mounted.
fn limit_files(line: &str) -> Vec<PathBuf> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else {
        return Vec::new();
    };
    let (mounts, file): (&[&str], _) = match controllers {
        "" => (&["sys/fs/cgroup", "sys/fs/cgroup/unified"], "memory.max"),
        of if of.split(',').any(|it| it == "memory") => {
            (&["sys/fs/cgroup/memory"], "memory.limit_in_bytes")
        }
        _ => return Vec::new(),
    };
    let group = Path::new(group.trim_start_matches('/'));
    let is_inside = |it: &&Path| !it.components().any(|part| part.as_os_str() == "..");
    let groups = group.ancestors().filter(is_inside);
    let files = groups.flat_map(|group| {
        let mounts = mounts.iter();
        mounts.map(move |mount| Path::new(mount).join(group).join(file))
    });
    files.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// The memory of a machine with a GiB and these files.
    fn found(files: &[(&str, &str)]) -> Option<UsableMemory> {
        let root = tempfile::tempdir().unwrap();
        let meminfo = (
            "proc/meminfo",
            "MemTotal:        1048576 kB\nMemFree: 9 kB\n",
        );
        for (path, text) in files.iter().chain([&meminfo]) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        UsableMemory::below(root.path())
    }

    fn limit(files: &[(&str, &str)]) -> Option<u64> {
        let found = found(files).unwrap();
        assert_eq!(found.machine_bytes, GIB);
        assert_eq!(found.bytes(), found.limit_bytes.unwrap_or(GIB));
        found.limit_bytes
    }

    #[test]
    fn machine_has_what_meminfo_says_where_nothing_limits() {
        assert_eq!(limit(&[]), None);
        let own = ("proc/self/cgroup", "0::/system.slice/splitter.service\n");
        let file = "sys/fs/cgroup/system.slice/splitter.service/memory.max";
        assert_eq!(limit(&[own, (file, "max\n")]), None);
        assert_eq!(limit(&[own, (file, "4294967296\n")]), None);
    }

    #[test]
    fn smallest_limit_of_all_groups_above_holds() {
        let own = ("proc/self/cgroup", "0::/system.slice/splitter.service\n");
        let service = "sys/fs/cgroup/system.slice/splitter.service/memory.max";
        let slice = "sys/fs/cgroup/system.slice/memory.max";
        let limits = |a, b| limit(&[own, (service, a), (slice, b)]);
        assert_eq!(limits("268435456\n", "max\n"), Some(GIB / 4));
        assert_eq!(limits("max\n", "268435456\n"), Some(GIB / 4));
        assert_eq!(limits("268435456\n", "134217728\n"), Some(GIB / 8));
    }

    #[test]
    fn group_of_a_container_is_found_where_it_is_mounted() {
        for line in ["0::/\n", "0::/docker/4711\n", "0::/../4711\n"] {
            let own = ("proc/self/cgroup", line);
            let limited = limit(&[own, ("sys/fs/cgroup/memory.max", "134217728\n")]);
            assert_eq!(limited, Some(GIB / 8), "{line}");
        }
    }

    #[test]
    fn groups_of_the_first_version_limit_as_well() {
        let own = (
            "proc/self/cgroup",
            "5:cpu:/a\n4:hugetlb,memory:/a/b\n0::/\n",
        );
        let file = "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes";
        assert_eq!(limit(&[own, (file, "134217728\n")]), Some(GIB / 8));
        assert_eq!(limit(&[own, (file, "9223372036854771712\n")]), None);
        let other = "sys/fs/cgroup/memory/a/memory.limit_in_bytes";
        assert_eq!(limit(&[own, (other, "134217728\n")]), Some(GIB / 8));
    }

    #[test]
    fn what_the_kernel_does_not_say_is_not_made_up() {
        assert_eq!(mem_total("MemFree: 12 kB\n"), None);
        assert_eq!(mem_total("MemTotal: many kB\n"), None);
        assert_eq!(mem_total("MemTotal: 18446744073709551615 kB\n"), None);
        assert_eq!(UsableMemory::below(Path::new("/nowhere")), None);
    }

    #[test]
    fn this_machine_says_what_it_has() {
        assert!(UsableMemory::read().unwrap().bytes() > 1 << 20);
    }
}
