//! How busy the machine is.

use std::{fs, io, time::Duration};

use nix::unistd::{SysconfVar, sysconf};

const SOURCE: &str = "/proc/stat";

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
pub(crate) fn busy() -> Result<Duration, CpuError> {
    let ticks_per_second = sysconf(SysconfVar::CLK_TCK)
        .ok()
        .flatten()
        .and_then(|it| u32::try_from(it).ok());
    let ticks = busy_ticks(&fs::read_to_string(SOURCE)?)?;
    Ok(Duration::from_secs_f64(
        ticks as f64 / f64::from(ticks_per_second.unwrap_or(100)),
    ))
}

/// user, nice, system, then irq and softirq; idle and waiting for disks lie between. Guests are part
/// of user already, and stolen time belongs to other machines.
fn busy_ticks(text: &str) -> Result<u64, CpuError> {
    let line = text.lines().next().unwrap_or_default();
    let ticks = || {
        let fields: Vec<u64> = line
            .strip_prefix("cpu ")?
            .split_whitespace()
            .map(|field| field.parse().ok())
            .collect::<Option<_>>()?;
        let busy = fields.get(..3)?.iter().chain(fields.get(5..7)?);
        Some(busy.sum())
    };
    ticks().ok_or_else(|| CpuError::Parse(line.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_all_but_idle_and_waiting() {
        let text = "cpu  1 2 4 1000 2000 8 16 4000 0 0\ncpu0 1 2 4 1000 2000 8 16 0 0 0\n";
        assert_eq!(busy_ticks(text).expect("valid"), 31);
        assert!(busy().is_ok());
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
