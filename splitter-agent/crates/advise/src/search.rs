//! The threshold that the model likes best, and how sure that is.

use rand_distr::{Distribution as _, Poisson};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng as _;
use serde::{Deserialize, Serialize};

use super::model::{Network, Prediction, mean_bytes, predict};
use super::sizes::{Bucket, Sample, bucket_end};
use super::{Question, Traffic};

/// With fewer flows the tail, where most bytes are, has hardly been seen.
const ENOUGH_FLOWS: f64 = 1_000.0;
/// What is this close to the best is as good: the model is not better than that.
const AS_GOOD: f64 = 1.01;
/// How often the flows are drawn again.
const DRAWS: usize = 40;
/// A recommendation whose likely range is wider than this factor is a guess.
const SURE_WITHIN: f64 = 2.0;
/// The load that is assumed where no rate is known.
const ASSUMED_LOAD: f64 = 0.5;

/// Names the recommended threshold, and why it is recommended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// In a word.
    pub verdict: Verdict,
    /// "packets" or "bytes".
    pub unit: String,
    /// The threshold to set; the present one where that is as good; null where none can be reported.
    pub recommended: Option<u32>,
    /// Where eight of ten recommendations lie when the flows are drawn again (bootstrap); null
    /// where the sizes are a distribution and not a sample.
    pub range: Option<[u32; 2]>,
    /// By how much the mean slowdown falls, 0 to 1.
    pub gain: f64,
    /// What the model expects of the present threshold; null where a tunnel would be overloaded.
    pub present: Option<Expected>,
    /// What it expects of the recommended one.
    pub expected: Option<Expected>,
    /// How many flows it is from, older ones counting less.
    pub flows: f64,
    /// Flows per second that were measured or assumed.
    pub flows_per_second: f64,
    /// What was assumed, and what else to know, in words.
    pub notes: Vec<String>,
}

/// Advice in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The recommended threshold is better.
    Change,
    /// The present one is within a hundredth of the best.
    Keep,
    /// One is recommended, but other flows of the same kind could well recommend another.
    Uncertain,
    /// Too few flows have ended.
    TooFewFlows,
    /// No threshold keeps both tunnels below what they carry.
    Overloaded,
}

/// Holds what the model expects of a threshold. Completion times are null where no rates are known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    /// The threshold.
    pub threshold: u32,
    /// Share of flows that become long, 0 to 1.
    pub long_flows: f64,
    /// Share of bytes that take the long tunnel, 0 to 1.
    pub long_bytes: f64,
    /// Load of the short tunnel, 0 to 1.
    pub short_load: f64,
    /// Load of the long tunnel, 0 to 1.
    pub long_load: f64,
    /// How long a burst waits in the short tunnel.
    pub short_wait_s: Option<f64>,
    /// Mean completion time of the flows that stay short.
    pub short_fct_s: Option<f64>,
    /// Mean completion time of the flows that both thresholds leave short.
    pub short_in_both_fct_s: Option<f64>,
    /// Mean completion time of the flows that become long.
    pub long_fct_s: Option<f64>,
    /// Mean completion time of the flows that both thresholds make long.
    pub long_in_both_fct_s: Option<f64>,
    /// Mean over all flows of completion time over that of the flow alone.
    pub mean_slowdown: f64,
}

/// Recommends a threshold for flows like those of the sample.
///
/// `is_sample` says that they were counted one by one, so that their number says how sure the
/// advice is.
#[must_use]
pub fn advise(sample: &Sample, question: &Question, is_sample: bool) -> Advice {
    let flows = sample.filled();
    let mut advice = Advice {
        verdict: Verdict::TooFewFlows,
        unit: question.unit.to_string(),
        recommended: None,
        range: None,
        gain: 0.0,
        present: None,
        expected: None,
        flows: sample.flows(),
        flows_per_second: 0.0,
        notes: Vec::new(),
    };
    if flows.is_empty() || (is_sample && advice.flows < ENOUGH_FLOWS) {
        advice.notes.push(format!(
            "{:.0} flows have ended, of which older ones count less; {ENOUGH_FLOWS} are needed",
            advice.flows
        ));
        return advice;
    }
    let network = network(&flows, question, &mut advice.notes);
    advice.flows_per_second = network.flows_per_second;
    let Some(best) = search(&flows, &network, question) else {
        advice.verdict = Verdict::Overloaded;
        advice.notes.push(
            "no threshold within the bounds keeps both tunnels below what they carry".to_owned(),
        );
        return advice;
    };
    let references = [best.min(question.current), best.max(question.current)].map(u64::from);
    let expect = |threshold: u32| {
        let prediction = predict(&flows, &network, threshold.into(), references)?;
        Some(Expected::new(
            threshold,
            &prediction,
            question.rates.is_some(),
        ))
    };
    (advice.present, advice.expected) = (expect(question.current), expect(best));
    advice.recommended = Some(best);
    advice.gain = gain(advice.present.as_ref(), advice.expected.as_ref());
    advice.verdict = if best == question.current {
        Verdict::Keep
    } else {
        Verdict::Change
    };
    if is_sample {
        let range = range(&flows, &network, question);
        advice.range = range;
        let sure = range.is_some_and(|[low, high]| f64::from(high) <= f64::from(low) * SURE_WITHIN);
        if advice.verdict == Verdict::Change && !sure {
            advice.verdict = Verdict::Uncertain;
        }
    }
    advice
}

/// From bits, milliseconds and shares to what the model counts in.
fn network(flows: &[Bucket], question: &Question, notes: &mut Vec<String>) -> Network {
    let mean_bytes = mean_bytes(flows);
    let rtt_s = question.rtt.as_secs_f64();
    let [short_rate, long_rate] = match (question.rates, question.traffic) {
        (Some(rates), _) => rates.map(|bits| bits / 8.0),
        (None, traffic) => {
            let load = match traffic {
                Traffic::Load(load) => load,
                Traffic::FlowsPerSecond(_) => ASSUMED_LOAD,
            };
            notes.push(format!(
                "the rates of the tunnels are not known: they are taken to be equal and loaded to {:.0} % together; state short.rate_mbit and long.rate_mbit for times and better advice",
                load * 100.0
            ));
            let per_second = match traffic {
                Traffic::FlowsPerSecond(flows) => flows,
                Traffic::Load(_) => 1.0,
            };
            [(per_second * mean_bytes / load / 2.0).max(1.0); 2]
        }
    };
    let flows_per_second = match question.traffic {
        Traffic::FlowsPerSecond(flows) => flows,
        Traffic::Load(load) => load * (short_rate + long_rate) / mean_bytes.max(1.0),
    };
    Network {
        short_rate,
        long_rate,
        rtt_s,
        flows_per_second,
    }
}

/// The present threshold if it is as good as the best, else the lowest that is: it leaves the
/// short tunnel the least of long flows. `None` where each overloads a tunnel.
fn search(flows: &[Bucket], network: &Network, question: &Question) -> Option<u32> {
    let [low, high] = question.bounds;
    let slowdown = |threshold: u32| {
        let prediction = predict(flows, network, threshold.into(), [0; 2])?;
        Some(prediction.mean_slowdown)
    };
    let candidates: Vec<(u32, f64)> = candidates(low, high)
        .into_iter()
        .filter_map(|threshold| Some((threshold, slowdown(threshold)?)))
        .collect();
    let (_, best) = candidates
        .iter()
        .copied()
        .min_by(|a, b| a.1.total_cmp(&b.1))?;
    let is_as_good = |slowdown: f64| slowdown <= best * AS_GOOD;
    let present = question.current;
    if (low..=high).contains(&present) && slowdown(present).is_some_and(is_as_good) {
        return Some(present);
    }
    let mut candidates = candidates.into_iter();
    candidates
        .find(|(_, slowdown)| is_as_good(*slowdown))
        .map(|(threshold, _)| threshold)
}

/// The bounds of buckets between `low` and `high`, and these two: flows of one bucket are then
/// all short or all long.
fn candidates(low: u32, high: u32) -> Vec<u32> {
    let mut candidates = vec![low];
    let mut last = u64::from(low);
    while last < u64::from(high) {
        last = bucket_end(last + 1);
        candidates.push(u32::try_from(last).unwrap_or(high).min(high));
    }
    candidates
}

fn gain(present: Option<&Expected>, expected: Option<&Expected>) -> f64 {
    match (present, expected) {
        (Some(present), Some(expected)) => 1.0 - expected.mean_slowdown / present.mean_slowdown,
        // From a threshold that overloads a tunnel to one that does not.
        (None, Some(_)) => 1.0,
        _ => 0.0,
    }
}

/// Poisson bootstrap: the number of flows of each size is drawn again around what was counted.
fn range(flows: &[Bucket], network: &Network, question: &Question) -> Option<[u32; 2]> {
    // The same flows give the same advice.
    let mut random = Xoshiro256PlusPlus::seed_from_u64(0x5eed);
    let counted: f64 = flows.iter().map(|bucket| bucket.flows).sum();
    let mut found = Vec::with_capacity(DRAWS);
    for _ in 0..DRAWS {
        let mut drawn = Vec::with_capacity(flows.len());
        for bucket in flows {
            let count =
                Poisson::new(bucket.flows).map_or(bucket.flows, |law| law.sample(&mut random));
            if count > 0.0 {
                let factor = count / bucket.flows;
                drawn.push(Bucket {
                    flows: count,
                    units: bucket.units * factor,
                    bytes: bucket.bytes * factor,
                    ..*bucket
                });
            }
        }
        let drawn_flows: f64 = drawn.iter().map(|bucket| bucket.flows).sum();
        let network = Network {
            flows_per_second: network.flows_per_second * drawn_flows / counted,
            ..*network
        };
        found.extend(search(&drawn, &network, question));
    }
    found.sort_unstable();
    // Draws that overload a tunnel recommend nothing, and leave the range open.
    if found.len() < DRAWS * 9 / 10 {
        return None;
    }
    Some([found[found.len() / 10], found[found.len() * 9 / 10]])
}

impl Expected {
    fn new(threshold: u32, prediction: &Prediction, has_rates: bool) -> Self {
        let time = |seconds: f64| (has_rates && seconds > 0.0).then_some(seconds);
        Self {
            threshold,
            long_flows: prediction.long_flows,
            long_bytes: prediction.long_bytes,
            short_load: prediction.short_load,
            long_load: prediction.long_load,
            short_wait_s: has_rates.then_some(prediction.wait_s),
            short_fct_s: time(prediction.short_fct_s),
            short_in_both_fct_s: time(prediction.below_fct_s),
            long_fct_s: time(prediction.long_fct_s),
            long_in_both_fct_s: time(prediction.beyond_fct_s),
            mean_slowdown: prediction.mean_slowdown,
        }
    }
}

#[cfg(test)]
mod tests;
