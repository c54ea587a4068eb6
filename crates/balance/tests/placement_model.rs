//! What placement is worth, in a model of flows that share each path evenly.
//!
//! Flows of 1.5 MB arrive at random; each is placed once and gets its part of the
//! path's rate until it has ended. That is what elastic flows come to, without their losses.

use flow_balance::{
    Balancer as _, Packet, PathId, PathView, PlacedFlow, Placement, RoundRobin, Snapshot,
};

const FLOW_MBIT: f64 = 12.0;
const RUN_S: f64 = 10.0;
/// Flows that start before count for nothing.
const WARM_UP_S: f64 = 2.0;
const RUNS: u64 = 100;

/// How flows are placed.
#[derive(Clone, Copy)]
enum By {
    /// At random, as often as the rate says: what ECMP does.
    Chance,
    /// In turn, as often as the rate says.
    RoundRobin,
    /// [`Placement`] with the number of flows known.
    Flows,
}

#[test]
fn fewest_flows_do_as_well_as_turns_and_better_on_unequal_paths() {
    println!("rates, load: of the time with random placement by turns, by fewest flows");
    for (rates, load, most_of_turns) in [
        ([100, 100], 0.2, 1.05),
        ([100, 100], 0.8, 1.05),
        ([100, 40], 0.2, 0.9),
        ([100, 40], 0.4, 0.95),
        ([100, 40], 0.8, 1.05),
    ] {
        let [chance, turns, flows] =
            [By::Chance, By::RoundRobin, By::Flows].map(|by| mean_s(by, rates, load));
        let (turns, flows) = (turns / chance, flows / chance);
        println!("{rates:?}, {load}: {turns:.2}, {flows:.2}");
        assert!(flows < 0.9, "{rates:?}, {load}: {flows}");
        assert!(
            flows < most_of_turns * turns,
            "{rates:?}, {load}: {flows}, {turns}"
        );
    }
}

fn mean_s(by: By, rates: [u32; 2], load: f64) -> f64 {
    let times: Vec<f64> = (0..RUNS)
        .flat_map(|seed| Model::new(by, rates, seed).run(load))
        .collect();
    times.iter().sum::<f64>() / times.len() as f64
}

struct Model {
    by: By,
    /// Megabits left of each flow and when it came, by path.
    flows: [Vec<(f64, f64)>; 2],
    rates: [u32; 2],
    paths: Snapshot,
    turns: RoundRobin,
    set_back: [f64; 2],
    random: Random,
}

impl Model {
    fn new(by: By, rates: [u32; 2], seed: u64) -> Self {
        let view = |weight| PathView {
            weight,
            ..PathView::default()
        };
        Self {
            by,
            flows: Default::default(),
            rates,
            paths: Snapshot::new(&rates.map(view)),
            turns: RoundRobin::default(),
            set_back: [0.0; 2],
            random: Random(seed),
        }
    }

    /// How long each flow took, in seconds.
    fn run(mut self, load: f64) -> Vec<f64> {
        let arrivals_per_s = load * f64::from(self.rates.iter().sum::<u32>()) / FLOW_MBIT;
        let mut taken_s = Vec::new();
        let mut now_s = 0.0;
        let mut next_s = self.random.exponential() / arrivals_per_s;
        while next_s < RUN_S || self.flows.iter().any(|it| !it.is_empty()) {
            let end = self.next_end(now_s);
            match end {
                Some((end_s, path)) if next_s >= RUN_S || end_s <= next_s => {
                    self.serve(end_s - now_s);
                    now_s = end_s;
                    let started_s = self.take_least(path);
                    taken_s.extend((started_s > WARM_UP_S).then_some(end_s - started_s));
                }
                _ => {
                    self.serve(next_s - now_s);
                    now_s = next_s;
                    let path = self.place();
                    self.flows[path].push((FLOW_MBIT, now_s));
                    next_s = now_s + self.random.exponential() / arrivals_per_s;
                }
            }
        }
        taken_s
    }

    fn place(&mut self) -> usize {
        let [first, second] = self.rates.map(f64::from);
        match self.by {
            By::Chance => usize::from(self.random.unit() * (first + second) >= first),
            By::RoundRobin => {
                let path = usize::from(self.set_back[1] < self.set_back[0]);
                let present = self.set_back[path];
                self.set_back = self.set_back.map(|it| (it - present).max(0.0));
                self.set_back[path] = 1.0 / f64::from(self.rates[path]);
                path
            }
            By::Flows => {
                for (index, flows) in self.flows.iter().enumerate() {
                    let path = PathId::new(index).expect("below 16");
                    self.paths.view_mut(path).flows = flows.len() as u32;
                }
                let packet = Packet {
                    now_ns: 0,
                    bytes: 1_514,
                    flow_hash: 0,
                };
                let flow = &mut PlacedFlow::default();
                let placement = Placement::default();
                let placed = placement.choose(&mut self.turns, flow, &self.paths, &packet);
                placed.index()
            }
        }
    }

    /// When the next flow ends if no other comes, and on which path.
    fn next_end(&self, now_s: f64) -> Option<(f64, usize)> {
        let ends = self.flows.iter().zip(self.rates).enumerate();
        ends.filter_map(|(path, (flows, rate))| {
            let least = flows.iter().map(|it| it.0).min_by(f64::total_cmp)?;
            let each = f64::from(rate) / flows.len() as f64;
            Some((now_s + least / each, path))
        })
        .min_by(|one, other| one.0.total_cmp(&other.0))
    }

    fn serve(&mut self, seconds: f64) {
        for (flows, rate) in self.flows.iter_mut().zip(self.rates) {
            let each = f64::from(rate) / flows.len() as f64 * seconds;
            flows.iter_mut().for_each(|it| it.0 -= each);
        }
    }

    /// Removes the flow that has the least left; when it started.
    fn take_least(&mut self, path: usize) -> f64 {
        let flows = &mut self.flows[path];
        let least = (0..flows.len()).min_by(|&one, &other| flows[one].0.total_cmp(&flows[other].0));
        flows.remove(least.expect("it has ended")).1
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    /// From 0 to 1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((value ^ (value >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// With a mean of 1.
    fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }
}
