//! The fat tree of *k* ports (Al-Fares, Loukissas and Vahdat 2008).

use serde::{Deserialize, Serialize};

use crate::{
    TopologyError,
    topology::{Host, Link, Topology},
};

/// A three-tier fat tree out of switches of `k` ports: `k` pods of `k/2` edge and `k/2` aggregation switches, and
/// `(k/2)^2` core switches, which are as many shortest paths between two pods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FatTree {
    /// Ports of a switch: even, from 2 to 32.
    pub k: u16,
    /// Hosts at each edge switch instead of `k/2`; more make the edge oversubscribed.
    #[serde(default)]
    pub hosts_per_edge: Option<u16>,
    /// Rate of links between hosts and edge switches, in Gbit/s.
    pub host_gbps: f64,
    /// Rate of links between switches, in Gbit/s.
    pub link_gbps: f64,
    /// Propagation delay of every link, in microseconds.
    pub link_delay_us: f64,
}

impl FatTree {
    /// The topology: edge switches `edgeP.I`, aggregation switches `aggP.I` of pod `P`, core switches `coreI`.
    ///
    /// # Errors
    /// When a value lies out of its range, or there are more ports than have numbers.
    pub fn topology(&self) -> Result<Topology, TopologyError> {
        self.check()?;
        let (k, half) = (self.k, self.k / 2);
        let edge = |pod: u16, index: u16| pod * half + index;
        let aggregation = |pod: u16, index: u16| k * half + pod * half + index;
        let core = |index: u16| 2 * k * half + index;
        let mut switches = Vec::new();
        for tier in ["edge", "agg"] {
            let names = (0..k).flat_map(|pod| (0..half).map(move |it| format!("{tier}{pod}.{it}")));
            switches.extend(names);
        }
        switches.extend((0..half * half).map(|it| format!("core{it}")));
        let link = |ends| Link {
            ends,
            gbps: self.link_gbps,
            delay_us: self.link_delay_us,
            cost: 1,
        };
        let mut links = Vec::new();
        for pod in 0..k {
            for upper in 0..half {
                let at = aggregation(pod, upper);
                links.extend((0..half).map(|it| link([edge(pod, it), at])));
                links.extend((0..half).map(|it| link([at, core(upper * half + it)])));
            }
        }
        let hosts = (0..k * half).flat_map(|switch| {
            let host = Host {
                switch,
                gbps: self.host_gbps,
                delay_us: self.link_delay_us,
            };
            std::iter::repeat_n(host, usize::from(self.hosts_per_edge.unwrap_or(half)))
        });
        Topology::new(switches, links, hosts.collect())
    }

    fn check(&self) -> Result<(), TopologyError> {
        in_range("k", f64::from(self.k), 2.0, 32.0)?;
        if !self.k.is_multiple_of(2) {
            return Err(TopologyError::Range {
                key: "k",
                value: self.k.to_string(),
                least: "2, even,".to_owned(),
                most: "32".to_owned(),
            });
        }
        let hosts = self.hosts_per_edge.unwrap_or(self.k / 2);
        in_range("hosts_per_edge", f64::from(hosts), 1.0, 1024.0)?;
        check_link(
            "host_gbps",
            self.host_gbps,
            "link_delay_us",
            self.link_delay_us,
        )?;
        check_link(
            "link_gbps",
            self.link_gbps,
            "link_delay_us",
            self.link_delay_us,
        )
    }
}

/// Checks the rate and the delay of a link.
pub(crate) fn check_link(
    rate: &'static str,
    gbps: f64,
    delay: &'static str,
    delay_us: f64,
) -> Result<(), TopologyError> {
    in_range(rate, gbps, 1e-3, 3200.0)?;
    in_range(delay, delay_us, 0.0, 1e6)
}

fn in_range(key: &'static str, value: f64, least: f64, most: f64) -> Result<(), TopologyError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(TopologyError::Range {
        key,
        value: value.to_string(),
        least: least.to_string(),
        most: most.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Routes;

    fn tree(k: u16) -> FatTree {
        FatTree {
            k,
            hosts_per_edge: None,
            host_gbps: 10.0,
            link_gbps: 10.0,
            link_delay_us: 1.0,
        }
    }

    #[test]
    fn it_has_as_many_of_everything_as_the_paper_says() {
        for k in [2, 4, 8] {
            let topology = tree(k).topology().expect("it is right");
            let k = usize::from(k);
            assert_eq!(topology.hosts().len(), k * k * k / 4);
            assert_eq!(topology.switches().len(), 5 * k * k / 4);
            assert_eq!(topology.links().len(), k * k * k / 2);
            let mut ports = vec![0; topology.switches().len()];
            let hosts = topology.hosts().iter().map(|it| it.switch);
            let ends = topology.links().iter().flat_map(|it| it.ends);
            for switch in hosts.chain(ends) {
                ports[usize::from(switch)] += 1;
            }
            assert!(ports.iter().all(|it| *it == k), "{ports:?}");
        }
    }

    #[test]
    fn pods_have_a_path_for_each_core_switch_between_them() {
        for k in [2, 4, 6, 8, 16] {
            let topology = tree(k).topology().expect("it is right");
            let routes = Routes::new(&topology).expect("all is connected");
            let half = u64::from(k / 2);
            let pod_of = |rack: usize| rack / half as usize;
            for from in 0..topology.racks().len() {
                for to in 0..topology.racks().len() {
                    let expected = match (from == to, pod_of(from) == pod_of(to)) {
                        (true, _) => 1,
                        (_, true) => half,
                        _ => half * half,
                    };
                    let switch = usize::from(topology.racks()[from]);
                    assert_eq!(routes.paths(switch, to), expected, "k {k}: {from} to {to}");
                }
            }
        }
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        let error = |change: fn(&mut FatTree)| {
            let mut tree = tree(4);
            change(&mut tree);
            tree.topology().expect_err("it is wrong").to_string()
        };
        assert_eq!(
            error(|it| it.k = 5),
            "k = 5: it must lie between 2, even, and 32"
        );
        assert!(error(|it| it.k = 0).starts_with("k = 0"));
        assert!(error(|it| it.k = 64).starts_with("k = 64"));
        assert!(error(|it| it.hosts_per_edge = Some(0)).starts_with("hosts_per_edge = 0"));
        assert!(error(|it| it.host_gbps = f64::NAN).starts_with("host_gbps = NaN"));
        assert!(error(|it| it.link_gbps = 0.0).starts_with("link_gbps = 0"));
        assert!(error(|it| it.link_delay_us = -1.0).starts_with("link_delay_us = -1"));
        let crowded = FatTree {
            hosts_per_edge: Some(200),
            ..tree(32)
        };
        let error = crowded.topology().expect_err("it has too many").to_string();
        assert!(error.contains("ports are more than 65535"), "{error}");
    }
}
