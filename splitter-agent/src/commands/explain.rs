//! `splitter explain`: why a flow goes where it goes.

use anyhow::Result;
use clap::CommandFactory as _;
use clap::error::ErrorKind;
use flow_cli::{ExitCode, group_thousands, print, print_json};
use splitter_config::Config;
use splitter_datapath::Dataplane;
use splitter_datapath::flows::{FlowRow, each};
use splitter_instance::Instance;
use splitter_instance::explanation::{
    Endpoint, Explanation, Facts, FlowState, FlowThreshold, Verdict, explain,
};
use splitter_netlink::{InterfaceName, Netlink};
use splitter_policy::packet::protocol;
use splitter_steering::redirection::other_way_to;
use splitter_steering::routes::{
    Arrival, Destinations, NotTaken, Trace, TracedPacket, arrival, trace,
};

use crate::cli::{Cli, ExplainArgs};

/// So many flows of the table are shown.
const SHOWN: usize = 10;

/// Explains; changes nothing.
pub(crate) async fn run(config: Config, args: &ExplainArgs, json: bool) -> Result<ExitCode> {
    let (source, destination) = ends(&args.ends);
    let instance = Instance::new(config)?;
    let facts = gather(&instance, source, destination).await?;
    let explanation = explain(instance.config(), source, destination, facts);
    match json {
        true => print_json(&explanation)?,
        false => show(&explanation)?,
    }
    Ok(match explanation.verdict {
        Verdict::Split => ExitCode::Ok,
        Verdict::NotSplit => ExitCode::Failed,
        Verdict::Unknown => ExitCode::Unknown,
    })
}

/// The source, where one is named, and the destination. Ends the process where they are of two
/// families, as with any other mistake in the command line.
fn ends(ends: &[Endpoint]) -> (Option<Endpoint>, Endpoint) {
    match *ends {
        [source, destination] if source.address.is_ipv4() == destination.address.is_ipv4() => {
            (Some(source), destination)
        }
        [destination] => (None, destination),
        _ => Cli::command()
            .error(
                ErrorKind::ValueValidation,
                "a flow has two addresses of one family; give two of IPv4 or two of IPv6",
            )
            .exit(),
    }
}

/// Asks the flow table and the kernel.
async fn gather(
    instance: &Instance,
    source: Option<Endpoint>,
    destination: Endpoint,
) -> Result<Facts> {
    let config = instance.config();
    let dataplane = instance.open()?;
    let placements = instance.placements()?;
    let netlink = Netlink::connect()?;
    let interfaces = netlink.interfaces().await?;
    let arrival = match source {
        Some(source) => Some(arrival(&netlink, config, &interfaces, source.address).await?),
        None => None,
    };
    let mut found = Found::default();
    let (mut attached, mut threshold) = (Vec::new(), None);
    if let Some(dataplane) = &dataplane {
        found = Found::in_table(dataplane, source, destination)?;
        threshold = Some(FlowThreshold {
            count: dataplane.threshold_of(destination.address)?,
            unit: dataplane.policy()?.unit,
        });
        let programs = instance.attached(dataplane.program_id()?).await?;
        attached = programs.into_iter().map(|it| it.interface).collect();
    }
    let (source, destination) = found.ends(source, destination);
    let mut traces = Vec::new();
    for lan in lans(config, arrival.as_ref(), found.matching > 0) {
        let packet = TracedPacket {
            lan,
            source: source.map(|it| it.address),
            destination: destination.address,
            ports: [source.and_then(|it| it.port), destination.port],
            protocol: protocol::TCP,
        };
        let is_up = dataplane.is_some();
        traces.extend(trace(&netlink, config, &placements, &interfaces, is_up, packet).await?);
    }
    if let Some(dataplane) = &dataplane
        && let Some(choice) = instance.redirected_choice(dataplane)?
    {
        let elsewhere = other_way_to(&netlink, &interfaces, config, destination.address).await?;
        traces = choice.applied_to(&traces, elsewhere.as_deref());
    }
    let destinations = Destinations::read(&netlink, config).await?;
    let site = destinations.site_name_at(config, destination.address);
    let placement = placements.of(&site.clone().unwrap_or_default()).clone();
    Ok(Facts {
        is_up: dataplane.is_some(),
        attached,
        site,
        placement,
        threshold,
        arrival,
        flows_matching: found.matching,
        has_other_direction: found.has_other_direction,
        flows: found.flows,
        traces,
    })
}

/// The interfaces that the packets may come in by: what the table knows has come in by one of them.
fn lans<'c>(
    config: &'c Config,
    arrival: Option<&'c Arrival>,
    is_known: bool,
) -> Vec<&'c InterfaceName> {
    match arrival {
        Some(Arrival::Lan(lan)) => vec![lan],
        None | Some(Arrival::Unknown) => config.lan.iter().collect(),
        Some(_) if is_known => config.lan.iter().collect(),
        Some(_) => Vec::new(),
    }
}

/// What the flow table has between two ends.
#[derive(Default)]
struct Found {
    /// Those with the most packets first.
    flows: Vec<FlowRow>,
    matching: u64,
    has_other_direction: bool,
}

impl Found {
    fn in_table(
        dataplane: &Dataplane,
        source: Option<Endpoint>,
        destination: Endpoint,
    ) -> Result<Self> {
        let mut found = Self::default();
        each(dataplane, |row| found.take(row, source, destination))?;
        found.keep_largest();
        Ok(found)
    }

    fn take(&mut self, row: FlowRow, source: Option<Endpoint>, destination: Endpoint) {
        let is_from = |end: Endpoint| end.is(row.source, row.source_port);
        let is_to = |end: Endpoint| end.is(row.destination, row.destination_port);
        if is_to(destination) && source.is_none_or(is_from) {
            self.matching += 1;
            self.flows.push(row);
        } else if source.is_some_and(is_to) && is_from(destination) {
            self.has_other_direction = true;
        }
        // Memory is bounded, whatever the table holds.
        if self.flows.len() >= 100 * SHOWN {
            self.keep_largest();
        }
    }

    fn keep_largest(&mut self) {
        self.flows.sort_by_key(|row| std::cmp::Reverse(row.packets));
        self.flows.truncate(SHOWN);
    }

    /// The ends of the only flow that there is, which has ports; else those that were named.
    fn ends(
        &self,
        source: Option<Endpoint>,
        destination: Endpoint,
    ) -> (Option<Endpoint>, Endpoint) {
        let end = |address, port| Endpoint { address, port };
        match &self.flows[..] {
            [only] => (
                Some(end(only.source, only.source_port)),
                end(only.destination, only.destination_port),
            ),
            _ => (source, destination),
        }
    }
}

fn show(explanation: &Explanation) -> Result<()> {
    let verdict = match explanation.verdict {
        Verdict::Split => "split",
        Verdict::NotSplit => "NOT split",
        Verdict::Unknown => "cannot tell",
    };
    let destination = explanation.destination;
    let why = &explanation.why;
    match explanation.source {
        Some(source) => print(format_args!("{source} -> {destination}: {verdict}: {why}"))?,
        None => print(format_args!("any -> {destination}: {verdict}: {why}"))?,
    }
    if let Some(site) = &explanation.site {
        print(format_args!("  it goes to the site {site}"))?;
    }
    if let Some(remedy) = &explanation.remedy {
        print(format_args!("  what to do: {remedy}"))?;
    }
    for flow in &explanation.flows {
        show_flow(flow)?;
    }
    let more = explanation
        .flows_matching
        .saturating_sub(explanation.flows.len() as u64);
    match explanation.flows_matching {
        0 if explanation.verdict == Verdict::Split => {
            print("  no such flow is in the table; a new one would go so:")?;
        }
        _ if more > 0 => print(format_args!("  and {} more flows", group_thousands(more)))?,
        _ => {}
    }
    for path in &explanation.paths {
        show_path(path)?;
    }
    if !explanation.changes.is_empty() {
        print("  what would change it:")?;
    }
    for change in &explanation.changes {
        print(format_args!("    {change}"))?;
    }
    Ok(())
}

fn show_flow(FlowState { row, state }: &FlowState) -> Result<()> {
    print(format_args!("  flow {row}: {state}"))?;
    print(format_args!(
        "    {} packets, {} bytes, {:.1} s old, last packet {:.1} s ago",
        group_thousands(row.packets),
        group_thousands(row.bytes),
        row.age_s,
        row.idle_s
    ))
}

fn show_path(path: &Trace) -> Result<()> {
    let mark = match (path.dscp, path.fwmark) {
        (_, Some(mark)) => format!("fwmark {mark:#x}"),
        (dscp, None) => format!("DSCP {}", dscp.unwrap_or_default()),
    };
    let Trace {
        class,
        tunnel,
        lan,
        source,
        ..
    } = path;
    let tunnel = match path.balance {
        Some(_) => String::new(),
        None => format!(", for the {tunnel} tunnel"),
    };
    print(format_args!(
        "  {class}{tunnel}: from {source} by {lan}, with {mark}"
    ))?;
    if let Some(words) = path.choice_in_words() {
        print(format_args!("    {words}"))?;
    }
    for NotTaken { device, why } in &path.not_taken {
        print(format_args!("    not    {device}: {why}"))?;
    }
    if let Some(rule) = &path.rule {
        let ours = if rule.is_ours { "" } else { ", not ours" };
        print(format_args!("    rule   {}{ours}", rule.text))?;
    }
    if let (Some(table), Some(prefix)) = (&path.table, &path.prefix) {
        let hops: Vec<_> = path.next_hops.iter().map(ToString::to_string).collect();
        print(format_args!(
            "    route  {prefix} in table {table}:{}",
            hops.join(" or")
        ))?;
    }
    if let Some(device) = &path.chosen {
        print(format_args!("    hash   takes {device} for this flow"))?;
    }
    match &path.problem {
        Some(problem) => print(format_args!("    NOT as intended: {problem}")),
        None if path.is_split => print("    as intended"),
        None => Ok(()),
    }
}
