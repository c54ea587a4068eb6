//! What the programs at a leaf's host links take a packet, as the kernel accounts for it.

use std::{
    collections::BTreeMap,
    fs,
    os::fd::{AsFd as _, AsRawFd as _},
};

use aya::programs::{SchedClassifier, tc::TcAttachType};

use crate::rig::Rig;

/// Runs of programs since they were loaded, and the time that these took, while that was accounted for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunTime {
    pub(crate) ns: u64,
    pub(crate) runs: u64,
}

impl RunTime {
    /// What a run took since `earlier`; nothing without one.
    pub(crate) fn ns_per_run_since(self, earlier: Self) -> Option<f64> {
        let runs = self.runs.saturating_sub(earlier.runs);
        let ns = self.ns.saturating_sub(earlier.ns);
        (runs > 0 && ns > 0).then(|| ns as f64 / runs as f64)
    }
}

/// The programs that the leaves have attached (TCX) to what comes in from their hosts, all together. Nothing
/// where there are none, or the kernel tells nothing of them.
pub(crate) fn run_time(rig: &Rig) -> RunTime {
    let mut sum = RunTime::default();
    for leaf in &rig.leaves {
        let read = || of_devices(&leaf.host_devices);
        let programs = leaf.namespace.enter(read).unwrap_or_default();
        sum.ns += programs.values().map(|it| it.ns).sum::<u64>();
        // Those behind each other run once for a packet each.
        sum.runs += programs.values().map(|it| it.runs).max().unwrap_or(0);
    }
    sum
}

/// The programs of some devices of this namespace by their number: one may be attached to several.
fn of_devices(devices: &[String]) -> BTreeMap<u32, RunTime> {
    let mut programs = BTreeMap::new();
    for device in devices {
        let queried = SchedClassifier::query_tcx(device, TcAttachType::Ingress);
        for program in queried.map(|(_, programs)| programs).unwrap_or_default() {
            if let Ok(file) = program.fd() {
                let number = file.as_fd().as_raw_fd();
                let text = fs::read_to_string(format!("/proc/thread-self/fdinfo/{number}"));
                programs.insert(program.id(), parse(&text.unwrap_or_default()));
            }
        }
    }
    programs
}

/// Reads what the kernel shows of a program's descriptor.
fn parse(text: &str) -> RunTime {
    let value = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = lines.find(|(own, _)| *own == name)?;
        value.trim().parse().ok()
    };
    RunTime {
        ns: value("run_time_ns").unwrap_or(0),
        runs: value("run_cnt").unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_runs_are_those_that_the_kernel_shows() {
        let text = "pos:\t0\nprog_type:\t3\nprog_id:\t7\nrun_time_ns:\t9000\nrun_cnt:\t30\n";
        let read = parse(text);
        assert_eq!((read.ns, read.runs), (9_000, 30));
        let earlier = RunTime {
            ns: 3_000,
            runs: 10,
        };
        assert_eq!(read.ns_per_run_since(earlier), Some(300.0));
        // Where nothing runs, or nothing is accounted for.
        assert_eq!(read.ns_per_run_since(read), None);
        assert_eq!(parse("run_cnt:\t5").ns_per_run_since(parse("")), None);
    }
}
