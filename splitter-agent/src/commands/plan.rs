//! `splitter plan`: what `up` would change.

use anyhow::Result;
use flow_cli::{print, print_json};
use serde_json::json;
use splitter_config::Config;
use splitter_doctor::neighbours;
use splitter_instance::{Instance, Plan};
use splitter_netlink::Netlink;
use splitter_steering::routes::RouteAudit;

/// So many prefixes that are not split are named.
pub(super) const NAMED: usize = 20;

/// The policy that would serve long flows better where enough is known for it.
fn other_policy(config: &Config) -> Option<String> {
    let could_share = config.drops_to_drain() && !config.has_several_sites();
    could_share.then(|| {
        "both rates are stated, so that `policy = \"share\"` can be had: it lends long flows what \
         short ones leave of both tunnels, where `dedicated` leaves them one. Stay with that where a \
         tunnel's rate varies, or must be kept free"
            .to_owned()
    })
}

/// Shows the plan; changes nothing.
pub(crate) async fn run(config: Config, json: bool) -> Result<()> {
    let instance = Instance::new(config)?;
    let (mut plan, config) = (instance.plan().await?, instance.config());
    plan.routes.notes.extend(instance.hints().await);
    plan.routes.notes.extend(other_policy(config));
    let audit = instance.audit_routes().await?;
    let beside = neighbours(&Netlink::connect()?, config).await?;
    if json {
        let tunnels = config.tunnels().map(|(class, tunnel)| {
            json!({
                "tunnel": class.name(),
                "device": tunnel.device,
                "site": config.site_behind(&tunnel.device),
                "weight": tunnel.weight,
                "watched_by": config.watched_by(tunnel),
            })
        });
        return print_json(&json!({
            "changed": !plan.is_unchanged(),
            "plan": plan,
            "routing": audit,
            "neighbours": beside,
            "tunnels": tunnels.collect::<Vec<_>>(),
        }));
    }
    let changes = plan.to_string();
    if !changes.trim_end().is_empty() {
        print(changes.trim_end())?;
    }
    if plan.is_unchanged() {
        print("Everything is in place.")?;
    }
    for (class, tunnel) in config.tunnels() {
        let name = config.name_of(class, tunnel).replacen("the", "The", 1);
        let by = config.watched_by(tunnel);
        print(format_args!("{name} would be watched by {by}."))?;
    }
    show_notes(&plan)?;
    for neighbour in &beside.found {
        for concern in &neighbour.concerns {
            print(format_args!("note: beside {}: {concern}", neighbour.name))?;
        }
    }
    show_unsplit(&audit)
}

/// Tells what is not split, and what to do about it.
pub(super) fn show_unsplit(audit: &RouteAudit) -> Result<()> {
    for line in audit.lines(NAMED) {
        print(line)?;
    }
    Ok(())
}

/// Tells what a plan leaves to the operator.
pub(super) fn show_notes(plan: &Plan) -> Result<()> {
    for note in &plan.routes.notes {
        print(format_args!("note: {note}"))?;
    }
    Ok(())
}
