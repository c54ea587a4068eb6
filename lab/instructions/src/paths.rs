//! The paths that are counted: what a packet meets, and what must become of it there.

mod balanced;
mod egress;
mod fabric;
mod insertion;
mod known;
mod passed;
mod rated;

use std::fmt::Write as _;

use anyhow::{Result, ensure};
use splitter_policy::config::PolicyConfig;

use crate::border::{Border, Measured};
use crate::counts::Counts;
use crate::objects::{Object, Objects};
use crate::packet::{Ip, Packet, Upper};

/// A path through a program.
pub struct Path {
    /// What it is called in the record.
    pub name: String,
    /// What is done with its packet, in [`Measured::done`]'s words: a packet that takes another path
    /// does something else.
    pub does: Vec<String>,
    /// The object whose program it leads through.
    pub object: Object,
    run: Run,
}

/// Runs a path on the object that it is of, and measures its packet.
type Run = Box<dyn Fn(&[u8]) -> Result<Measured>>;

/// Sends what comes before a path's packet, and measures that.
type Course = Box<dyn Fn(&mut Border) -> Result<Measured>>;

/// A full segment of the flow with a number.
type Segment = fn(u16) -> Vec<u8>;

impl Path {
    /// A path through `program` under settings: `course` sends what comes before its packet, and
    /// measures that.
    fn new(
        name: impl Into<String>,
        program: &'static str,
        config: PolicyConfig,
        does: &[&str],
        course: impl Fn(&mut Border) -> Result<Measured> + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            does: does.iter().map(|it| (*it).to_owned()).collect(),
            object: Object::Splitter,
            run: Box::new(move |object| {
                let mut border = Border::new(object, program, config)?;
                course(&mut border)
            }),
        }
    }

    /// A path through a program of a leaf or a spine.
    fn of_fabric(
        name: String,
        does: &[&str],
        run: impl Fn(&[u8]) -> Result<Measured> + 'static,
    ) -> Self {
        Self {
            name,
            does: does.iter().map(|it| (*it).to_owned()).collect(),
            object: Object::Fabric,
            run: Box::new(run),
        }
    }

    /// Counts what the path takes.
    ///
    /// # Errors
    /// When its object cannot be run, or the packet did not do what the path's name says.
    pub fn count(&self, objects: &Objects) -> Result<Counts> {
        let Measured { counts, done } = (self.run)(objects.of(self.object))?;
        ensure!(
            done == self.does,
            "its packet no longer takes the path of that name: it was to do {:?}, and did {done:?}; \
             give it other settings, or other packets before it, in lab/instructions/src/paths/",
            self.does
        );
        Ok(counts)
    }
}

/// All paths, in the order in which they are shown.
#[must_use]
pub fn all() -> Vec<Path> {
    let mut paths = known::paths();
    paths.extend(insertion::paths());
    paths.extend(rated::paths());
    paths.extend(balanced::paths());
    paths.extend(egress::paths());
    paths.extend(passed::paths());
    paths.extend(fabric::paths());
    paths
}

/// A table of counts, a path each.
#[must_use]
pub fn table<'a>(rows: impl Iterator<Item = (&'a str, &'a Counts)> + Clone) -> String {
    let width = rows.clone().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut table = format!(
        "{:width$}  instructions  loads  stores  on stack  atomics  flow lines  shared lines  functions  helpers\n",
        "path"
    );
    for (name, counts) in rows {
        let Counts {
            instructions,
            loads,
            stores,
            stack_accesses,
            atomics,
            flow_lines,
            shared_lines,
            function_calls,
            helper_calls,
        } = counts;
        let _ = writeln!(
            table,
            "{name:width$}  {instructions:>12}  {loads:>5}  {stores:>6}  {stack_accesses:>8}  \
             {atomics:>7}  {flow_lines:>10}  {shared_lines:>12}  {function_calls:>9}  {helper_calls:>7}"
        );
    }
    table
}

/// The settings of an agent at a LAN with an MTU of 1,500 bytes: with more payload a segment is an aggregate.
fn ordinary() -> PolicyConfig {
    PolicyConfig {
        segment_bytes: 1_460,
        ..PolicyConfig::default()
    }
}

/// By which a flow is long with its 41st packet, and changes tunnels at once.
fn eager() -> PolicyConfig {
    PolicyConfig {
        drain_margin_ns: 0,
        ..ordinary()
    }
}

/// Packets after which a flow is long, and at home in its tunnel.
const LONG: usize = 50;

/// Packets after which a flow is short still, and no longer a new one.
const SHORT: usize = 10;

/// Both families, by their names.
const FAMILIES: [(&str, Segment); 2] = [("v4", v4), ("v6", v6)];

fn v4(flow: u16) -> Vec<u8> {
    segment(Ip::v4(), flow, ACK, 1_460).bytes()
}

fn v6(flow: u16) -> Vec<u8> {
    segment(Ip::v6(Vec::new()), flow, ACK, 1_440).bytes()
}

const FIN: u8 = 0x11;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

fn segment(ip: Ip, flow: u16, flags: u8, payload_bytes: usize) -> Packet {
    Packet {
        tags: Vec::new(),
        ip,
        traffic_class: 0,
        upper: Upper::Tcp {
            ports: (10_000 + flow, 443),
            flags,
            option_bytes: 0,
        },
        payload_bytes,
    }
}
