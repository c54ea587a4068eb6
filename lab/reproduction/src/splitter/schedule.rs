//! Requests of a round, and their times.

use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// A kind of request to the file server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The listing of a folder: the short flow.
    List,
    /// A video that is watched, downwards.
    Video,
    /// A file that is stored, upwards.
    Upload,
}

/// Payload of a full packet in bytes, as curl and nginx send it here.
pub(crate) const PAYLOAD_BYTES: usize = 1448;
/// What nginx answers before a file, about; the last packet of a listing is not full.
const HEAD_BYTES: usize = 300;

impl Kind {
    /// All kinds of requests.
    pub const ALL: [Self; 3] = [Self::List, Self::Video, Self::Upload];

    /// The server's port for requests of this kind.
    pub fn port(self) -> u16 {
        match self {
            Self::List => 8001,
            Self::Video => 8002,
            Self::Upload => 8003,
        }
    }

    /// Packets that carry data: 5 as in the paper, of whose 60,000 and 100,000 a hundredth: of the
    /// rate two cores carry a tenth, and a run takes about a tenth of the paper's two minutes.
    pub fn packets(self) -> usize {
        match self {
            Self::List => 5,
            Self::Video => 600,
            Self::Upload => 1_000,
        }
    }

    /// Bytes of the file that is sent.
    pub fn bytes(self) -> usize {
        self.packets() * PAYLOAD_BYTES - HEAD_BYTES
    }

    /// Mean requests in a second, which the paper does not tell.
    pub fn per_second(self) -> f64 {
        match self {
            Self::List => 20.0,
            Self::Video | Self::Upload => 1.0,
        }
    }
}

/// A request that a client makes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// When, from the start of the traffic.
    pub at: Duration,
    /// What for.
    pub kind: Kind,
}

/// Poisson arrivals of all `kinds` until `length`, by time. Each kind draws from a stream of its own.
pub fn requests(kinds: &[Kind], length: Duration, seed: u64) -> Vec<Request> {
    requests_at(Kind::per_second, kinds, length, seed)
}

/// Such arrivals with other rates, of requests in a second.
pub fn requests_at(
    per_second: impl Fn(Kind) -> f64,
    kinds: &[Kind],
    length: Duration,
    seed: u64,
) -> Vec<Request> {
    let mut requests = Vec::new();
    for kind in kinds {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(u64::from(kind.port()));
        let mut at_s = 0.0;
        loop {
            at_s -= (1.0 - random.random::<f64>()).ln() / per_second(*kind);
            if at_s >= length.as_secs_f64() {
                break;
            }
            let at = Duration::from_secs_f64(at_s);
            requests.push(Request { at, kind: *kind });
        }
    }
    requests.sort_by_key(|it| it.at);
    requests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_poisson_and_transfers_leave_listings_as_they_are() {
        let length = Duration::from_secs(500);
        let all = requests(&Kind::ALL, length, 7);
        let lists: Vec<_> = all.iter().filter(|it| it.kind == Kind::List).collect();
        // 10,000 are expected; five standard deviations are 500.
        assert!((9_500..=10_500).contains(&lists.len()), "{}", lists.len());
        let gaps = lists
            .windows(2)
            .map(|pair| (pair[1].at - pair[0].at).as_secs_f64());
        let squares: f64 = gaps.map(|gap| (gap * 20.0 - 1.0).powi(2)).sum();
        let variance = squares / lists.len() as f64;
        assert!((0.9..1.1).contains(&variance), "{variance}");
        let alone = requests(&[Kind::List], length, 7);
        assert!(alone.iter().eq(lists));
        assert!(all.is_sorted_by_key(|it| it.at));
    }
}
