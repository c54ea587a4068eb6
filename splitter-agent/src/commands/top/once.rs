//! One sample, printed: in 80 columns, as far as names allow. JSON has all of it.

use anyhow::Result;
use flow_cli::{group_thousands, print, print_json};
use flow_report::Table;
use flow_telemetry::page::Format;
use splitter_agent::overview::{ClassRow, Direction, Overview, Period};
use splitter_config::SiteName;
use splitter_steering::Egress;

pub(super) fn show(overview: &Overview, json: bool) -> Result<()> {
    if json {
        return print_json(overview);
    }
    print(format_args!("{}\n", attached(overview)))?;
    print(classes(overview).to_text())?;
    print(format_args!("\n{}", completion(overview).to_text()))?;
    print(format_args!("\n{}", tunnels(overview).to_text()))?;
    if overview
        .tunnels
        .iter()
        .any(|it| it.chosen.chosen_packets_per_s.is_some())
    {
        print(format_args!("\n{}", chosen(overview).to_text()))?;
    }
    let (listed, all) = (overview.flows.len() as u64, overview.flows_matching);
    print(format_args!(
        "\n{} of {} flows",
        group_thousands(listed),
        group_thousands(all)
    ))?;
    if overview.flows.is_empty() {
        return Ok(());
    }
    print(format_args!("\n{}", flows(overview).to_text()))
}

/// Where the instance is attached, in words.
pub(super) fn attached(overview: &Overview) -> String {
    let words = overview
        .attached
        .iter()
        .map(|it| format!("{} {}", it.interface, it.mode.as_str()));
    match words.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => format!("{}: attached to nothing", overview.name),
        words => format!("{}: {words}", overview.name),
    }
}

/// Where the packets of a class go, in a word.
pub(super) fn egress(row: &ClassRow) -> &'static str {
    row.tunnel.map_or("-", Egress::name)
}

/// A value that may not be known, in words.
pub(super) fn known(format: Format, value: Option<f64>) -> String {
    format.number(value.unwrap_or(f64::NAN))
}

fn classes(overview: &Overview) -> Table {
    let mut table = Table::new([
        "class",
        "tunnel",
        "flows",
        "packets/s",
        "rate",
        "packets",
        "bytes",
    ]);
    for row in &overview.classes {
        table.row([
            row.class.to_owned(),
            egress(row).to_owned(),
            group_thousands(row.flows),
            known(Format::Rate, row.packets_per_s),
            known(Format::BitsPerSecond, row.bits_per_s),
            group_thousands(row.packets),
            Format::Bytes.number(row.bytes as f64),
        ]);
    }
    table
}

fn completion(overview: &Overview) -> Table {
    let mut table = Table::new(["completion time", "ended", "mean", "p50", "p90", "p99"]);
    for row in &overview.completion {
        let period = match (row.period, row.window_s) {
            (Period::Total, _) => "since it is up".to_owned(),
            (Period::Recent, Some(window)) => format!("last {}", Format::Seconds.number(window)),
            (Period::Recent, None) => "of late".to_owned(),
        };
        let seconds = |value| known(Format::Seconds, value);
        table.row([
            format!("{}, {period}", row.class),
            group_thousands(row.finished),
            seconds(row.mean_s),
            seconds(row.p50_s),
            seconds(row.p90_s),
            seconds(row.p99_s),
        ]);
    }
    table
}

fn tunnels(overview: &Overview) -> Table {
    let headers = [
        "site",
        "tunnel",
        "device",
        "state",
        "",
        "rate",
        "packets/s",
        "used",
    ];
    let first = usize::from(overview.tunnels.iter().all(|it| it.site.is_none()));
    let mut table = Table::new(headers.into_iter().skip(first));
    for row in &overview.tunnels {
        let site = row.site.as_ref().map_or("-", SiteName::as_str);
        let sent = [
            site.to_owned(),
            row.tunnel.to_owned(),
            row.device.clone(),
            row.state.as_str().to_owned(),
            "sent".to_owned(),
            known(Format::BitsPerSecond, row.sent_bits_per_s),
            known(Format::Rate, row.sent_packets_per_s),
            known(Format::Share, row.share_used),
        ];
        let received = [
            String::new(),
            String::new(),
            String::new(),
            row.health.health.as_str().to_owned(),
            "received".to_owned(),
            known(Format::BitsPerSecond, row.received_bits_per_s),
            known(Format::Rate, row.received_packets_per_s),
            known(Format::Share, row.share_received),
        ];
        table.row(sent.into_iter().skip(first));
        table.row(received.into_iter().skip(first));
    }
    table
}

/// How packets choose among the tunnels.
fn chosen(overview: &Overview) -> Table {
    let mut table = Table::new(["chosen", "packets/s", "changed", "held", "model off by"]);
    for row in &overview.tunnels {
        let chosen = &row.chosen;
        let error_s = chosen.model_error_us.map(|it| it / 1e6);
        table.row([
            row.device.clone(),
            known(Format::Rate, chosen.chosen_packets_per_s),
            known(Format::Share, chosen.chosen_changes_ratio),
            known(Format::Share, chosen.chosen_refusals_ratio),
            known(Format::Seconds, error_s),
        ]);
    }
    table
}

/// Each connection in two lines: the flow from the site, and what comes back.
fn flows(overview: &Overview) -> Table {
    let mut table = Table::new(["flow", "class", "tunnel", "rate", "packets/s"]);
    for flow in &overview.flows {
        let row = &flow.row;
        table.row([
            row.to_string(),
            row.class.to_owned(),
            row.tunnel.to_owned(),
            known(Format::BitsPerSecond, flow.bits_per_s),
            known(Format::Rate, flow.packets_per_s),
        ]);
        let Some(reverse) = &flow.reverse else {
            table.row(["  reverse not seen", "", "", "", ""]);
            continue;
        };
        let carries = match flow.fills {
            Some(Direction::In) => "  reverse, carries more",
            Some(Direction::Out) => "  reverse, carries less",
            None => "  reverse",
        };
        table.row([
            carries.to_owned(),
            String::new(),
            reverse.row.tunnel.unwrap_or("none").to_owned(),
            known(Format::BitsPerSecond, reverse.bits_per_s),
            known(Format::Rate, reverse.packets_per_s),
        ]);
    }
    table
}
