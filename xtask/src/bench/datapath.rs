//! `bench-datapath`: what the splitter costs a packet.

use std::{collections::BTreeMap, process::ExitCode};

use anyhow::{Context as _, Result, bail};

use super::{DatapathArguments, Measurement, Medians, caches, live, rounded};
use crate::project::Project;

pub(crate) fn task(project: &Project, arguments: &DatapathArguments) -> Result<ExitCode> {
    if arguments.live {
        return live::task(project, arguments);
    }
    let arguments = &arguments.common;
    let measurement = Measurement::run(project, "datapath")?;
    let mut costs = costs(&measurement.medians(GROUP)?)?;
    let shares: BTreeMap<String, f64> = serde_json::from_str(&measurement.note(SHARES)?)
        .with_context(|| format!("{SHARES} is not the benchmark's"))?;
    costs.extend(shares);
    let once: BTreeMap<String, f64> = serde_json::from_str(&measurement.note(ONCE)?)
        .with_context(|| format!("{ONCE} is not the benchmark's"))?;
    costs.extend(once);
    costs.extend(caches::of_machine());
    let ratios = ratios(&costs);
    costs.extend(ratios);
    arguments.print(&costs, table)?;
    Ok(ExitCode::SUCCESS)
}

/// The bare pass as it is and everything else as what it costs above it, in ns
/// with two decimals.
fn costs(medians: &Medians) -> Result<BTreeMap<String, f64>> {
    let missing: Vec<_> = REQUIRED
        .iter()
        .filter(|name| !medians.contains_key(**name))
        .copied()
        .collect();
    let bare_pass = match medians.get(BARE_PASS) {
        Some(median) if missing.is_empty() => *median,
        _ => bail!(
            "the benchmark measured no {}: was it skipped for lack of root or of kernel features?",
            missing.join(", ")
        ),
    };
    let cost = |(name, median): (&String, &f64)| {
        let above = match floor(name, medians) {
            _ if name == BARE_PASS => 0.0,
            floor => floor.unwrap_or(bare_pass),
        };
        (format!("{name}_ns"), rounded(median - above, 2))
    };
    Ok(medians.iter().map(cost).collect())
}

/// What the choice of a path costs in each row that has one, in look-ups of an LRU hash of the same run: machines differ
/// in both alike.
fn ratios(costs: &BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    let cost = |name: &str| costs.get(&format!("{name}_ns"));
    let ratio = |name: &String| {
        let row = name.strip_suffix("_ns")?;
        let (nothing, look_up) = without_choice(row)?;
        let (own, nothing, look_up) = (cost(row)?, cost(nothing)?, cost(look_up)?);
        let ratio = rounded((own - nothing) / look_up, 3);
        (*look_up > 0.0).then(|| (format!("{row}{RATIO}"), ratio))
    };
    costs.keys().filter_map(ratio).collect()
}

/// For a row with the choice of a path: the row without it, and the one of a look-up in an LRU hash.
fn without_choice(row: &str) -> Option<(&'static str, &'static str)> {
    match row {
        "balance_nothing" => None,
        _ if row.starts_with("balance_") => Some(("balance_nothing", "lru_hash_known")),
        _ if !row.starts_with("tr_") => None,
        _ if row.ends_with("_known_v6") => Some(("mark_known_v6", "lru_hash_ipv6_known")),
        _ => Some(("mark_known", "lru_hash_known")),
    }
}

/// The row that does nothing at the same pace, of rows whose packets come a few at a time.
fn floor(name: &str, medians: &Medians) -> Option<f64> {
    let (what, pace) = name.rsplit_once('_')?;
    let floor = medians.get(&format!("floor_{pace}"))?;
    what.contains("insertion").then_some(*floor)
}

fn table(costs: &BTreeMap<String, f64>) -> String {
    let named = costs.iter().map(|(name, figure)| (name.clone(), *figure));
    let (caches, costs): (BTreeMap<_, _>, BTreeMap<_, _>) =
        named.partition(|(name, _)| name.ends_with(BYTES));
    let (shares, costs): (BTreeMap<_, _>, BTreeMap<_, _>) = costs
        .into_iter()
        .partition(|(name, _)| name.ends_with(PERCENT));
    let (ratios, costs): (BTreeMap<_, _>, BTreeMap<_, _>) = costs
        .into_iter()
        .partition(|(name, _)| name.ends_with(RATIO));
    let width = costs.keys().map(String::len).max().unwrap_or_default();
    let line =
        |name: &str, ns: f64| format!("{:width$}  {ns:>8.2}\n", name.trim_end_matches("_ns"));
    let bare_pass = format!("{BARE_PASS}_ns");
    let (bare, above): (Vec<_>, Vec<_>) = costs.iter().partition(|(name, _)| **name == bare_pass);
    let lines = |of: Vec<(&String, &f64)>| of.into_iter().map(|(n, ns)| line(n, *ns)).collect();
    let [bare, above]: [String; 2] = [lines(bare), lines(above)];
    let share = |(name, percent): (&String, &f64)| {
        let name = name.trim_end_matches(PERCENT).replace('_', " ");
        format!("{name}: {percent:.2} %\n")
    };
    let shares: String = shares.iter().map(share).collect();
    let ratio = |(name, times): (&String, &f64)| {
        let name = name.trim_end_matches(RATIO);
        format!("{name:width$}  {times:>8.3}\n")
    };
    let ratios: String = ratios.iter().map(ratio).collect();
    let cache = |(name, bytes): (&String, &f64)| {
        let name = name.trim_end_matches(BYTES).replace('_', " ");
        format!("{name}: {} KiB\n", bytes / 1_024.0)
    };
    let caches: String = caches.iter().map(cache).collect();
    format!(
        "ns a packet\n{bare}\nns a packet above the bare pass\n{above}\n\
         choice of a path, in look-ups of an LRU hash of this run\n{ratios}\n{shares}{caches}"
    )
}

/// Criterion's group, whose benchmarks are the keys of the result without `_ns`.
const GROUP: &str = "datapath";

/// What the benchmark notes besides: shares of flows or packets.
const SHARES: &str = "table_shares.json";

/// What criterion does not time, as what it costs above a program that does nothing.
const ONCE: &str = "datapath_once.json";

const PERCENT: &str = "_percent";
const BYTES: &str = "_bytes";
const RATIO: &str = "_lru_ratio";

const BARE_PASS: &str = "bare_pass";

const REQUIRED: &[&str] = &[
    BARE_PASS,
    "known_flow",
    "new_flow",
    "known_short_flow_50_sites",
    "new_flow_50_sites",
    "new_long_flow",
    "new_long_flow_50_sites",
    "non_tcp",
    "ipv6_known",
    "new_flow_cached",
    "new_flow_128k",
    "random_1m",
    "insertion_100",
    "insertion_10k",
    "insertion_1m",
    "insertion_v6_1m",
    "zipf_1m",
    "zipf_1m_v6",
    "mixed",
    "mixed_v6",
    "flood",
    "lru_hash_known",
    "lru_hash_ipv6_known",
    "lru_hash_new_flow",
    "lru_hash_random_1m",
    "lru_hash_flood",
    "lru_hash_insertion_1m",
    "lru_hash_zipf_1m",
    "lru_hash_mixed",
    "count_at_site",
    "count_at_tunnel",
    "count_elsewhere",
    "known_short_flow_v6",
    "new_flow_v6",
    "random_1m_v6",
    "flood_v6",
    "mark_known",
    "tr_4_known",
    "tr_16_known",
    "balance_ecmp",
    "balance_letflow",
    "balance_nothing",
    "balance_tr_short",
    "balance_tr_long",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_above_the_bare_pass() {
        let mut medians: BTreeMap<_, _> =
            REQUIRED.iter().map(|n| ((*n).to_owned(), 30.0)).collect();
        medians.insert(BARE_PASS.to_owned(), 21.004);
        medians.insert("known_dscp_flow".to_owned(), 33.5);
        let costs = costs(&medians).unwrap();
        assert_eq!(costs["bare_pass_ns"], 21.0);
        assert_eq!(costs["known_flow_ns"], 9.0);
        assert_eq!(costs["known_dscp_flow_ns"], 12.5);
        assert!(table(&costs).starts_with("ns a packet\nbare_pass "));

        medians.insert("floor_1m".to_owned(), 25.0);
        medians.insert("insertion_1m".to_owned(), 95.5);
        assert_eq!(super::costs(&medians).unwrap()["insertion_1m_ns"], 70.5);

        let shares = BTreeMap::from([("flood_long_kept_percent".to_owned(), 99.98)]);
        assert!(table(&shares).ends_with("\nflood long kept: 99.98 %\n"));
    }

    #[test]
    fn choices_are_told_in_look_ups_of_the_same_run() {
        let names = [
            "mark_known",
            "tr_4_known",
            "mark_known_v6",
            "tr_16_known_v6",
        ];
        let others = [
            "balance_nothing",
            "balance_ecmp",
            "lru_hash_known",
            "lru_hash_ipv6_known",
            "known_flow",
        ];
        let of = |(name, ns): (&str, f64)| (format!("{name}_ns"), ns);
        let figures = [100.0, 150.0, 120.0, 210.0, 300.0, 330.0, 60.0, 90.0, 50.0];
        let costs: BTreeMap<_, _> = names
            .into_iter()
            .chain(others)
            .zip(figures)
            .map(of)
            .collect();
        let ratios = ratios(&costs);
        let expected = [
            ("balance_ecmp_lru_ratio", 0.5),
            ("tr_16_known_v6_lru_ratio", 1.0),
            ("tr_4_known_lru_ratio", 0.833),
        ];
        let expected = expected.map(|(name, ratio)| (name.to_owned(), ratio));
        assert_eq!(ratios, expected.into());
        let text = table(&ratios.into_iter().chain(costs).collect());
        let mut lines = text.lines().map(str::split_whitespace);
        assert!(lines.any(|it| it.eq(["tr_4_known", "0.833"])), "{text}");
    }

    #[test]
    fn names_what_was_not_measured() {
        let medians = BTreeMap::from([(BARE_PASS.to_owned(), 21.0)]);
        let message = costs(&medians).unwrap_err().to_string();
        assert!(message.contains("known_flow, new_flow"), "{message}");
    }
}
