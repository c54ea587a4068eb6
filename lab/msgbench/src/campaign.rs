//! All measurements, schemes in rotation.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail};
use tokio_util::sync::CancellationToken;

use crate::{
    measurement::{Cell, Measurement},
    rig::{Rig, RigOptions},
    scenario::Scenario,
    scheme::Scheme,
    summary::{self, Row},
    workload::Workload,
};

/// A campaign: all that is to be measured.
pub struct Campaign {
    /// Round-trip times, without queues.
    pub rtts: Vec<Duration>,
    /// Conditions on the paths meanwhile.
    pub scenarios: Vec<Scenario>,
    /// Schemes that are compared.
    pub schemes: Vec<Arc<dyn Scheme>>,
    /// Rounds; in each, every scheme gets the same messages.
    pub seeds: Vec<u64>,
    /// Workload of messages to send.
    pub workload: Workload,
    /// Rate of each path.
    pub rate_mbit: u32,
}

/// A measurement and what it is of.
#[derive(Clone, Debug)]
pub struct Round {
    /// Round-trip time without queues.
    pub rtt: Duration,
    /// Conditions on the paths meanwhile.
    pub scenario: Scenario,
    /// Name of the scheme.
    pub scheme: &'static str,
    /// Seed of the arrivals.
    pub seed: u64,
    /// Result of the measurement.
    pub measurement: Measurement,
}

/// Who wants to know how far it is.
pub trait Observer {
    /// This is measured next.
    fn begins(&mut self, what: &str);
    /// It has been measured.
    fn ends(&mut self);
    /// It could not be measured, and the others go on.
    fn fails(&mut self, error: &anyhow::Error);
}

impl Campaign {
    /// How many measurements there are.
    pub fn count(&self) -> usize {
        self.rtts.len() * self.scenarios.len() * self.schemes.len() * self.seeds.len()
    }

    /// Measures everything. The schemes of a round follow each other, so that what else the machine
    /// does hits all alike; each round starts with another one.
    ///
    /// # Errors
    /// When a rig cannot be built or does not what it should, when nothing could be measured, or
    /// after `cancel`.
    pub fn run(&self, observer: &mut dyn Observer, cancel: &CancellationToken) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for rtt in &self.rtts {
            let options = RigOptions {
                rate_mbit: self.rate_mbit,
                rtt: *rtt,
            };
            observer.begins(&format!("building the paths, RTT {}", text(*rtt)));
            let rig = Rig::build(options).context("cannot build the paths")?;
            for (number, seed) in self.seeds.iter().enumerate() {
                // Which path a port leads to must not be the same luck every time.
                rig.steer(*seed as u32)?;
                rig.check_paths()?;
                for scenario in &self.scenarios {
                    let arrivals = self.workload.arrivals(*scenario, *seed);
                    let rotation = self.schemes.iter().cycle();
                    for scheme in rotation.skip(number).take(self.schemes.len()) {
                        let (scenario, scheme_name) = (*scenario, scheme.name());
                        observer.begins(&format!(
                            "{scheme_name}, {}, RTT {}",
                            scenario.about(),
                            text(*rtt)
                        ));
                        let cell = Cell {
                            rig: &rig,
                            rtt: *rtt,
                            scheme,
                            scenario,
                            arrivals: &arrivals,
                        };
                        let measured = cell.measure(cancel);
                        if cancel.is_cancelled() {
                            bail!("cancelled");
                        }
                        match measured {
                            Ok(measurement) => {
                                let round = Round {
                                    rtt: *rtt,
                                    scenario,
                                    scheme: scheme_name,
                                    seed: *seed,
                                    measurement,
                                };
                                rows.extend(summary::rows(&round, &self.workload.sizes));
                            }
                            Err(error) => observer.fails(&error),
                        }
                        observer.ends();
                    }
                }
            }
        }
        if rows.is_empty() {
            bail!("nothing could be measured");
        }
        Ok(rows)
    }
}

/// Writes a round-trip time in ms for people.
fn text(rtt: Duration) -> String {
    format!("{} ms", rtt.as_secs_f64() * 1e3)
}
