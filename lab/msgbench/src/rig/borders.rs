//! The splitter at both routers, as an operator would run it there.

use std::{fmt::Write as _, path::Path};

use flow_testbed::{
    namespace::Namespace,
    require::{Lacking, Requirement},
    scheme::{Agent, METRICS, SchemeError},
};
use tokio_util::sync::CancellationToken;

use super::{LAN, PATH_DEVICES, QUEUE_BYTES, Rig, gateway};

/// The DSCP by which the splitter knows Cloudburst's datagrams.
pub const CLOUDBURST_DSCP: u8 = 44;
/// The part of each path that its queue may send at: about as much as the short class, where its peers are.
pub const CLOUDBURST_PERCENT: u32 = 90;
/// Packets of a flow that are still short, as in the demonstration.
const THRESHOLD: u32 = 45;

/// Says what the splitters are to do besides sharing the paths between short and long flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BorderOptions {
    /// Whether Cloudburst's datagrams have a queue of their own before each path.
    pub cloudburst_queue: bool,
    /// Whether flows of UDP, such as QUIC's, are split, too.
    pub splits_udp: bool,
}

/// The splitter at work at both routers. Dropping it kills its processes; [`remove`](Self::remove) ends them
/// properly.
#[derive(Debug)]
pub struct Borders(Vec<Agent>);

impl Rig {
    /// Checks that splitters can run at the routers.
    ///
    /// # Errors
    /// The first thing that is lacking, with what helps.
    pub fn require_borders() -> Result<(), Lacking> {
        let needed = [
            Requirement::FileSystem("bpf"),
            Requirement::QueueingDiscipline("htb"),
            Requirement::CongestionControl("cubic"),
        ];
        needed.into_iter().try_for_each(Requirement::check)
    }

    /// Starts the program `splitter` at both routers and waits until it is at work. Call it from a thread that
    /// lasts: processes end with the thread that started them.
    ///
    /// # Errors
    /// When it cannot be started or is not ready in time, or after `cancel`.
    pub fn split(
        &self,
        splitter: &Path,
        options: BorderOptions,
        cancel: &CancellationToken,
    ) -> Result<Borders, SchemeError> {
        let rate_mbit = self.options.rate_mbit;
        let start = |router: &Namespace, far| {
            Agent::launch(router, splitter, |directory| {
                configuration(directory, far, rate_mbit, options)
            })
        };
        let mut agents = vec![start(&self.router_a, 2)?, start(&self.router_b, 1)?];
        for agent in &mut agents {
            agent.wait_until_ready(cancel)?;
        }
        Ok(Borders(agents))
    }
}

impl Borders {
    /// Ends the splitters and checks that they took away all that they had set up.
    ///
    /// # Errors
    /// For one that did not end well or left something.
    pub fn remove(self) -> Result<(), SchemeError> {
        self.0.into_iter().try_for_each(Agent::stop)
    }
}

/// The splitter's configuration at a router, with its files in `directory`; the router at the other end of the paths
/// is number `far`.
fn configuration(directory: &Path, far: u8, rate_mbit: u32, options: BorderOptions) -> String {
    let path = |name: &str| toml::Value::from(directory.join(name).display().to_string());
    let mut text = format!(
        "name = \"msgbench\"\nlan = [\"{LAN}\"]\nruntime_dir = {}\nbpffs = {}\n",
        path("run"),
        path("bpf")
    );
    // More than two paths are one list, of which each packet takes the one by which it arrives first.
    let _ = writeln!(text, "policy = \"share\"\nbalance = \"tr\"");
    for (index, device) in PATH_DEVICES.iter().enumerate() {
        let gateway = gateway(index, far);
        let _ = writeln!(
            text,
            "[[tunnels]]\ndevice = \"{device}\"\ngateway = \"{gateway}\"\nrate_mbit = {rate_mbit}"
        );
    }
    let _ = writeln!(text, "[short]\n[long]\n[steering]\nmode = \"mark\"");
    let _ = writeln!(text, "[flows]\nthreshold = {THRESHOLD}");
    if options.splits_udp {
        let _ = writeln!(text, "protocols = [\"tcp\", \"udp\"]");
    }
    // The queues that were there, by their length.
    let queue_ms = (QUEUE_BYTES * 8 / (rate_mbit * 1_000)).clamp(1, 1_000);
    let _ = writeln!(text, "[share]\nshape_percent = 100\nqueue_ms = {queue_ms}");
    if options.cloudburst_queue {
        let _ = writeln!(
            text,
            "cloudburst_dscp = {CLOUDBURST_DSCP}\ncloudburst_percent = {CLOUDBURST_PERCENT}"
        );
    }
    let _ = writeln!(text, "[metrics]\naddress = \"{}:{}\"", METRICS.0, METRICS.1);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(options: BorderOptions) -> toml::Table {
        let text = configuration(Path::new("/x"), 2, 50, options);
        text.parse().expect("TOML")
    }

    #[test]
    fn all_paths_are_tunnels_with_their_rates_and_queues() {
        let table = parsed(BorderOptions {
            cloudburst_queue: false,
            splits_udp: false,
        });
        let tunnels = table["tunnels"].as_array().expect("a list");
        assert_eq!(tunnels.len(), 4);
        assert_eq!(tunnels[3]["device"].as_str(), Some("path3"));
        assert_eq!(tunnels[3]["gateway"].as_str(), Some("10.9.3.2"));
        assert_eq!(tunnels[3]["rate_mbit"].as_integer(), Some(50));
        assert_eq!(table["share"]["queue_ms"].as_integer(), Some(16));
        assert!(table["share"].get("cloudburst_dscp").is_none());
        assert!(table["flows"].get("protocols").is_none());
    }

    #[test]
    fn queue_and_udp_are_there_if_asked_for() {
        let table = parsed(BorderOptions {
            cloudburst_queue: true,
            splits_udp: true,
        });
        assert_eq!(table["share"]["cloudburst_dscp"].as_integer(), Some(44));
        let protocols = table["flows"]["protocols"].as_array().expect("a list");
        assert_eq!(protocols.len(), 2);
    }
}
