//! What a process takes, as the kernel counts it under `/proc`.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context as _, Result};
use nix::{
    sys::resource::{Resource, getrlimit, setrlimit},
    time::{ClockId, clock_gettime},
};

/// What a process has taken until now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Memory of its own that is in use, without files that are mapped.
    pub(crate) memory_bytes: u64,
    /// Time of all its threads on processors, in the kernel and outside.
    pub(crate) cpu: Duration,
    /// How often its threads have waited and were woken.
    pub(crate) wakeups: u64,
}

impl Usage {
    /// Reads what the process `id` has taken.
    pub(crate) fn of(id: u32) -> Result<Self> {
        let process = PathBuf::from(format!("/proc/{id}"));
        let status = read(process.join("status"))?;
        let mut usage = Self {
            memory_bytes: field(&status, "RssAnon:")? * 1024,
            cpu: Duration::ZERO,
            wakeups: 0,
        };
        let tasks = process.join("task");
        for task in fs::read_dir(&tasks).with_context(|| tasks.display().to_string())? {
            let task = task?.path();
            // Nanoseconds on a processor come first; `stat` counts in hundredths of a second.
            // One that has ended meanwhile takes no more.
            let Ok(times) = read(task.join("schedstat")) else {
                continue;
            };
            let ran = times.split_whitespace().next().unwrap_or_default();
            let ran = ran
                .parse()
                .context("schedstat does not begin with a time")?;
            usage.cpu += Duration::from_nanos(ran);
            let Ok(status) = read(task.join("status")) else {
                continue;
            };
            usage.wakeups += field(&status, "voluntary_ctxt_switches:")?;
        }
        Ok(usage)
    }
}

fn read(file: PathBuf) -> Result<String> {
    fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))
}

/// The number behind a name at the beginning of a line.
fn field(status: &str, name: &str) -> Result<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|it| it.split_whitespace().next()?.parse().ok());
    number.with_context(|| format!("the kernel says nothing of {name}"))
}

/// Files that a process may have open at most, if it asks for as many.
pub(crate) fn most_open_files() -> Result<u64> {
    Ok(getrlimit(Resource::RLIMIT_NOFILE)?.1)
}

/// Lets this process have so many files open.
pub(crate) fn allow_open_files(needed: u64) -> Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < needed {
        setrlimit(Resource::RLIMIT_NOFILE, needed, hard)
            .with_context(|| format!("{needed} sockets and files are needed"))?;
    }
    Ok(())
}

/// The time of the clock that all processes of this machine have, and that is never set.
pub(crate) fn monotonic() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_MONOTONIC)?.into())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn memory_time_and_wakeups_are_counted() {
        let before = Usage::of(std::process::id()).unwrap();
        let memory = vec![1_u8; 64 << 20];
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(50) {
            std::hint::black_box(&memory);
        }
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let after = Usage::of(std::process::id()).unwrap();
        // Tests beside this one may end meanwhile, and give memory back.
        assert!(after.memory_bytes >= before.memory_bytes + (48 << 20));
        let ran = after.cpu.saturating_sub(before.cpu);
        assert!(ran >= Duration::from_millis(5), "{ran:?}");
        let woken = after.wakeups.saturating_sub(before.wakeups);
        assert!(woken >= 20, "{woken}");
        drop(memory);
    }

    #[test]
    fn field_is_found_by_its_whole_name() {
        let status =
            "nonvoluntary_ctxt_switches:\t7\nvoluntary_ctxt_switches:\t12\nRssAnon:\t     100 kB\n";
        assert_eq!(field(status, "voluntary_ctxt_switches:").unwrap(), 12);
        assert_eq!(field(status, "RssAnon:").unwrap(), 100);
        assert!(field(status, "VmRSS:").is_err());
    }
}
