//! What placement alone can come to: the same transfers over two pipes that divide themselves evenly among those in
//! them, without loss, slow start or a round trip.

/// Where a transfer is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// In a pipe by chance, to its end: per-flow ECMP.
    ByChance,
    /// Where the fewest are when it starts, to its end: all that can be known of flows whose sizes are not.
    WhereFewest,
    /// In the emptier pipe at each moment: no flow waits while there is room, which takes packets out of
    /// order.
    Anywhere,
}

/// A transfer under way.
struct Job {
    started_ns: f64,
    left_ns: f64,
}

/// The mean time in milliseconds of transfers that start then, each of which takes so long alone.
pub(crate) fn mean_ms(starts_ns: &[u64], alone_ns: f64, placement: Placement, seed: u64) -> f64 {
    let mut starts: Vec<f64> = starts_ns.iter().map(|it| *it as f64).collect();
    starts.sort_by(f64::total_cmp);
    let chance = &mut super::traffic::Random(seed);
    let mut pipes: [Vec<Job>; 2] = Default::default();
    let (mut now_ns, mut sum_ns) = (0.0, 0.0);
    let mut arrivals = starts.iter().copied().peekable();
    loop {
        let speeds = speeds(&pipes, placement);
        let ends = pipes.iter().zip(speeds).flat_map(|(pipe, speed)| {
            let ends = pipe.iter().map(move |job| job.left_ns / speed);
            ends.map(|after| now_ns + after)
        });
        let next_end = ends.fold(f64::INFINITY, f64::min);
        let next_start = arrivals.peek().copied().unwrap_or(f64::INFINITY);
        let next_ns = next_end.min(next_start);
        if next_ns == f64::INFINITY {
            return sum_ns / 1e6 / starts.len() as f64;
        }
        for (pipe, speed) in pipes.iter_mut().zip(speeds) {
            for job in pipe.iter_mut() {
                job.left_ns -= (next_ns - now_ns) * speed;
            }
            for done in pipe.extract_if(.., |job| job.left_ns < 1.0) {
                sum_ns += next_ns - done.started_ns;
            }
        }
        now_ns = next_ns;
        if next_start <= next_end {
            arrivals.next();
            let at = match placement {
                Placement::ByChance => chance.below(2) as usize,
                Placement::Anywhere => 0,
                Placement::WhereFewest => usize::from(pipes[1].len() < pipes[0].len()),
            };
            pipes[at].push(Job {
                started_ns: now_ns,
                left_ns: alone_ns,
            });
        }
    }
}

/// The part of a pipe that each transfer has.
fn speeds(pipes: &[Vec<Job>; 2], placement: Placement) -> [f64; 2] {
    let even = |pipe: &Vec<Job>| 1.0 / pipe.len().max(1) as f64;
    match placement {
        Placement::Anywhere => [(2.0 * even(&pipes[0])).min(1.0), 1.0],
        Placement::ByChance | Placement::WhereFewest => [even(&pipes[0]), even(&pipes[1])],
    }
}
