//! The program on ns-3's side: compiled here, and run with flows of the simulator.

use std::{fmt::Write as _, fs, path::Path, process::Command};

use anyhow::{Context, Result, bail};
use netsim::Outcome;

use super::{BUFFER_PACKETS, DELAY_US, GBPS, MARK_PACKETS, replay::TRACE};

/// The program's files by name; the first is compiled.
const PROGRAM: [(&str, &str); 2] = [
    (
        "fabric.cc",
        include_str!("../../../../netsim/ns3/fabric.cc"),
    ),
    ("sender.h", include_str!("../../../../netsim/ns3/sender.h")),
];
const LIBRARIES: [&str; 6] = [
    "ns3-core",
    "ns3-network",
    "ns3-internet",
    "ns3-point-to-point",
    "ns3-traffic-control",
    "ns3-applications",
];

/// Returns the compiler's arguments, or says what is missing.
pub(super) fn flags() -> std::result::Result<Vec<String>, String> {
    let missing =
        "ns-3 is not here; on Debian and Ubuntu `cargo xtask setup --only ns3` installs it";
    let found = Command::new("pkg-config")
        .args(["--cflags", "--libs"])
        .args(LIBRARIES)
        .output();
    match found {
        Ok(found) if found.status.success() => {
            let text = String::from_utf8_lossy(&found.stdout);
            Ok(text.split_whitespace().map(str::to_owned).collect())
        }
        Ok(found) => {
            let stderr = String::from_utf8_lossy(&found.stderr);
            let first = stderr.lines().next().unwrap_or_default();
            Err(format!("{missing} (pkg-config: {first})"))
        }
        Err(error) => Err(format!("{missing} (pkg-config: {error})")),
    }
}

/// The program on the other side.
pub(super) struct Ns3<'a> {
    directory: &'a Path,
}

impl<'a> Ns3<'a> {
    /// Compiles the program into a directory, if it is not there.
    pub(super) fn build(directory: &'a Path, flags: &[String]) -> Result<Self> {
        let source = directory.join(PROGRAM[0].0);
        let program = directory.join("fabric");
        let is_same = |(name, text): (&str, &str)| {
            fs::read_to_string(directory.join(name)).is_ok_and(|it| it == text)
        };
        if !program.is_file() || !PROGRAM.into_iter().all(is_same) {
            for (name, text) in PROGRAM {
                let file = directory.join(name);
                fs::write(&file, text)
                    .with_context(|| format!("cannot write {}", file.display()))?;
            }
            let status = Command::new("c++")
                .args(["-std=c++17", "-O2", "-o"])
                .args([&program, &source])
                .args(flags)
                .status()
                .context("cannot call c++; install a C++ compiler")?;
            if !status.success() {
                // Lest the next time it counts as built.
                let _ = fs::remove_file(&source);
                bail!("c++ cannot build {}", source.display());
            }
        }
        Ok(Self { directory })
    }

    /// Runs the flows of an outcome, with options of the program.
    pub(super) fn run(
        &self,
        hosts_per_leaf: u16,
        ours: &Outcome,
        options: &[String],
    ) -> Result<Theirs> {
        let file = self.directory.join("flows");
        let mut text = String::new();
        for it in &ours.flows {
            writeln!(text, "{} {} {} {}", it.from, it.to, it.bytes, it.start_ns)?;
        }
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        let program = self.directory.join("fabric");
        let program = program
            .canonicalize()
            .with_context(|| format!("{} is gone", program.display()))?;
        let ran = Command::new(&program)
            .args(
                [
                    u32::from(hosts_per_leaf),
                    GBPS,
                    DELAY_US,
                    BUFFER_PACKETS,
                    MARK_PACKETS,
                ]
                .map(|it| it.to_string()),
            )
            .arg(&file)
            .args(options)
            .output()
            .with_context(|| format!("cannot run {}", program.display()))?;
        if !ran.status.success() {
            let stderr = String::from_utf8_lossy(&ran.stderr);
            bail!("ns-3 failed ({}): {}", ran.status, stderr.trim());
        }
        parse(&String::from_utf8_lossy(&ran.stdout), ours.flows.len())
    }
}

/// What a run of the other program came to.
#[derive(Debug, PartialEq)]
pub(super) struct Theirs {
    pub(super) times_us: Vec<f64>,
    /// Retransmission timeouts of each flow.
    pub(super) timeouts: Vec<f64>,
    /// Packets that switches dropped.
    pub(super) dropped: f64,
    /// Processor time.
    pub(super) seconds: f64,
    /// Events that a sender met, where one was traced.
    pub(super) trace: Vec<String>,
}

/// A completion time in ns and a number of timeouts a line, and at the end what was dropped and the seconds. Lines of a trace stand before them.
fn parse(text: &str, flows: usize) -> Result<Theirs> {
    let (mut times_us, mut timeouts) = (Vec::new(), Vec::new());
    let (mut dropped, mut seconds) = (None, None);
    let mut trace = Vec::new();
    for line in text.lines() {
        let number = |text: &str| {
            let number = text.parse::<f64>();
            number.with_context(|| format!("ns-3 printed {line:?} where a number belongs"))
        };
        match line.split_once(' ') {
            Some(("seconds", rest)) => seconds = Some(number(rest)?),
            Some(("dropped", rest)) => dropped = Some(number(rest)?),
            Some((TRACE, rest)) => trace.push(rest.to_owned()),
            Some((ns, count)) => {
                times_us.push(number(ns)? / 1e3);
                timeouts.push(number(count)?);
            }
            None => bail!("ns-3 printed {line:?} where a flow's time and timeouts belong"),
        }
    }
    if times_us.len() != flows {
        bail!("ns-3 reported {} flows instead of {flows}", times_us.len());
    }
    Ok(Theirs {
        times_us,
        timeouts,
        dropped: dropped.context("ns-3 did not report what was dropped")?,
        seconds: seconds.context("ns-3 did not report its time")?,
        trace,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ns3_prints_is_read_and_checked() {
        let text = "trace sent 1\n8800 0\n1500 2\ndropped 7\nseconds 0.25\n";
        let theirs = parse(text, 2).expect("it is right");
        let expected = Theirs {
            times_us: vec![8.8, 1.5],
            timeouts: vec![0.0, 2.0],
            dropped: 7.0,
            seconds: 0.25,
            trace: vec!["sent 1".to_owned()],
        };
        assert_eq!(theirs, expected);
        for (wrong, flows) in [
            ("8800 0\ndropped 7\nseconds 1\n", 2),
            ("8800 0\ndropped 7\n", 1),
            ("8800 0\nseconds 1\n", 1),
            ("8800\ndropped 7\nseconds 1\n", 1),
            ("x 0\ndropped 7\nseconds 1\n", 1),
            ("8800 x\ndropped 7\nseconds 1\n", 1),
        ] {
            assert!(parse(wrong, flows).is_err(), "{wrong:?}");
        }
    }
}
