//! `playground`: two sites with traffic, and what watches them, until Ctrl-C.
//!
//! The borders run the real agent in network namespaces, whose pages nobody outside would reach;
//! [`forward`] serves them on this machine. Everything ends with this process.

mod forward;
mod prometheus;

use std::{
    fs,
    io::Write as _,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use flow_cli::Signals;
use flow_testbed::{
    demo::{preflight, short_per_second},
    scheme::{Scheme, SchemeError, SplitterScheme},
    topology::{Topology, TopologyOptions},
    traffic::{self, TrafficError},
    workload::{Background, ShortFlows, Workload},
};
use tokio_util::sync::CancellationToken;

use self::{forward::Forward, prometheus::Prometheus};

/// So long is each schedule of traffic; the next one follows with another seed.
const ROUND: Duration = Duration::from_secs(300);
/// For flows that are under way at the end of one.
const DRAIN: Duration = Duration::from_secs(5);
/// What the borders are called on the terminal.
const BORDERS: [&str; 2] = ["Border A", "Border B"];

/// Keep two sites with traffic between them, and what watches them, until Ctrl-C.
#[derive(Debug, clap::Args)]
pub(crate) struct Playground {
    /// The splitter's policy: dedicated (a tunnel for each class) or share (both carry both).
    #[arg(long, value_parser = ["dedicated", "share"], default_value = "dedicated")]
    policy: String,
    /// Background load, in percent of both tunnels, its packets' headers included.
    #[arg(
        long,
        value_name = "PERCENT",
        default_value_t = 40,
        value_parser = clap::value_parser!(u8).range(0..=95)
    )]
    load: u8,
    /// Rates of the two tunnels, in Mbit/s.
    #[arg(long, value_name = "N,N", default_value = "20,20", value_parser = super::two_rates)]
    rates: [u32; 2],
    /// Address of this machine that all pages are served at. They have no authentication.
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::from(Ipv4Addr::LOCALHOST))]
    listen: IpAddr,
    /// Ports of the pages of both borders, and of Prometheus.
    #[arg(long, value_name = "N,N,N", default_value = "9461,9462,9090", value_parser = three_ports)]
    ports: [u16; 3],
    /// Leave Prometheus out, also where it is installed.
    #[arg(long)]
    no_prometheus: bool,
    /// End after so many seconds, as Ctrl-C would.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: Option<u32>,
    /// The program `splitter` [default: the one next to this program, else that in PATH]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) splitter: Option<PathBuf>,
}

impl Playground {
    /// Plays until a signal, on a thread of its own, so that signals are heard.
    pub(crate) async fn run(self, splitter: PathBuf) -> Result<()> {
        preflight()?;
        let cancel = CancellationToken::new();
        let mut signals = Signals::listen()?;
        let cancelled = cancel.clone();
        let playing = tokio::task::spawn_blocking(move || self.play(splitter, &cancelled));
        let mut playing = std::pin::pin!(playing);
        loop {
            tokio::select! {
                result = &mut playing => return result.context("the playground panicked")?,
                _ = signals.next() => cancel.cancel(),
            }
        }
    }

    fn play(&self, splitter: PathBuf, cancel: &CancellationToken) -> Result<()> {
        let directory = tempfile::tempdir().context("cannot make a directory")?;
        let topology = Topology::build(&TopologyOptions {
            rates_mbit: self.rates,
            ..TopologyOptions::default()
        })?;
        let scheme = self.scheme(splitter, directory.path())?;
        let addresses = self.ports.map(|port| SocketAddr::new(self.listen, port));
        let [first, second, of_prometheus] = addresses;
        let borders = [&topology.borders[0], &topology.borders[1]].map(|it| &it.namespace);
        let _forwards = [
            Forward::start(borders[0], first)?,
            Forward::start(borders[1], second)?,
        ];
        let applied = match scheme.apply(&topology, cancel) {
            Err(SchemeError::Cancelled) => return Ok(()),
            applied => applied?,
        };
        let targets = [first, second].map(|it| reachable(it).to_string());
        let prometheus = match self.no_prometheus {
            true => None,
            false => Prometheus::start(of_prometheus, &targets, directory.path())?,
        };
        self.announce(
            [first, second],
            prometheus.is_some().then_some(of_prometheus),
        )?;
        let ended = self.traffic(&topology, cancel);
        drop(prometheus);
        applied.remove()?;
        ended?;
        println!("All of it is gone.");
        Ok(())
    }

    /// Both borders probe each other with a key, so that delay and loss have figures.
    fn scheme(&self, splitter: PathBuf, directory: &Path) -> Result<Scheme> {
        let key_file = directory.join("health.key");
        let mut file = fs::OpenOptions::new();
        let file = file
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&key_file);
        let key = format!("{:064x}\n", rand::random::<u128>());
        file.and_then(|mut it| it.write_all(key.as_bytes()))
            .with_context(|| format!("cannot write {}", key_file.display()))?;
        let scheme = SplitterScheme {
            binary: splitter,
            threshold: 40,
            attach: "auto".to_owned(),
            states_rates: true,
            configuration: toml::Table::new(),
        };
        let mut scheme = match &*self.policy {
            // The queues are in the borders' own devices.
            "share" => scheme.sharing(100),
            _ => scheme,
        };
        let health = toml::Table::from_iter([(
            "key_file".to_owned(),
            toml::Value::from(key_file.to_string_lossy().into_owned()),
        )]);
        scheme
            .configuration
            .insert("health".to_owned(), health.into());
        Ok(Scheme::Splitter(scheme))
    }

    fn announce(&self, borders: [SocketAddr; 2], prometheus: Option<SocketAddr>) -> Result<()> {
        let mut out = std::io::stdout().lock();
        for (name, address) in BORDERS.iter().zip(borders) {
            writeln!(
                out,
                "{name}:   http://{address}/ (status page; /metrics, /ready)"
            )?;
        }
        match prometheus {
            Some(it) => writeln!(out, "Prometheus: http://{it}/ (alerts: http://{it}/alerts)")?,
            None if self.no_prometheus => {}
            None => writeln!(
                out,
                "Prometheus: not installed (Debian package `prometheus`), left out"
            )?,
        }
        let [one, two] = self.rates;
        writeln!(
            out,
            "Two sites, tunnels of {one} and {two} Mbit/s, {} % background load, policy {}. \
             Ctrl-C ends it.",
            self.load, self.policy
        )?;
        Ok(out.flush()?)
    }

    fn traffic(&self, topology: &Topology, cancel: &CancellationToken) -> Result<()> {
        let end = self
            .seconds
            .map(|it| Instant::now() + Duration::from_secs(it.into()));
        for seed in 0.. {
            let workload = Workload {
                short: ShortFlows {
                    per_second: short_per_second(self.rates),
                    ..ShortFlows::mixed()
                },
                background: Some(Background::elastic(
                    f64::from(self.load) / 100.0,
                    self.rates,
                )),
                length: ROUND,
                seed,
            };
            let schedule = Arc::new(workload.schedule());
            let round = cancel.child_token();
            let mut is_over = |_| {
                if end.is_some_and(|end| Instant::now() >= end) {
                    round.cancel();
                }
            };
            match traffic::run(topology, &schedule, DRAIN, &round, &mut is_over) {
                Ok(_) => {}
                Err(TrafficError::Cancelled) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Where something that listens at an address is reached from this machine.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

fn three_ports(text: &str) -> Result<[u16; 3], String> {
    let ports: Option<Vec<u16>> = text.split(',').map(|it| it.trim().parse().ok()).collect();
    let ports: Option<[u16; 3]> = ports.and_then(|ports| ports.try_into().ok());
    ports
        .filter(|[one, two, three]| one != two && two != three && one != three && *one > 0)
        .filter(|[_, two, three]| *two > 0 && *three > 0)
        .ok_or_else(|| "give three different ports, such as 9461,9462,9090".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_three_and_differ() {
        assert_eq!(three_ports("1, 2,3"), Ok([1, 2, 3]));
        for wrong in [
            "1,2", "1,2,2", "1,2,1", "2,2,3", "0,1,2", "1,0,2", "1,2,0", "1,2,3,4", "",
        ] {
            assert!(three_ports(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_listens_everywhere_is_reached_at_the_loopback() {
        for (listens, reached) in [
            ("0.0.0.0:1", "127.0.0.1:1"),
            ("[::]:2", "[::1]:2"),
            ("192.0.2.1:3", "192.0.2.1:3"),
        ] {
            assert_eq!(reachable(listens.parse().unwrap()).to_string(), reached);
        }
    }
}
