//! What the agent itself takes of the machine, and what it is called.

use std::fmt;
use std::fs;
use std::time::{Duration, SystemTime};

use nix::time::{ClockId, clock_gettime};
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};

use super::SplitterCollector;

impl SplitterCollector {
    pub(super) fn encode_process(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let families = &self.families;
        let used = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
        let used = used.map_or(f64::NAN, |time| Duration::from(time).as_secs_f64());
        families
            .cpu
            .encode(encoder)?
            .encode_counter::<NoLabelSet, _, u64>(&used, None)?;
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let open = fs::read_dir("/proc/self/fd").map(Iterator::count);
        let started = self.started.duration_since(SystemTime::UNIX_EPOCH);
        let sweep = self.monitor.last_sweep();
        let gauges = [
            (&families.resident, resident_bytes(&status)),
            // One of them is the directory that is read.
            (&families.open_files, open.ok().map(|it| it as f64 - 1.0)),
            (
                &families.started_at,
                started.ok().map(|it| it.as_secs_f64()),
            ),
            (&families.sweep, Some(sweep.as_secs_f64())),
        ];
        for (family, value) in gauges {
            let value = value.unwrap_or(f64::NAN);
            family.encode(encoder)?.encode_gauge(&value)?;
        }
        let name = [("name", self.instance.as_str())];
        families.instance.encode(encoder)?.encode_info(&name)
    }
}

/// From the line `VmRSS:     1234 kB` of /proc/self/status.
fn resident_bytes(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"))?;
    let kibibytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_in_bytes() {
        let status = "VmPeak:\t  9000 kB\nVmRSS:\t    12 kB\n";
        assert_eq!(resident_bytes(status), Some(12_288.0));
        assert_eq!(resident_bytes("VmRSS: many"), None);
    }
}
