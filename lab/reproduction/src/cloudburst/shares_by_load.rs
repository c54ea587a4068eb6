//! The best share of the link (figure 18, `C11`) by load: how many hosts of a leaf send at once.
//!
//! At half of the rate all hosts of a leaf just fill its uplinks of 2:1, so that nothing of theirs is lost however many send. While few
//! do, a larger share costs nothing. So the paper's half should come out when there is so much to send that many do, with
//! bulk or without: that is measured here, with everything else as it is.

use flow_report::Table;

use super::{
    Effort,
    experiment::{Experiment, P99, over},
    large::{share, warmed_up},
};
use crate::tr::runs::Runs;

/// Messages a second of each host, in place of the scenario's 2,000 (A-C12).
const PER_SECOND: [u32; 4] = [2_000, 4_000, 8_000, 16_000];
const HOSTS: u32 = 144;
/// With half of the rate, in tenths: what others are set against.
const HALF: u32 = 5;

/// Returns the experiment: shares at each rate of messages, beside bulk and alone.
pub fn experiment(effort: &Effort) -> Experiment {
    let mut schemes = Vec::new();
    for per_second in PER_SECOND {
        for has_bulk in [true, false] {
            for tenths in &effort.shares_by_load {
                let changes = format!(
                    "transport.cloudburst.share = {:.1}\n{}",
                    share(*tenths),
                    traffic(per_second, has_bulk)
                );
                schemes.push((
                    name(per_second, has_bulk, *tenths),
                    "cloudburst-1.0",
                    changes,
                ));
            }
        }
    }
    Experiment {
        name: "cloudburst-shares-by-load",
        scenario: "cloudburst-oversubscribed",
        schemes: warmed_up(schemes, effort),
        seeds: effort.large_seeds,
        messages: Some(effort.large_messages),
    }
}

fn name(per_second: u32, has_bulk: bool, tenths: u32) -> String {
    let bulk = if has_bulk { "bulk" } else { "alone" };
    format!("{per_second}-{bulk}-{:.1}", share(tenths))
}

/// The scenario's traffic with another rate of messages.
fn traffic(per_second: u32, has_bulk: bool) -> String {
    let bulk = match has_bulk {
        true => ", { kind = 'background', bytes = 10_000_000, hosts = { pattern = 'all' } }",
        false => "",
    };
    format!(
        "traffic = [{{ kind = 'poisson', sizes = [5_000, 10_000, 20_000, 50_000, 93_000], per_second = {}, \
         messages = 30_000, hosts = {{ pattern = 'all' }} }}{bulk}]\n",
        per_second * HOSTS
    )
}

/// A row for each rate, beside bulk and alone: 99th percentiles, mean over sizes of what they are of those at half of the link.
pub fn table(runs: &Runs, effort: &Effort) -> Table {
    let shares = || effort.shares_by_load.iter();
    let header = ["messages/s a host", "bulk", "best share"].map(str::to_owned);
    let columns = shares().map(|it| format!("at {:.1}", share(*it)));
    let mut table = Table::new(header.into_iter().chain(columns));
    for per_second in PER_SECOND {
        for has_bulk in [true, false] {
            let half = name(per_second, has_bulk, HALF);
            let of_half =
                |tenths: &u32| over(runs, &name(per_second, has_bulk, *tenths), &half, &P99);
            let known = shares().filter_map(|it| Some((*it, of_half(it)?.mean)));
            let best = known.min_by(|a, b| a.1.total_cmp(&b.1));
            let best = best.map_or_else(String::new, |it| format!("{:.1}", share(it.0)));
            let bulk = if has_bulk { "yes" } else { "no" };
            let cells = [per_second.to_string(), bulk.to_owned(), best];
            let ratios =
                shares().map(|it| of_half(it).map_or_else(String::new, |it| it.to_text(2)));
            table.row(cells.into_iter().chain(ratios));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scheme_has_its_share_its_messages_and_its_bulk() {
        let effort = Effort::quick(1);
        let experiment = experiment(&effort);
        assert_eq!(
            experiment.schemes.len(),
            2 * PER_SECOND.len() * effort.shares_by_load.len()
        );
        let source = netsim::Source::from_text("shares", &experiment.text().expect("it is right"))
            .with_paper_machine(paper_machine::simulated);
        for (has_bulk, kinds) in [(true, 2), (false, 1)] {
            let overrides = netsim::Overrides {
                scheme: Some(name(8_000, has_bulk, 5)),
                ..Default::default()
            };
            let found = source.experiment(&overrides).expect("it is right");
            let found = serde_json::to_value(found.settings()).expect("they are numbers");
            assert_eq!(found["transport"]["cloudburst"]["share"], 0.5);
            let traffic = found["traffic"].as_array().expect("a list");
            assert_eq!(traffic.len(), kinds);
            assert_eq!(traffic[0]["per_second"].as_f64(), Some(1_152_000.0));
        }
    }
}
