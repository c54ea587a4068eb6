//! `splitter flows`: the flows that are tracked, without a daemon.

use std::time::Duration;

use anyhow::{Result, anyhow};
use flow_cli::{group_thousands, print, print_json};
use flow_report::Table;
use serde::Serialize;
use splitter_config::{Balancers, Config, SiteName};
use splitter_datapath::connections::{
    ANY_TUNNEL, Connection, Direction, Listing, TunnelDevices, list,
};
use splitter_datapath::flows::FlowTotals;
use splitter_instance::Instance;
use splitter_netlink::Netlink;
use splitter_steering::routes::Destinations;

/// How often `flows --watch` looks.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Lists the flows with the most packets, once or every second.
pub(crate) async fn run(config: Config, limit: usize, watch: bool, json: bool) -> Result<()> {
    let instance = Instance::new(config)?;
    let netlink = Netlink::connect()?;
    loop {
        let Some(dataplane) = instance.open()? else {
            return Err(down(&instance));
        };
        let destinations = instance.destinations_in_place().await?;
        let devices = TunnelDevices::new(instance.config(), &netlink.interfaces().await?);
        let listing = list(&dataplane, &devices, limit)?;
        let listing = named(listing, instance.config(), &destinations);
        if json {
            print_json(&listing)?;
        } else {
            show(&listing, instance.config().balancers(), watch)?;
        }
        if !watch {
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(WATCH_INTERVAL) => {}
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
}

/// What to say to a user who wants to see an instance that is not there.
pub(super) fn down(instance: &Instance) -> anyhow::Error {
    anyhow!(
        "the instance `{}` is down; `splitter up` or `splitter run` brings it up",
        instance.config().name
    )
}

/// What is listed of flows, with the site that each goes to.
#[derive(Serialize)]
struct NamedListing {
    totals: FlowTotals,
    flows: Vec<NamedFlow>,
}

#[derive(Serialize)]
struct NamedFlow {
    #[serde(flatten)]
    connection: Connection,
    /// None where no sites are listed, or it goes to none.
    site: Option<SiteName>,
}

fn named(listing: Listing, config: &Config, destinations: &Destinations) -> NamedListing {
    let Listing { totals, flows } = listing;
    let flows = flows.into_iter().map(|connection| NamedFlow {
        site: destinations.site_name_at(config, connection.flow.destination),
        connection,
    });
    NamedListing {
        totals,
        flows: flows.collect(),
    }
}

fn show(listing: &NamedListing, balancers: Option<Balancers>, watch: bool) -> Result<()> {
    // Home, and clear what follows: a page that does not flicker.
    let start = if watch { "\x1b[H\x1b[J" } else { "" };
    let NamedListing { totals, flows } = listing;
    print(format_args!(
        "{start}{} short and {} long flows\n",
        group_thousands(totals.short),
        group_thousands(totals.long)
    ))?;
    if let Some(balancers) = balancers {
        print(format_args!(
            "As configured, {balancers}{}.\n",
            match balancers.keep_to_classes() {
                true => String::new(),
                false => format!(": those are in `{ANY_TUNNEL}` tunnel"),
            }
        ))?;
    }
    // A single site has no name as a rule.
    let first = usize::from(flows.iter().all(|it| it.site.is_none()));
    let headers = [
        "site",
        "flow",
        "class",
        "tunnel",
        "packets",
        "bytes",
        "age s",
        "idle s",
        "finished",
        "in by",
        "packets in",
        "bytes in",
        "more",
    ];
    let mut table = Table::new(headers.into_iter().skip(first));
    for flow in flows {
        table.row(cells(flow).into_iter().skip(first));
    }
    print(table.to_text())
}

fn cells(NamedFlow { connection, site }: &NamedFlow) -> [String; 13] {
    let Connection {
        flow,
        reverse,
        fills,
    } = connection;
    let [in_by, packets_in, bytes_in] = match reverse {
        Some(it) => [
            it.tunnel.unwrap_or("no tunnel").to_owned(),
            group_thousands(it.packets),
            group_thousands(it.bytes),
        ],
        None => ["not seen", "-", "-"].map(str::to_owned),
    };
    let more = match fills {
        Some(Direction::Out) => "out",
        Some(Direction::In) => "in",
        None => "-",
    };
    [
        site.as_ref().map_or("-", SiteName::as_str).to_owned(),
        flow.to_string(),
        flow.class.into(),
        flow.tunnel.into(),
        group_thousands(flow.packets),
        group_thousands(flow.bytes),
        format!("{:.1}", flow.age_s),
        format!("{:.1}", flow.idle_s),
        if flow.finished { "yes" } else { "no" }.into(),
        in_by,
        packets_in,
        bytes_in,
        more.to_owned(),
    ]
}
