//! How busy the machine is.

use std::{fs, io, time::Duration};

use nix::unistd::{SysconfVar, sysconf};

const SOURCE: &str = "/proc/stat";
/// A line for each core, of hexadecimal numbers; the second is that of packets dropped
/// (`softnet_seq_show` in the kernel's net/core/net-procfs.c).
const BACKLOGS: &str = "/proc/net/softnet_stat";

/// Why the machine's CPU time could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CpuError {
    /// The file could not be read.
    #[error("cannot read {SOURCE}: {0}")]
    Read(#[from] io::Error),
    /// It has a form that is not known.
    #[error("cannot understand the first line of {SOURCE}: {0:?}")]
    Parse(String),
}

/// CPU time since boot that all cores together were not idle.
///
/// # Errors
/// When the kernel does not tell it in a form that is known.
pub fn busy() -> Result<Duration, CpuError> {
    time_of(busy_ticks)
}

/// CPU time since boot that a virtual machine's cores would have worked and were not let to.
pub(crate) fn stolen() -> Result<Duration, CpuError> {
    time_of(stolen_ticks)
}

/// Packets since boot for which the input queues of all cores had no room; 0 where the kernel does
/// not tell. The cores' queues are those of all network namespaces.
pub(crate) fn dropped() -> u64 {
    fs::read_to_string(BACKLOGS).map_or(0, |text| dropped_packets(&text))
}

fn time_of(ticks: fn(&str) -> Result<u64, CpuError>) -> Result<Duration, CpuError> {
    let ticks_per_second = sysconf(SysconfVar::CLK_TCK)
        .ok()
        .flatten()
        .and_then(|it| u32::try_from(it).ok());
    let ticks = ticks(&fs::read_to_string(SOURCE)?)?;
    Ok(Duration::from_secs_f64(
        ticks as f64 / f64::from(ticks_per_second.unwrap_or(100)),
    ))
}

/// user, nice, system, then irq and softirq; idle and waiting for disks lie between. Guests are part
/// of user already, and stolen time belongs to other machines.
fn busy_ticks(text: &str) -> Result<u64, CpuError> {
    let fields = fields(text)?;
    let busy = fields[..3].iter().chain(&fields[5..7]);
    Ok(busy.sum())
}

fn stolen_ticks(text: &str) -> Result<u64, CpuError> {
    Ok(fields(text)?[7])
}

/// What all cores together spent on what, up to the stolen time.
fn fields(text: &str) -> Result<[u64; 8], CpuError> {
    let line = text.lines().next().unwrap_or_default();
    let fields = || {
        let fields = line.strip_prefix("cpu ")?.split_whitespace().take(8);
        let fields: Vec<u64> = fields
            .map(|field| field.parse().ok())
            .collect::<Option<_>>()?;
        fields.try_into().ok()
    };
    fields().ok_or_else(|| CpuError::Parse(line.to_owned()))
}

fn dropped_packets(text: &str) -> u64 {
    let dropped = |line: &str| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok();
    text.lines().filter_map(dropped).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_all_but_idle_and_waiting() {
        let text = "cpu  1 2 4 1000 2000 8 16 4000 0 0\ncpu0 1 2 4 1000 2000 8 16 0 0 0\n";
        assert_eq!(busy_ticks(text).expect("valid"), 31);
        assert_eq!(stolen_ticks(text).expect("valid"), 4000);
        assert!(busy().is_ok());
    }

    #[test]
    fn drops_are_those_of_all_cores() {
        let text = "0000a000 0000000f 00000001 00000000\n00000010 00000001 00000002 00000000\n";
        assert_eq!(dropped_packets(text), 16);
        assert_eq!(dropped_packets("none"), 0);
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        for text in ["", "cpu 1 2", "cpu a b c d e f g", "intr 1 2 3 4 5 6 7"] {
            assert!(
                matches!(busy_ticks(text), Err(CpuError::Parse(_))),
                "{text:?}"
            );
        }
    }
}
