//! Somebody with a key of its own, beside the adversary who has none: it makes frames of every kind, changes
//! any of their fields, and seals them as they have to be.

use std::net::{Ipv4Addr, SocketAddr};

use cloudburst_proto::Time;

use crate::{
    liar::{
        PING,
        bodies::Input,
        lies::{Holding, Liar},
    },
    simulation::{
        keys,
        network::Parcel,
        path::MILLI,
        random::Random,
        scenario::{HostPlan, Scenario},
        world::World,
    },
};

/// No host's; they have the ports from 4,000 on.
pub(super) const ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 0, 99)), 4_000);
/// Length of an input that one lie is made of: any frame takes less.
const INPUT_BYTES: usize = 64;
/// Handshakes cost as much as a hundred other datagrams.
const MOST_OFFERS: u32 = 6;

pub(super) struct KeyHolder {
    liar: Liar,
    random: Random,
    pub(super) datagrams: u64,
}

impl KeyHolder {
    /// Joins those who have keys: with a pair that is on the lists, or with the secret of all.
    pub(super) fn join(scenario: &mut Scenario) -> Self {
        let holding = holding(scenario);
        Self {
            liar: Liar::new(holding),
            random: Random::of(scenario.seed, 98),
            datagrams: 0,
        }
    }

    /// Takes what it was sent, and says something to both hosts.
    pub(super) fn act(&mut self, world: &mut World, captured: &[Parcel]) {
        for parcel in captured.iter().filter(|parcel| parcel.to == ADDRESS) {
            if let Some((end @ (0 | 1), ..)) = world.scenario.owner(parcel.from) {
                self.liar.take(end, &mut parcel.bytes.clone());
            }
        }
        let now = Time::from_nanos(world.now);
        for end in [0, 1] {
            let is_new = !self.liar.has_keys(end) || self.random.chance(0.02);
            if is_new && self.liar.offers < MOST_OFFERS {
                self.liar.offer(now, end, &mut Input(&[0]));
                self.say(world, end, &PING);
            }
            for _ in 0..self.random.below(3) {
                let any: Vec<u8> = (0..INPUT_BYTES)
                    .map(|_| self.random.number() as u8)
                    .collect();
                self.say(world, end, &any);
            }
        }
    }

    fn say(&mut self, world: &mut World, end: usize, input: &[u8]) {
        let Some(datagram) = self.liar.datagram(end, &mut Input(input)) else {
            return;
        };
        self.datagrams += 1;
        let at = world.now + self.random.below(4 * MILLI);
        let to = world.address(end, self.random.below(4) as u16);
        world.inject(at, ADDRESS, to, datagram);
    }
}

/// The keys of somebody who joins those who have some. It has a place on the lists; what speaks in its name
/// is no host.
pub(super) fn holding(scenario: &mut Scenario) -> Holding {
    let (number, first) = (scenario.hosts.len(), &scenario.hosts[0]);
    let (key, config) = (first.key, first.config.clone());
    let holding = match key {
        Some(id) if !scenario.has_key_pairs => Holding::Secret {
            id,
            secret: [id; 32],
        },
        _ => Holding::KeyPair {
            own: keys::pair(number),
            holders: [0, 1].map(|host| keys::pair(host).public()),
        },
    };
    scenario.hosts.push(HostPlan {
        key,
        config,
        ..HostPlan::new()
    });
    holding
}
