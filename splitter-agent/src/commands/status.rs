//! `splitter status`: what is going on, also without a daemon.

mod sizes;

use std::path::PathBuf;

use anyhow::Result;
use flow_cli::{group_thousands, print, print_json};
use flow_report::Table;
use serde::Serialize;
use splitter_config::{Balancers, Config, Overrides, SiteName, SteeringMode};
use splitter_datapath::InheritedFlows;
use splitter_instance::report::Report;
use splitter_instance::{
    AttachedInterface, ChosenRow, EgressRow, FlowCounts, Instance, Owner, RedirectedChoice, State,
    TrafficRow, TunnelEgress,
};
use splitter_netlink::{Family, InterfaceName};
use splitter_policy::counters::Counters;
use splitter_policy::flow::Class;
use splitter_policy::forward::Fallback;
use splitter_policy::pass_reason::PassReason;
use splitter_policy::table::TABLE_VERSION;
use splitter_steering::routes::{Destinations, FollowedPrefixes, RouteAudit};

use self::sizes::Sizes;
use super::InForce;
use super::plan::NAMED;

/// What `status` reports.
#[derive(Serialize)]
struct Status {
    name: String,
    up: bool,
    owner: Option<Owner>,
    attached: Vec<AttachedInterface>,
    /// The interfaces of the site that packets are not split on.
    missing: Vec<String>,
    /// Those of them that are not there.
    absent: Vec<InterfaceName>,
    in_place: bool,
    steering: SteeringMode,
    /// Whether nothing is marked or routed.
    shadow: bool,
    /// What was put into tunnels without the network stack, where that is asked for.
    redirected: Option<Redirected>,
    /// What was set in the running agent since it took its file.
    set: Overrides,
    /// The change that the agent takes back unless it is confirmed.
    unconfirmed: Option<Waiting>,
    /// Why it cannot be put in place at present.
    problem: Option<String>,
    traffic: Vec<TrafficRow>,
    /// What really left by each tunnel, beside `traffic`, which says what was marked; nothing of
    /// tunnels that are not counted.
    egress: Vec<EgressRow>,
    /// How the packets of each class choose by the configuration; none where they do not.
    balance: Option<Balancers>,
    /// What packets chose, and what they go by; nothing where they do not choose.
    chosen: Vec<ChosenRow>,
    flows: FlowCounts,
    flow_table: FlowTable,
    completion: Vec<Completion>,
    passed: Vec<Passed>,
    /// Where the kernel sends what should be split, as it was asked just now; none where it did not
    /// answer, or the instance is down.
    routing: Option<RouteAudit>,
    /// How many prefixes are followed, by site and family; none where the main table is not followed.
    followed: Vec<FollowedPrefixes>,
    /// What the agent that watches the tunnels reports; none while there is no such agent.
    health: Option<Report>,
    #[serde(skip)]
    silent_agent: Option<SilentAgent>,
}

/// An agent that runs and does not report how the tunnels are.
struct SilentAgent {
    pid: u32,
    /// Where it would.
    directory: PathBuf,
}

/// How flows lie in their table, and what became of them when the programs were last replaced.
#[derive(Serialize)]
struct FlowTable {
    version: u32,
    inherited: Option<InheritedFlows>,
    /// None while the instance is down.
    sizes: Option<Sizes>,
}

/// A change that awaits its confirmation.
#[derive(Serialize)]
struct Waiting {
    file: PathBuf,
    remaining_s: f64,
}

/// Completion times of the flows of a class that ended with FIN or RST; a quantile is the upper
/// bound of its bucket, and null where that has none or nothing ended.
#[derive(Serialize)]
struct Completion {
    class: &'static str,
    flows: u64,
    mean_s: Option<f64>,
    p50_s: Option<f64>,
    p90_s: Option<f64>,
    p99_s: Option<f64>,
}

#[derive(Serialize)]
struct Redirected {
    packets: u64,
    /// Packets for which the kernel's routing was asked, whatever became of them.
    fib_lookups: u64,
    /// What went by the stack, and why.
    by_stack: Vec<Passed>,
    /// Which packets choose, and among which tunnels; none where they do not by the configuration.
    choice: Option<RedirectedChoice>,
}

#[derive(Serialize)]
struct Passed {
    reason: &'static str,
    packets: u64,
}

/// Tells whether the instance is up, how it is attached and what it counted.
pub(crate) async fn status(in_force: InForce, json: bool) -> Result<()> {
    // An agent that runs waits for what is not there.
    let instance = Instance::new(in_force.config)?.with_what_is_there();
    let mut status = look(&instance, in_force.set).await?;
    status.silent_agent = in_force.agent.map(|pid| SilentAgent {
        pid,
        directory: instance.config().instance_dir(),
    });
    status.unconfirmed = in_force.unconfirmed.map(|change| Waiting {
        file: change.source,
        remaining_s: change.remaining_s,
    });
    if json {
        print_json(&status)
    } else {
        show(&status)
    }
}

async fn look(instance: &Instance, set: Overrides) -> Result<Status> {
    let config = instance.config();
    let state = State::read(&config.instance_dir())?;
    let dataplane = instance.open()?;
    let (attached, counters) = match &dataplane {
        Some(dataplane) => (
            instance.attached(dataplane.program_id()?).await?,
            dataplane.counters()?,
        ),
        None => (Vec::new(), Counters::ZERO),
    };
    // What keeps an instance from being put in place is worth knowing; it is no
    // reason to tell nothing else.
    let (in_place, absent, problem) = match &dataplane {
        None => (false, Vec::new(), None),
        Some(_) => match instance.plan().await {
            Ok(plan) => (
                plan.is_unchanged() && plan.absent.is_empty(),
                plan.absent,
                None,
            ),
            Err(error) => (false, Vec::new(), Some(error.to_string())),
        },
    };
    let routing = match &dataplane {
        Some(_) => instance.audit_routes().await.ok(),
        None => None,
    };
    let egress = match &dataplane {
        Some(dataplane) => instance.egress(dataplane).await?,
        None => Vec::new(),
    };
    let is_attached = |name| attached.iter().any(|it| it.interface == name);
    let missing = config
        .lan
        .iter()
        .filter(|name| !is_attached((*name).clone()));
    Ok(Status {
        name: config.name.to_string(),
        up: dataplane.is_some(),
        owner: state.as_ref().map(|state| state.owner),
        flow_table: FlowTable {
            version: TABLE_VERSION,
            inherited: state.and_then(|state| state.inherited),
            sizes: match &dataplane {
                Some(dataplane) => Some(Sizes::of(config, dataplane)?),
                None => None,
            },
        },
        missing: missing.map(ToString::to_string).collect(),
        in_place,
        absent,
        steering: config.steering.mode,
        shadow: config.shadow,
        redirected: match &dataplane {
            Some(it) => redirected(config, &counters, instance.redirected_choice(it)?),
            None => redirected(config, &counters, None),
        },
        set,
        unconfirmed: None,
        problem,
        traffic: TrafficRow::all(&counters, config.balancers()),
        balance: config.balancers(),
        chosen: ChosenRow::of(&egress),
        egress: egress.iter().flat_map(TunnelEgress::rows).collect(),
        flows: FlowCounts::new(&counters, config.balancers()),
        completion: Class::ALL.map(|class| completion(&counters, class)).into(),
        passed: passed(&counters),
        routing,
        followed: match Destinations::follow_main(config) {
            true => instance.followed_prefixes(),
            false => Vec::new(),
        },
        health: health(config, dataplane.is_some()),
        silent_agent: None,
        attached,
    })
}

/// What an agent that has ended reported last is of no use any more.
fn health(config: &Config, up: bool) -> Option<Report> {
    let report = Report::read(&config.instance_dir())?;
    (up && report.is_fresh()).then_some(report)
}

fn completion(counters: &Counters, class: Class) -> Completion {
    let times = counters.completion(class);
    let quantile = |share| Some(times.quantile_ns(share)? as f64 / 1e9);
    let flows: u64 = times.buckets.iter().sum();
    Completion {
        class: class.name(),
        flows,
        mean_s: (flows > 0).then(|| times.sum_ns as f64 / 1e9 / flows as f64),
        p50_s: quantile(50),
        p90_s: quantile(90),
        p99_s: quantile(99),
    }
}

fn redirected(
    config: &Config,
    counters: &Counters,
    choice: Option<RedirectedChoice>,
) -> Option<Redirected> {
    let by_stack = Fallback::ALL.map(|reason| Passed {
        reason: reason.name(),
        packets: counters.fallbacks(reason),
    });
    (config.steering.mode == SteeringMode::Redirect).then(|| Redirected {
        packets: counters.redirected,
        fib_lookups: counters.fib_lookups,
        by_stack: by_stack.into_iter().filter(|it| it.packets > 0).collect(),
        choice,
    })
}

fn passed(counters: &Counters) -> Vec<Passed> {
    let all = PassReason::ALL.into_iter().map(|reason| Passed {
        reason: reason.name(),
        packets: counters.passed(reason),
    });
    all.filter(|passed| passed.packets > 0).collect()
}

/// A line for each site.
fn followed_lines(followed: &[FollowedPrefixes]) -> Vec<String> {
    let sites = followed.iter().filter(|it| it.family == Family::V4);
    let count = |site: &SiteName, family| {
        let mut all = followed.iter();
        let of_it = all.find(|it| it.site == *site && it.family == family);
        of_it.map_or(0, |it| it.prefixes)
    };
    let line = |it: &FollowedPrefixes| {
        let at = match it.site == SiteName::default() {
            true => String::new(),
            false => format!("{}: ", it.site),
        };
        let [v4, v6] = [Family::V4, Family::V6].map(|family| count(&it.site, family));
        format!("{at}follows {v4} IPv4 and {v6} IPv6 prefixes of the main table")
    };
    sites.map(line).collect()
}

fn show(status: &Status) -> Result<()> {
    if !status.up {
        print(format_args!("{}: down", status.name))?;
        return Ok(());
    }
    let by = match status.owner {
        Some(Owner::Up) => "by `splitter up`",
        Some(Owner::Run) => "by `splitter run`",
        None => "by an unknown agent",
    };
    print(format_args!("{}: up, brought up {by}", status.name))?;
    for AttachedInterface { interface, mode } in &status.attached {
        print(format_args!("  {interface}: {}", mode.description()))?;
    }
    for interface in &status.missing {
        let is_absent = status.absent.iter().any(|it| it.as_str() == interface);
        print(match is_absent {
            true => format!("  {interface}: not there; attached once it is"),
            false => format!("  {interface}: not attached"),
        })?;
    }
    for (key, value) in &status.set {
        print(format_args!(
            "  {key} = {value}: set until the next `splitter reload` or start"
        ))?;
    }
    if let Some(Waiting { file, remaining_s }) = &status.unconfirmed {
        print(format_args!(
            "  {}: taken back in {remaining_s:.0} s, unless `splitter confirm` keeps it",
            file.display()
        ))?;
    }
    if let Some(problem) = &status.problem {
        print(format_args!("  not everything is in place: {problem}"))?;
    } else if !status.in_place && status.absent.is_empty() {
        print(format_args!(
            "  not everything is in place: `splitter plan` shows what `splitter up` would mend"
        ))?;
    }
    if let Some(inherited) = &status.flow_table.inherited {
        print(format_args!(
            "  when the programs were last replaced, {inherited}"
        ))?;
    }
    if let Some(sizes) = &status.flow_table.sizes {
        print(format_args!("  {sizes}"))?;
    }
    if status.steering != SteeringMode::Dscp {
        print(format_args!("  steering by {}", status.steering))?;
    }
    if let Some(redirected) = &status.redirected {
        let by_stack = redirected.by_stack.iter();
        let reasons: Vec<_> = by_stack
            .map(|it| format!("{} {}", it.packets, it.reason))
            .collect();
        let reasons = match reasons.is_empty() {
            true => "none".to_owned(),
            false => reasons.join(", "),
        };
        print(format_args!(
            "  {} packets redirected, routing asked for {}; by the network stack: {reasons}",
            redirected.packets, redirected.fib_lookups
        ))?;
    }
    for line in followed_lines(&status.followed) {
        print(format_args!("  {line}"))?;
    }
    for line in status.routing.iter().flat_map(|it| it.lines(NAMED)) {
        print(format_args!("  {line}"))?;
    }
    if status.shadow {
        print("  a shadow: nothing is marked or routed; below is what would have been")?;
    }
    match (&status.health, &status.silent_agent) {
        (Some(report), _) => super::tunnels::show(report)?,
        (None, Some(SilentAgent { pid, directory })) => print(format_args!(
            "  how the tunnels are is not known: the agent that runs, process {pid}, has written nothing of it to {} for 5 s; \
             is that full? Its log says more",
            directory.display()
        ))?,
        (None, None) => print("  nobody watches the tunnels; `splitter run` would")?,
    }
    print("")?;
    let mut traffic = Table::new(["class and tunnel", "packets", "bytes"]);
    for row in &status.traffic {
        traffic.row([
            row.to_string(),
            group_thousands(row.packets),
            group_thousands(row.bytes),
        ]);
    }
    print(traffic.to_text())?;
    super::egress::show(&status.egress)?;
    super::egress::show_chosen(&status.chosen, status.balance)?;
    if let (Some(balancers), Some(redirected)) = (status.balance, &status.redirected) {
        super::egress::show_choice_past_stack(balancers, redirected.choice.as_ref())?;
    }
    let flows = &status.flows;
    let moved = match status.balance {
        Some(_) => String::new(),
        None => format!(
            "; {} changed tunnels when drained, {} after the longest wait",
            group_thousands(flows.moved_drained),
            group_thousands(flows.moved_at_max_wait)
        ),
    };
    print(format_args!(
        "\n{} flows started, {} became long{moved}.",
        group_thousands(flows.started),
        group_thousands(flows.became_long)
    ))?;
    if flows.packets_dropped_to_drain > 0 {
        print(format_args!(
            "{} packets were dropped so that flows that never paused changed tunnels in order.",
            group_thousands(flows.packets_dropped_to_drain)
        ))?;
    }
    if flows.stayed + flows.stayed_at_max_wait > 0 {
        print(format_args!(
            "{} stayed in their tunnel because they had no more of the other, {} because they could \
             not leave in order; {} changed later, after a pause.",
            group_thousands(flows.stayed),
            group_thousands(flows.stayed_at_max_wait),
            group_thousands(flows.moved_after_pause)
        ))?;
    }
    let mut completion = Table::new(["completion times", "flows", "mean", "p50", "p90", "p99"]);
    for row in &status.completion {
        let time = |seconds: Option<f64>| {
            seconds.map_or_else(|| "-".to_owned(), |it| format!("{:.2} ms", it * 1e3))
        };
        let times = [row.mean_s, row.p50_s, row.p90_s, row.p99_s].map(time);
        let cells = [format!("{} flows", row.class), group_thousands(row.flows)].into_iter();
        completion.row(cells.chain(times).collect::<Vec<_>>());
    }
    print(format_args!("\n{}", completion.to_text()))?;
    if !status.passed.is_empty() {
        let mut passed = Table::new(["passed untreated", "packets"]);
        for row in &status.passed {
            passed.row([row.reason.to_owned(), group_thousands(row.packets)]);
        }
        print(format_args!("\n{}", passed.to_text()))?;
    }
    Ok(())
}
