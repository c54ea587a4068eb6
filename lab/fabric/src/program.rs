//! What the programs at a leaf's host links take of time and memory, as the kernel accounts for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::fd::{AsFd, AsRawFd as _},
};

use aya::{
    maps::MapInfo,
    programs::{ProgramInfo, SchedClassifier, tc::TcAttachType},
};

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

/// The bytes that the maps of these programs take, each counted once.
pub(crate) fn map_bytes(rig: &Rig) -> u64 {
    let mut maps = BTreeSet::new();
    for leaf in &rig.leaves {
        let read = || attached(&leaf.host_devices);
        let programs = leaf.namespace.enter(read).unwrap_or_default();
        let of_program = |it: ProgramInfo| it.map_ids().ok().flatten().unwrap_or_default();
        maps.extend(programs.into_iter().flat_map(of_program));
    }
    let taken = maps.into_iter().filter_map(|it| {
        let file = MapInfo::from_id(it).ok()?.fd().ok()?;
        value(&shown(&file), "memlock")
    });
    taken.sum()
}

fn attached(devices: &[String]) -> Vec<ProgramInfo> {
    let queried = devices.iter().filter_map(|device| {
        let queried = SchedClassifier::query_tcx(device, TcAttachType::Ingress);
        Some(queried.ok()?.1)
    });
    queried.flatten().collect()
}

/// The programs of some devices of this namespace by their number: one may be attached to several.
fn of_devices(devices: &[String]) -> BTreeMap<u32, RunTime> {
    let programs = attached(devices).into_iter();
    let read = programs.filter_map(|it| Some((it.id(), parse(&shown(&it.fd().ok()?)))));
    read.collect()
}

/// The kernel's words about a descriptor; nothing where it has none.
fn shown(file: &impl AsFd) -> String {
    let number = file.as_fd().as_raw_fd();
    fs::read_to_string(format!("/proc/thread-self/fdinfo/{number}")).unwrap_or_default()
}

/// Reads what the kernel shows of a program's descriptor.
fn parse(text: &str) -> RunTime {
    RunTime {
        ns: value(text, "run_time_ns").unwrap_or(0),
        runs: value(text, "run_cnt").unwrap_or(0),
    }
}

fn value(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(own, _)| *own == name)?;
    value.trim().parse().ok()
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
        assert_eq!(value("pos:\t0\nmemlock:\t4096\n", "memlock"), Some(4_096));
        // Where nothing runs, or nothing is accounted for.
        assert_eq!(read.ns_per_run_since(read), None);
        assert_eq!(parse("run_cnt:\t5").ns_per_run_since(parse("")), None);
    }
}
