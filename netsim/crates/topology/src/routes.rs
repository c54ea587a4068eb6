//! Equal-cost shortest paths: the next hops of each switch towards each rack.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
};

use crate::{Port, Topology, TopologyError};

/// More equal-cost next hops than this are refused: a policy chooses among as many paths.
pub const MAX_NEXT_HOPS: usize = 16;

/// The shortest paths of a topology, hop by hop.
#[derive(Clone, Debug)]
pub struct Routes {
    racks: usize,
    /// Sets of next hops, each once.
    sets: Vec<Box<[Port]>>,
    /// By switch, then rack: which of the sets; [`HERE`] at the rack itself.
    set_of: Vec<u32>,
    /// By switch, then rack.
    rest: Vec<Continuation>,
    /// By switch, then rack: how many shortest paths there are.
    counts: Vec<u64>,
}

/// The way from a switch to a rack: of several shortest paths, the longest delay, the greatest time on the wire, and
/// the rate of the widest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Continuation {
    /// Propagation delay of all links together, in microseconds.
    pub delay_us: f64,
    /// Time that a bit takes on the wire of one link after the other, in ns.
    pub ns_per_bit: f64,
    /// Rate of the narrowest link, in Gbit/s; infinite at the rack itself.
    pub gbps: f64,
}

const HERE: u32 = u32::MAX;

impl Continuation {
    const HERE: Self = Self {
        delay_us: 0.0,
        ns_per_bit: 0.0,
        gbps: f64::INFINITY,
    };
}

impl Routes {
    /// Computes the shortest paths between all switches and all racks.
    ///
    /// # Errors
    /// When a rack cannot be reached from a switch, or a switch has more than [`MAX_NEXT_HOPS`] next hops.
    pub fn new(topology: &Topology) -> Result<Self, TopologyError> {
        let switches = topology.switches().len();
        let racks = topology.racks().len();
        let ports = ports_by_switch(topology);
        let mut routes = Self {
            racks,
            sets: Vec::new(),
            set_of: vec![HERE; switches * racks],
            rest: vec![Continuation::HERE; switches * racks],
            counts: vec![1; switches * racks],
        };
        let mut known: HashMap<Box<[Port]>, u32> = HashMap::new();
        for rack in 0..racks {
            let order = costs(topology, &ports, rack)?;
            // The nearest first, so that what comes behind a next hop is known.
            for &(cost, switch) in &order.by_cost[1..] {
                let hops = ports[switch].iter().copied().filter(|port| {
                    let [_, to] = topology.ends(*port);
                    let link = u32::from(topology.links()[port.link()].cost);
                    order.of[usize::from(to)] + link == cost
                });
                let hops: Box<[Port]> = hops.collect();
                if hops.len() > MAX_NEXT_HOPS {
                    let name = |switch: usize| topology.switches()[switch].clone();
                    return Err(TopologyError::TooManyNextHops {
                        at: name(switch),
                        to: name(topology.racks()[rack].into()),
                        count: hops.len(),
                        most: MAX_NEXT_HOPS,
                    });
                }
                let set = *known.entry(hops).or_insert_with_key(|hops| {
                    routes.sets.push(hops.clone());
                    routes.sets.len() as u32 - 1
                });
                routes.set_of[switch * racks + rack] = set;
                routes.add_up(topology, switch, rack);
            }
        }
        Ok(routes)
    }

    /// Adds up what lies between a switch and a rack.
    fn add_up(&mut self, topology: &Topology, switch: usize, rack: usize) {
        let mut rest = Continuation {
            gbps: 0.0,
            ..Continuation::HERE
        };
        let mut count = 0u64;
        for &port in self.next_hops(switch, rack) {
            let over = self.over(topology, port, rack);
            rest.delay_us = rest.delay_us.max(over.delay_us);
            rest.ns_per_bit = rest.ns_per_bit.max(over.ns_per_bit);
            rest.gbps = rest.gbps.max(over.gbps);
            let [_, to] = topology.ends(port);
            count = count.saturating_add(self.counts[usize::from(to) * self.racks + rack]);
        }
        self.rest[switch * self.racks + rack] = rest;
        self.counts[switch * self.racks + rack] = count;
    }

    /// The way to a rack over one of a switch's ports, that link included.
    #[must_use]
    pub fn over(&self, topology: &Topology, port: Port, rack: usize) -> Continuation {
        let [_, to] = topology.ends(port);
        let link = &topology.links()[port.link()];
        let rest = self.rest[usize::from(to) * self.racks + rack];
        Continuation {
            delay_us: link.delay_us + rest.delay_us,
            ns_per_bit: 1.0 / link.gbps + rest.ns_per_bit,
            gbps: link.gbps.min(rest.gbps),
        }
    }

    /// Ports of a switch on shortest paths to a rack, in the order of the links; none at the rack itself.
    #[must_use]
    pub fn next_hops(&self, switch: usize, rack: usize) -> &[Port] {
        self.set(switch, rack).map_or(&[], |it| &self.sets[it])
    }

    /// Returns which of the [`sets`](Self::sets) a switch uses towards a rack; none at the rack itself.
    #[must_use]
    pub fn set(&self, switch: usize, rack: usize) -> Option<usize> {
        let set = self.set_of[switch * self.racks + rack];
        (set != HERE).then_some(set as usize)
    }

    /// All different sets of next hops.
    #[must_use]
    pub fn sets(&self) -> &[Box<[Port]>] {
        &self.sets
    }

    /// Counts the shortest paths from a switch to a rack; stays at the greatest number rather than overflow.
    #[must_use]
    pub fn paths(&self, switch: usize, rack: usize) -> u64 {
        self.counts[switch * self.racks + rack]
    }

    /// Returns the longest delay of all shortest paths, in microseconds.
    #[must_use]
    pub fn longest_delay_us(&self) -> f64 {
        self.rest.iter().map(|it| it.delay_us).fold(0.0, f64::max)
    }
}

/// Costs of all switches towards a rack.
struct Costs {
    of: Vec<u32>,
    /// The rack's switch first.
    by_cost: Vec<(u32, usize)>,
}

fn ports_by_switch(topology: &Topology) -> Vec<Vec<Port>> {
    let mut ports = vec![Vec::new(); topology.switches().len()];
    for port in (0..2 * topology.links().len()).map(|it| Port(it as u16)) {
        let [from, _] = topology.ends(port);
        ports[usize::from(from)].push(port);
    }
    ports
}

/// Dijkstra's algorithm from the rack's switch; links cost the same both ways.
fn costs(topology: &Topology, ports: &[Vec<Port>], rack: usize) -> Result<Costs, TopologyError> {
    let start = usize::from(topology.racks()[rack]);
    let mut of = vec![u32::MAX; topology.switches().len()];
    let mut by_cost = Vec::with_capacity(of.len());
    let mut open = BinaryHeap::from([Reverse((0, start))]);
    of[start] = 0;
    while let Some(Reverse((cost, switch))) = open.pop() {
        if cost > of[switch] {
            continue;
        }
        by_cost.push((cost, switch));
        for port in &ports[switch] {
            let to = usize::from(topology.ends(*port)[1]);
            let next = cost + u32::from(topology.links()[port.link()].cost);
            if next < of[to] {
                of[to] = next;
                open.push(Reverse((next, to)));
            }
        }
    }
    if let Some(from) = of.iter().position(|it| *it == u32::MAX) {
        return Err(TopologyError::Unreachable {
            from: topology.switches()[from].clone(),
            to: topology.switches()[start].clone(),
        });
    }
    Ok(Costs { of, by_cost })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{Host, Link};
    use proptest::prelude::*;

    fn graph(switches: u16, links: &[(u16, u16, u16)]) -> Topology {
        let names = (0..switches).map(|it| format!("s{it}")).collect();
        let link = |&(first, second, cost): &(u16, u16, u16)| Link {
            ends: [first, second],
            gbps: 10.0 + f64::from(cost),
            delay_us: f64::from(cost),
            cost,
        };
        let host = |switch| Host {
            switch,
            gbps: 10.0,
            delay_us: 1.0,
        };
        let hosts = (0..switches).map(host).collect();
        Topology::new(names, links.iter().map(link).collect(), hosts).expect("it is right")
    }

    #[test]
    fn costs_choose_among_paths() {
        // A square with a dear side: one way around is as dear as the direct link.
        let topology = graph(4, &[(0, 1, 1), (1, 2, 1), (0, 3, 1), (3, 2, 2)]);
        let routes = Routes::new(&topology).expect("all is connected");
        assert_eq!(routes.next_hops(0, 2), [Port(0)]);
        assert_eq!(routes.next_hops(3, 1), [Port(5)]);
        let topology = graph(4, &[(0, 1, 1), (1, 2, 1), (0, 3, 1), (3, 2, 1), (0, 2, 2)]);
        let routes = Routes::new(&topology).expect("all is connected");
        assert_eq!(routes.next_hops(0, 2), [Port(0), Port(4), Port(8)]);
        assert_eq!(routes.paths(0, 2), 3);
        assert_eq!(routes.next_hops(2, 2), []);
        assert_eq!(
            routes.over(&topology, Port(0), 2),
            Continuation {
                delay_us: 2.0,
                ns_per_bit: 2.0 / 11.0,
                gbps: 11.0
            }
        );
    }

    #[test]
    fn more_next_hops_than_a_policy_takes_are_refused() {
        let wide = |middle: u16| {
            let links = (2..2 + middle).flat_map(|it| [(0, it, 1), (it, 1, 1)]);
            Routes::new(&graph(2 + middle, &links.collect::<Vec<_>>())).map(|it| it.paths(0, 1))
        };
        assert_eq!(wide(16), Ok(16));
        let error = wide(17).expect_err("too many").to_string();
        assert!(
            error.contains("s1 has 17 equal-cost next hops towards s0"),
            "{error}"
        );
    }

    proptest! {
        /// Against Floyd and Warshall: every next hop lies on a shortest path, and every neighbour that does is one.
        #[test]
        fn next_hops_are_those_of_all_shortest_paths(
            links in prop::collection::vec((0..6u16, 0..6u16, 1..4u16), 0..14)
        ) {
            let mut links: Vec<_> = links.into_iter().filter(|(a, b, _)| a != b).collect();
            links.extend((1..6).map(|it| (it - 1, it, 3)));
            let topology = graph(6, &links);
            let routes = Routes::new(&topology).expect("a line connects all");
            let mut cost = [[u32::MAX / 4; 6]; 6];
            for (a, row) in cost.iter_mut().enumerate() { row[a] = 0; }
            for &(a, b, c) in &links {
                let (a, b, c) = (usize::from(a), usize::from(b), u32::from(c));
                cost[a][b] = cost[a][b].min(c);
                cost[b][a] = cost[b][a].min(c);
            }
            for over in 0..6 { for a in 0..6 { for b in 0..6 {
                cost[a][b] = cost[a][b].min(cost[a][over] + cost[over][b]);
            }}}
            for (from, to) in (0..36).map(|pair| (pair / 6, pair % 6)) {
                let expected: Vec<Port> = (0..2 * links.len() as u16).map(Port).filter(|port| {
                    let [at, next] = topology.ends(*port).map(usize::from);
                    let link = u32::from(topology.links()[port.link()].cost);
                    from != to && at == from && link + cost[next][to] == cost[from][to]
                }).collect();
                prop_assert_eq!(routes.next_hops(from, to), expected);
            }
        }
    }
}
