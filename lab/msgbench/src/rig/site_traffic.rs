//! What else two sites send each other: short TCP flows, and transfers that take what they get.

use std::{sync::Arc, time::Duration};

use flow_testbed::{
    demo::short_per_second,
    namespace::NamespaceError,
    topology::Host,
    traffic::{self, Outcome, TrafficError},
    workload::{Background, Class, Role, Schedule, ShortFlows, Workload},
};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{PATHS, Rig, addresses, site_gateway};

/// The server's port of all these flows.
pub(super) const PORT: u16 = 5_001;
/// The server's routing table for what it sends from its own address.
const CUBIC_TABLE: u32 = 100;

/// Which traffic, and when it counts.
#[derive(Clone, Copy, Debug)]
pub struct SiteTrafficOptions {
    /// The load of the transfers in each direction, in percent of all paths.
    pub load_percent: u32,
    /// How long it flows before it counts.
    pub lead: Duration,
    /// How long it counts.
    pub length: Duration,
    /// How long to wait for flows under way at the end.
    pub drain: Duration,
    /// Decides which flows there are.
    pub seed: u64,
}

/// Traffic under way. Dropping it ends it.
#[derive(Debug)]
pub struct SiteTraffic {
    options: SiteTrafficOptions,
    schedule: Arc<Schedule>,
    running: JoinHandle<Result<Vec<Outcome>, TrafficError>>,
    _stop: DropGuard,
}

/// Reports what the traffic between sites came to while it counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SiteFlows {
    /// Completion times of short flows in the order in which they started; `None` for those that had not
    /// finished at the end.
    pub short: Vec<Option<Duration>>,
    /// Payload of the transfers that finished meanwhile, over all paths and directions.
    pub bulk_mbit_per_s: f64,
}

impl Rig {
    /// Starts traffic between the sites: 120 short flows a second on four paths of 50 Mbit/s, fewer on slower ones,
    /// and transfers of 1.5 MB at the load that is asked for. Call it within a runtime.
    pub fn start_site_traffic(&self, options: SiteTrafficOptions) -> SiteTraffic {
        let schedule = Arc::new(self.schedule(options));
        let hosts = [
            (Role::Client, &self.client, addresses::CLIENT),
            (Role::Server, &self.server, addresses::SERVER),
            (Role::GeneratorA, &self.client, addresses::GENERATORS[0]),
            (Role::GeneratorB, &self.server, addresses::GENERATORS[1]),
        ]
        .map(|(role, namespace, ipv4)| {
            let host = Host {
                namespace: namespace.clone(),
                ipv4,
                ipv6: None,
            };
            (role, host)
        });
        let stop = CancellationToken::new();
        let (own_schedule, own_stop) = (Arc::clone(&schedule), stop.clone());
        let running = spawn_blocking(move || {
            let hosts = hosts.each_ref().map(|(role, host)| (*role, host));
            traffic::run_between(&hosts, &own_schedule, options.drain, &own_stop, &mut |_| {})
        });
        SiteTraffic {
            options,
            schedule,
            running,
            _stop: stop.drop_guard(),
        }
    }

    /// Has this traffic use TCP cubic, whatever the kernel's default is, and leaves messages alone: their servers
    /// have other addresses.
    pub(super) fn route_site_traffic(&self) -> Result<(), NamespaceError> {
        let [generator_a, generator_b] = addresses::GENERATORS;
        let server = addresses::SERVER;
        let (from_client, from_server) = (site_gateway(1), site_gateway(2));
        let client_routes = format!(
            "route add {server} via {from_client} congctl cubic\n\
             route add {generator_b} via {from_client} congctl cubic\n"
        );
        let server_routes = format!(
            "route add {generator_a} via {from_server} congctl cubic\n\
             route add default via {from_server} table {CUBIC_TABLE} congctl cubic\n\
             rule add from {server} table {CUBIC_TABLE}\n"
        );
        self.client.run_with_input("ip -batch -", &client_routes)?;
        self.server.run_with_input("ip -batch -", &server_routes)?;
        Ok(())
    }

    fn schedule(&self, options: SiteTrafficOptions) -> Schedule {
        // Two tunnels carry as much as all paths.
        let half = self.options.rate_mbit * PATHS as u32 / 2;
        let load = f64::from(options.load_percent) / 100.0;
        let workload = Workload {
            short: ShortFlows {
                per_second: short_per_second([half, half]),
                ..ShortFlows::mixed()
            },
            background: Some(Background::elastic(load, [half, half])),
            length: options.lead + options.length,
            seed: options.seed,
        };
        workload.schedule()
    }
}

impl SiteTraffic {
    /// Waits until it is over.
    ///
    /// # Errors
    /// When a host could not be set up.
    pub async fn end(self) -> Result<SiteFlows, TrafficError> {
        let outcomes = match self.running.await {
            Ok(outcomes) => outcomes?,
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        let bytes = self.schedule.flows().iter().map(|it| it.bytes);
        Ok(SiteFlows::of(&self.options, outcomes.iter().zip(bytes)))
    }
}

impl SiteFlows {
    fn of<'a>(
        options: &SiteTrafficOptions,
        outcomes: impl Iterator<Item = (&'a Outcome, u32)>,
    ) -> Self {
        let end = options.lead + options.length;
        let mut flows = Self::default();
        let mut bulk_bytes = 0;
        let counts = options.lead..=end;
        for (outcome, bytes) in outcomes {
            let ended = outcome.completion.map(|took| outcome.at + took);
            match outcome.class {
                // Who started before found the paths emptier than they are later.
                Class::Short if outcome.at >= options.lead => flows.short.push(outcome.completion),
                Class::Long if ended.is_some_and(|at| counts.contains(&at)) => {
                    bulk_bytes += u64::from(bytes);
                }
                Class::Short | Class::Long => {}
            }
        }
        flows.bulk_mbit_per_s = bulk_bytes as f64 * 8.0 / 1e6 / options.length.as_secs_f64();
        flows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_flows_count_by_their_start_and_transfers_by_their_end() {
        let options = SiteTrafficOptions {
            load_percent: 40,
            lead: Duration::from_secs(1),
            length: Duration::from_secs(2),
            drain: Duration::ZERO,
            seed: 1,
        };
        let outcome = |class, at_ms, took_ms: Option<u64>| Outcome {
            class,
            at: Duration::from_millis(at_ms),
            completion: took_ms.map(Duration::from_millis),
        };
        let outcomes = [
            (outcome(Class::Short, 500, Some(1)), 9),
            (outcome(Class::Short, 1_000, Some(2)), 9),
            (outcome(Class::Short, 2_900, None), 9),
            (outcome(Class::Long, 700, Some(200)), 250_000),
            (outcome(Class::Long, 900, Some(200)), 250_000),
            (outcome(Class::Long, 2_900, Some(200)), 250_000),
            (outcome(Class::Long, 1_900, None), 250_000),
        ];
        let flows = SiteFlows::of(&options, outcomes.iter().map(|(it, bytes)| (it, *bytes)));
        assert_eq!(flows.short, [Some(Duration::from_millis(2)), None]);
        assert_eq!(flows.bulk_mbit_per_s, 1.0);
    }
}
