//! Both borders with an agent each, and tunnels between them that can be made to fail.

use std::os::unix::fs::PermissionsExt as _;

use flow_testbed::namespace::Namespace;
use flow_testbed::require::skip;
use flow_testbed::timed::{Claim, decide};
use flow_testbed::topology::{GENERATOR, LAN, TUNNELS};
use serde_json::Value;

use super::daemon::Daemon;
use super::site::{BINARY, Site, get_from, on_site};

/// Times that keep tests short, and say so where a test depends on them.
pub(crate) const QUICK: &str = "hold_down_s = 1\nmax_hold_down_s = 2\n";

const KEY: &str = "00112233445566778899aabbccddeeff0123456789abcdef0123456789abcdef\n";

/// Runs a test on two sites whose tunnels can be cut, or says why not.
pub(crate) fn on_pair(test: impl FnOnce(&Pair) + Send) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    on_site(|site| {
        let pair = Pair { site };
        if let Err(error) = pair.cut("lo", "drop") {
            let test = format!("{}::{name}", env!("CARGO_CRATE_NAME"));
            let reason = format!(
                "cannot drop packets where a device receives them: {error}; use a kernel with nf_tables for netdev, and nft"
            );
            return skip(&test, &reason);
        }
        pair.mend("lo");
        test(&pair);
    });
}

/// Decides a claim about time on two such sites.
pub(crate) fn decide_on_pair(
    claim: &Claim,
    attempt: impl FnOnce(&Pair) -> Result<(), String> + Send,
) {
    decide(claim, || {
        let mut held = Ok(());
        on_pair(|pair| held = attempt(pair));
        held
    });
}

/// Two borders.
pub(crate) struct Pair<'a> {
    pub(crate) site: &'a Site,
}

impl Pair<'_> {
    /// The second site's border.
    pub(crate) fn far(&self) -> &Namespace {
        &self.site.topology.borders[1].namespace
    }

    /// Writes key and configurations, with these keys under `[health]`, and starts both agents.
    pub(crate) fn run(&self, health: &str) -> (Daemon, Daemon) {
        self.configure(true, health);
        let far = self.run_far();
        (self.site.run(), far)
    }

    /// Writes key and configurations; with the other border as `peer` of each tunnel, or without.
    pub(crate) fn configure(&self, has_peers: bool, health: &str) {
        let key = self.site.path("key");
        std::fs::write(&key, KEY).expect("a file");
        self.key_mode(0o600);
        let key_line = match has_peers {
            true => format!("key_file = {key:?}\n"),
            false => String::new(),
        };
        let sections = |border: usize| {
            let tunnel = |index: usize| {
                let border = &self.site.topology.borders[border];
                let gateways = border.gateway_addresses(index);
                let peer = match has_peers {
                    true => format!("peer = '{}'\n", gateways[0]),
                    false => String::new(),
                };
                let device = TUNNELS[index];
                format!("device = '{device}'\ngateway = {gateways:?}\nrate_mbit = 100\n{peer}")
            };
            format!(
                "[short]\n{}[long]\n{}[health]\n{key_line}{health}\n",
                tunnel(0),
                tunnel(1)
            )
        };
        self.site.configure(&sections(0));
        let far = format!(
            "name = 'far'\nlan = ['{LAN}', '{GENERATOR}']\nruntime_dir = {:?}\nbpffs = {:?}\n\
             [flows]\ntable_size = 4096\n{}",
            self.site.path("run"),
            self.site.bpffs(),
            sections(1),
        );
        std::fs::write(self.site.path("far.toml"), far).expect("a file");
    }

    pub(crate) fn key_mode(&self, mode: u32) {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(self.site.path("key"), mode).expect("it is ours");
    }

    /// Starts the agent of the other border and waits until it is ready.
    pub(crate) fn run_far(&self) -> Daemon {
        let mut command = self.far().command(BINARY);
        let config = self.site.path("far.toml");
        command.arg("--config").arg(config).arg("run");
        let daemon = Daemon::start(command, &self.site.path("far-log"));
        self.site.wait_for("the far daemon to be ready", || {
            match get_from(self.far(), "/ready") {
                Ok((200, _)) => Some(()),
                _ => {
                    assert!(daemon.is_running(), "it ended:\n{}", daemon.log());
                    None
                }
            }
        });
        daemon
    }

    /// From now on the far border receives nothing by this device, or what `rule` leaves. The
    /// near one sees nothing of that: its link stays up.
    pub(crate) fn cut(&self, device: &str, rule: &str) -> Result<(), String> {
        cut_at(self.far(), device, rule)
    }

    pub(crate) fn mend(&self, device: &str) {
        mend_at(self.far(), device);
    }

    /// What `splitter status` reports of the tunnels' health.
    pub(crate) fn health(&self) -> Value {
        self.site.json(&["status"])["health"].clone()
    }

    /// Where the short and the long class are.
    pub(crate) fn egresses(&self) -> (String, String) {
        let health = self.health();
        let egress = |class: usize| {
            let egress = health["classes"][class]["tunnel"].as_str();
            egress.unwrap_or_default().to_owned()
        };
        (egress(0), egress(1))
    }

    /// Waits until the classes are there.
    pub(crate) fn wait_for_seats(&self, short: &str, long: &str) {
        let mut last = (String::new(), String::new());
        self.site.wait_for("the classes to move", || {
            last = self.egresses();
            (last.0 == short && last.1 == long).then_some(())
        });
    }

    /// Waits until both tunnels are known by echo.
    pub(crate) fn wait_for_echo(&self) {
        self.site.wait_for("the echo of both tunnels", || {
            let health = self.health();
            let by_echo = |tunnel: usize| {
                let tunnel = &health["tunnels"][tunnel];
                tunnel["evidence"] == "echo" && tunnel["condition"] == "up"
            };
            (by_echo(0) && by_echo(1)).then_some(())
        });
    }
}

/// From now on a border receives nothing by this device, or what `rule` leaves.
pub(crate) fn cut_at(border: &Namespace, device: &str, rule: &str) -> Result<(), String> {
    let chain = format!("type filter hook ingress device \"{device}\" priority 0;");
    let table = format!("table netdev cut_{device} {{\nchain cut {{\n{chain}\n{rule}\n}}\n}}\n");
    let cut = border.run_with_input("nft -f -", &table);
    cut.map(drop).map_err(|error| error.to_string())
}

pub(crate) fn mend_at(border: &Namespace, device: &str) {
    let line = format!("nft delete table netdev cut_{device}");
    border.run(&line).expect("it was cut");
}
