//! What a border holds besides what the topology gave it, read from the kernel through `ip`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::namespace::{Namespace, NamespaceError};

/// Priorities of the rules that every namespace has.
const STANDARD_RULES: [u32; 3] = [0, 32766, 32767];
/// Tables that routes are in without any scheme.
const STANDARD_TABLES: [&str; 3] = ["main", "local", "default"];

/// The root qdisc that the splitter shapes a shared tunnel with.
const SHAPER: &str = "7400:";

/// Rules, routes, programs and queues that a scheme has set up.
#[derive(Debug)]
pub(super) struct State {
    rules: Vec<Rule>,
    routes: Vec<Route>,
    /// The mode of the XDP program on each device that has one.
    xdp: BTreeMap<String, &'static str>,
    /// Devices that are shaped by the splitter.
    shaped: Vec<String>,
}

/// Why the state of a border could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// `ip` failed.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// `ip` printed something unexpected.
    #[error("cannot understand what `{command}` printed: {source}")]
    Parse {
        /// The command.
        command: &'static str,
        /// What is wrong.
        source: serde_json::Error,
    },
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Rule {
    #[serde(default)]
    priority: u32,
    #[serde(default)]
    table: String,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Route {
    dst: String,
    table: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Link {
    ifname: String,
    xdp: Option<Xdp>,
}

#[derive(Debug, Deserialize)]
struct Qdisc {
    dev: String,
    handle: String,
}

#[derive(Debug, Deserialize)]
struct Xdp {
    mode: u32,
}

impl State {
    pub(super) fn read(namespace: &Namespace) -> Result<Self, StateError> {
        let mut rules: Vec<Rule> = list(namespace, "ip -j rule")?;
        rules.extend(list::<Rule>(namespace, "ip -j -6 rule")?);
        rules.retain(|rule| !STANDARD_RULES.contains(&rule.priority));
        let mut routes: Vec<Route> = list(namespace, "ip -j route show table all")?;
        routes.extend(list::<Route>(namespace, "ip -j -6 route show table all")?);
        routes.retain(|route| {
            route
                .table
                .as_deref()
                .is_some_and(|table| !STANDARD_TABLES.contains(&table))
        });
        let links: Vec<Link> = list(namespace, "ip -j link")?;
        let xdp = links
            .into_iter()
            .filter_map(|link| Some((link.ifname, mode_name(link.xdp?.mode))))
            .collect();
        let qdiscs: Vec<Qdisc> = list(namespace, "tc -j qdisc show")?;
        let ours = qdiscs.into_iter().filter(|it| it.handle == SHAPER);
        Ok(Self {
            rules,
            routes,
            xdp,
            shaped: ours.map(|it| it.dev).collect(),
        })
    }

    /// What has come since `before`.
    pub(super) fn since(mut self, before: &Self) -> Self {
        self.rules.retain(|it| !before.rules.contains(it));
        self.routes.retain(|it| !before.routes.contains(it));
        self.xdp
            .retain(|device, _| !before.xdp.contains_key(device));
        self.shaped.retain(|it| !before.shaped.contains(it));
        self
    }

    /// Everything in words, or nothing when there is nothing.
    pub(super) fn describe(&self) -> Option<String> {
        let rules = self
            .rules
            .iter()
            .map(|it| format!("rule {} for table {}", it.priority, it.table));
        let routes = self.routes.iter().map(|it| {
            format!(
                "route {} in table {}",
                it.dst,
                it.table.as_deref().unwrap_or_default()
            )
        });
        let programs = self
            .xdp
            .iter()
            .map(|(device, mode)| format!("{mode} XDP on {device}"));
        let shaped = self
            .shaped
            .iter()
            .map(|it| format!("qdisc {SHAPER} on {it}"));
        let all: Vec<String> = rules.chain(routes).chain(programs).chain(shaped).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// The mode of XDP on `devices` of all borders, or `mixed`.
    pub(super) fn common_xdp_mode(borders: &[Self], devices: &[&str]) -> String {
        let mut modes = borders.iter().flat_map(|border| {
            devices
                .iter()
                .map(|&device| border.xdp.get(device).copied().unwrap_or("none"))
        });
        let first = modes.next().unwrap_or("none");
        if modes.all(|mode| mode == first) {
            first.to_owned()
        } else {
            "mixed".to_owned()
        }
    }
}

/// The kernel's `XDP_ATTACHED_*`.
fn mode_name(mode: u32) -> &'static str {
    match mode {
        0 => "none",
        1 => "native",
        2 => "generic",
        3 => "offloaded",
        _ => "mixed",
    }
}

fn list<T: for<'a> Deserialize<'a>>(
    namespace: &Namespace,
    command: &'static str,
) -> Result<Vec<T>, StateError> {
    let printed = namespace.run(command)?;
    // `ip` prints nothing at all, not an empty list, when a table is empty.
    let printed = if printed.trim().is_empty() {
        "[]"
    } else {
        printed.as_str()
    };
    serde_json::from_str(printed).map_err(|source| StateError::Parse { command, source })
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;
    use crate::{require, require::Requirement::*};

    #[test]
    fn sees_rules_and_routes_of_a_scheme_alone() -> Result<(), Box<dyn Error>> {
        require!(Root, Program("ip") => Ok(()));
        let namespace = Namespace::new("state")?;
        assert_eq!(State::read(&namespace)?.describe(), None);
        namespace.run("ip route add 192.0.2.0/24 dev lo table 77")?;
        namespace.run("ip rule add priority 5 table 77")?;
        let described = State::read(&namespace)?.describe();
        let expected = "rule 5 for table 77, route 192.0.2.0/24 in table 77";
        assert_eq!(described.as_deref(), Some(expected));
        Ok(())
    }

    #[test]
    fn mode_is_named_only_when_all_devices_agree() {
        let border = |devices: &[(&str, &'static str)]| State {
            rules: Vec::new(),
            routes: Vec::new(),
            xdp: devices
                .iter()
                .map(|&(device, mode)| (device.to_owned(), mode))
                .collect(),
            shaped: Vec::new(),
        };
        let native = border(&[("lan0", "native"), ("gen0", "native")]);
        let partly = border(&[("lan0", "native")]);
        let devices = ["lan0", "gen0"];
        assert_eq!(State::common_xdp_mode(&[native], &devices), "native");
        assert_eq!(State::common_xdp_mode(&[partly], &devices), "mixed");
        assert_eq!(State::common_xdp_mode(&[border(&[])], &devices), "none");
    }
}
