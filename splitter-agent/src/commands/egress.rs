//! The part of `splitter status` on what really left by the tunnels.

use anyhow::Result;
use flow_cli::{group_thousands, print};
use flow_report::Table;
use splitter_config::{Balancers, SiteName};
use splitter_instance::{ByClass, ByMark, ChosenRow, EgressRow, RedirectedChoice};

/// Shows what left by each tunnel, by family and by what the mark says.
pub(super) fn show(rows: &[EgressRow]) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let has_sites = rows.iter().any(|it| it.site != SiteName::default());
    // A single site has no name as a rule.
    let first = usize::from(!has_sites);
    let headers = ["site", "left by", "family"].into_iter().skip(first);
    let mut table = Table::new(headers.chain(ByMark::NAMES));
    for row in rows {
        let device = row.device.to_string();
        let left_by = [row.site.to_string(), device, row.family.to_owned()];
        let packets = row.packets.counts().map(group_thousands);
        table.row(left_by.into_iter().skip(first).chain(packets));
    }
    print(format_args!("\n{}", table.to_text()))
}

/// Shows how often packets chose each tunnel, and the delay that they reckon with.
pub(super) fn show_chosen(rows: &[ChosenRow], balancers: Option<Balancers>) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let headers = ["chosen", "delay", "model off by", "share"];
    let mut table = Table::new(headers.into_iter().chain(ByClass::NAMES));
    for row in rows {
        let device = match row.usable {
            true => row.device.to_string(),
            false => format!("{} (not now)", row.device),
        };
        let share = row
            .share
            .map_or("-".to_owned(), |it| format!("{:.1} %", it * 100.0));
        let delay = format!("{:.1} ms", row.delay_ms);
        let packets = row.packets.counts().map(group_thousands);
        let error = row
            .model_error_us
            .map_or("-".to_owned(), |it| format!("{it:.0} us"));
        table.row([device, delay, error, share].into_iter().chain(packets));
    }
    print(format_args!("\n{}", table.to_text()))?;
    let sum = |count: fn(&ChosenRow) -> u64| group_thousands(rows.iter().map(count).sum());
    print(format_args!(
        "As configured, {}. {} packets took another tunnel than the one before of their flow; for the sake of order {} \
         took one by which they arrive later.",
        balancers.map_or("nobody chooses".to_owned(), |it| it.to_string()),
        sum(|it| it.changes),
        sum(|it| it.refusals)
    ))?;
    ChosenRow::heard_in_words(rows).map_or(Ok(()), print)
}

/// Says what is different for packets that choose and are redirected.
pub(super) fn show_choice_past_stack(
    balancers: Balancers,
    choice: Option<&RedirectedChoice>,
) -> Result<()> {
    for note in choice.iter().flat_map(|it| it.notes()) {
        print(note)?;
    }
    print(
        "What goes by the network stack does not choose: it and all that is not split take a tunnel of their class, and may \
         overtake what was redirected.",
    )?;
    if [balancers.short, balancers.long]
        .iter()
        .any(|it| it.needs_rates())
    {
        print(
            "What is redirected waits in no queue here: the choice goes by a model of queues that drain at the rates that are \
             stated, and nothing corrects it.",
        )?;
    }
    Ok(())
}
