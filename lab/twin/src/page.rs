//! The results as one page, and as JSON.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use flow_report::{Bars, Page};

use crate::{
    network,
    row::{Row, table},
};

/// The file of results in a run's directory.
const JSON: &str = "twin.json";

/// Reads what [`write()`] wrote.
pub(crate) fn read(directory: &Path) -> Result<Vec<Row>> {
    let file = directory.join(JSON);
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()));
    serde_json::from_str(&text?).with_context(|| format!("cannot understand {}", file.display()))
}

/// Writes `index.html` and `twin.json`.
pub(crate) fn write(directory: &Path, rows: &[Row]) -> Result<()> {
    let cannot = || format!("cannot write into {}", directory.display());
    let json = serde_json::to_string_pretty(rows)?;
    fs::create_dir_all(directory).with_context(cannot)?;
    fs::write(directory.join(JSON), json).with_context(cannot)?;
    fs::write(directory.join("index.html"), page(rows).to_html()).with_context(cannot)
}

fn page(rows: &[Row]) -> Page {
    let seeds = rows.first().map_or(0, |it| it.runs.len());
    let mut page = Page::new("A twin held against its network")
        .text(&format!(
            "Completion times in ms of flows over {} with queues of {} ms: recorded while the splitter ran with a tunnel for each class, predicted by netsim run --trace, and measured. Medians over {seeds} seeds; ratios are predicted by measured, with the least and the greatest of a seed.",
            network::uplinks(),
            network::queue_ms()
        ))
        .table(&table(rows));
    for it in rows.iter().flat_map(|it| &it.runs) {
        if let Some(objection) = &it.objection {
            page = page.note(&format!(
                "load {} %, {}, seed {}: {objection}",
                it.load_percent, it.policy, it.seed
            ));
        }
    }
    let panel = |title: &str, mean: fn(&Row) -> [f64; 2]| {
        let mut bars = Bars::new(title);
        for it in rows {
            let load = format!("long flows fill {} %", it.load_percent);
            bars = bars.row(it.policy.clone(), load);
        }
        let values = |index: usize| rows.iter().map(move |it| mean(it)[index]);
        bars.panel("predicted", "ms", values(0))
            .panel("measured", "ms", values(1))
    };
    page.bars(&panel("Short flows, mean", |it| {
        [it.predicted_short_mean_ms, it.measured_short_mean_ms]
    }))
    .bars(&panel("Short flows, 99th percentile", |it| {
        [it.predicted_short_p99_ms, it.measured_short_p99_ms]
    }))
}
