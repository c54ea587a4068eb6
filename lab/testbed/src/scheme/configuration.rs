//! The configuration of the splitter's daemon on one border.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::SplitterScheme;
use crate::topology::{Border, GENERATOR, LAN, TUNNEL_QUEUE_BYTES, TUNNELS};

/// The daemon serves its metrics at this address, on the loopback device of its namespace.
pub const METRICS: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 9461);

/// Its text for the daemon on `border`, with its files below `directory`. Where the scheme's own configuration has
/// `health.key_file`, the other border is the peer in each tunnel.
pub(super) fn configuration(
    directory: &Path,
    border: &Border,
    rates_mbit: [u32; 2],
    scheme: &SplitterScheme,
) -> String {
    let health = scheme.configuration.get("health");
    let asks_peer = health.is_some_and(|it| it.get("key_file").is_some());
    let [short, long] = [0, 1].map(|index| Tunnel {
        device: TUNNELS[index],
        gateway: border.gateway_addresses(index),
        peer: asks_peer.then(|| border.gateways[index]),
        rate_mbit: scheme.states_rates.then_some(rates_mbit[index]),
    });
    let base = Configuration {
        name: "testbed",
        lan: [LAN, GENERATOR],
        runtime_dir: directory.join("run"),
        bpffs: directory.join("bpf"),
        short,
        long,
        flows: Flows {
            threshold: scheme.threshold,
        },
        handover: Handover {
            long_queue_ms: queue_ms(rates_mbit[1]),
        },
        attach: Attach {
            mode: scheme.attach.clone(),
        },
        metrics: Metrics {
            address: SocketAddr::from(METRICS).to_string(),
        },
    };
    let mut table = toml::Table::try_from(base).expect("plain strings and numbers");
    table.extend(scheme.configuration.clone());
    table.to_string()
}

#[derive(Serialize)]
struct Configuration {
    name: &'static str,
    lan: [&'static str; 2],
    runtime_dir: PathBuf,
    bpffs: PathBuf,
    short: Tunnel,
    long: Tunnel,
    flows: Flows,
    handover: Handover,
    attach: Attach,
    metrics: Metrics,
}

#[derive(Serialize)]
struct Tunnel {
    device: &'static str,
    gateway: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<Ipv4Addr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_mbit: Option<u32>,
}

#[derive(Serialize)]
struct Flows {
    threshold: u32,
}

#[derive(Serialize)]
struct Handover {
    long_queue_ms: u32,
}

#[derive(Serialize)]
struct Attach {
    mode: String,
}

#[derive(Serialize)]
struct Metrics {
    address: String,
}

/// What the FIFO of a tunnel of this rate holds, a little less than all.
fn queue_ms(rate_mbit: u32) -> u32 {
    TUNNEL_QUEUE_BYTES * 8 / (rate_mbit * 1_000) * 9 / 10
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{namespace::Namespace, require, require::Requirement::*};

    fn scheme(configuration: toml::Table) -> SplitterScheme {
        SplitterScheme {
            binary: "splitter".into(),
            threshold: 45,
            attach: "native".to_owned(),
            states_rates: true,
            configuration,
        }
    }

    #[test]
    fn configuration_can_be_replaced_by_section() {
        require!(Root, Program("ip"));
        let border = Border {
            namespace: Namespace::new("border").expect("we are root"),
            gateways: [Ipv4Addr::new(10, 9, 0, 2), Ipv4Addr::new(10, 9, 1, 2)],
            gateways_ipv6: None,
        };
        let extra: toml::Table = "[flows]\nthreshold = 7\n[handover]\nmax_wait_ms = 9"
            .parse()
            .expect("TOML");
        let text = configuration(Path::new("/x"), &border, [100, 50], &scheme(extra));
        let table: toml::Table = text.parse().expect("it wrote TOML");
        assert_eq!(table["flows"]["threshold"].as_integer(), Some(7));
        assert_eq!(table["handover"]["max_wait_ms"].as_integer(), Some(9));
        assert_eq!(table["long"]["rate_mbit"].as_integer(), Some(50));
        assert_eq!(table["long"]["gateway"][0].as_str(), Some("10.9.1.2"));
        assert_eq!(table["bpffs"].as_str(), Some("/x/bpf"));

        assert!(table["short"].get("peer").is_none());

        let probing = scheme("[health]\nkey_file = '/x/key'".parse().expect("TOML"));
        let text = configuration(Path::new("/x"), &border, [100, 50], &probing);
        let table: toml::Table = text.parse().expect("it wrote TOML");
        assert_eq!(table["long"]["peer"].as_str(), Some("10.9.1.2"));

        let silent = SplitterScheme {
            states_rates: false,
            ..scheme(toml::Table::new())
        };
        let text = configuration(Path::new("/x"), &border, [100, 50], &silent);
        assert!(!text.contains("rate_mbit"), "{text}");
    }
}
