//! Others who steer, mark or offload packets on this machine, and how to get along with them.
//!
//! They are known by what they have put into the kernel, not by processes that happen to run: rules,
//! chains and flow tables, BPF programs.

use std::fmt;

use serde::Serialize;
use splitter_config::Config;
use splitter_netlink::{Interfaces, Netlink, NetlinkError};
use splitter_steering::routes::other_rules;

use self::firewall::Firewall;
use self::marks::MarkUse;
use crate::Check;

mod firewall;
mod iptables;
mod known;
mod marks;
mod nft;
mod programs;
mod rules;

/// Lists the others who steer, mark or offload packets on this machine.
#[derive(Debug, Default, Serialize)]
pub struct Neighbours {
    /// Each that was found, by name, and last what belongs to nobody who is known.
    pub found: Vec<Neighbour>,
    /// What could not be looked at.
    pub unseen: Vec<Unseen>,
}

/// Somebody else's rules, chains and programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Neighbour {
    /// The program that makes such things, or what they are where nobody is known to.
    pub name: String,
    /// By what it is known.
    pub seen: Vec<String>,
    /// The bits of the kernel's mark that it uses.
    pub mark_bits: u32,
    /// What of that is in the way.
    pub concerns: Vec<Concern>,
}

/// Something that keeps packets from being split, or may.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Concern {
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub remedy: String,
    /// Whether it is certain: packets that are to be split are not.
    pub is_certain: bool,
}

/// Something that could not be looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unseen {
    /// What was to be looked at.
    pub what: String,
    /// Why it could not be.
    pub why: String,
    /// How to look.
    pub remedy: String,
}

/// A finding about somebody, until all are together.
#[derive(Debug, Default)]
struct Finding {
    name: &'static str,
    seen: Vec<String>,
    mark: Option<MarkUse>,
    concern: Option<Concern>,
}

impl fmt::Display for Concern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem, self.remedy)
    }
}

impl fmt::Display for Unseen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} not looked at: {}; {}",
            self.what, self.why, self.remedy
        )
    }
}

/// Looks at rules, firewall, flow tables and BPF programs of others; changes nothing.
///
/// # Errors
/// When the kernel does not list its rules or interfaces.
pub async fn neighbours(netlink: &Netlink, config: &Config) -> Result<Neighbours, NetlinkError> {
    let interfaces = netlink.interfaces().await?;
    let rules = other_rules(netlink).await?;
    Ok(assemble(config, &interfaces, &rules, Firewall::look()))
}

fn assemble(
    config: &Config,
    interfaces: &Interfaces,
    rules: &[splitter_steering::routes::OtherRule],
    firewall: Firewall,
) -> Neighbours {
    let mut findings = rules::findings(config, rules);
    findings.extend(firewall::findings(config, &firewall));
    let mut unseen = firewall.unseen;
    match programs::findings(config, interfaces) {
        Ok(more) => findings.extend(more),
        Err(problem) => unseen.push(problem),
    }
    let mut found = group(findings);
    marks::add_overlaps(config, &mut found);
    Neighbours {
        found: found.into_iter().map(|(neighbour, _)| neighbour).collect(),
        unseen,
    }
}

/// One neighbour of each name, in the order in which they were found, with its uses of marks.
fn group(findings: Vec<Finding>) -> Vec<(Neighbour, Vec<MarkUse>)> {
    let mut grouped: Vec<(Neighbour, Vec<MarkUse>)> = Vec::new();
    for finding in findings {
        let place = grouped.iter().position(|(it, _)| it.name == finding.name);
        let place = place.unwrap_or_else(|| {
            grouped.push((Neighbour::named(finding.name), Vec::new()));
            grouped.len() - 1
        });
        let (neighbour, marks) = &mut grouped[place];
        for seen in finding.seen {
            if !neighbour.seen.contains(&seen) {
                neighbour.seen.push(seen);
            }
        }
        if let Some(concern) = finding.concern
            && !neighbour.concerns.contains(&concern)
        {
            neighbour.concerns.push(concern);
        }
        neighbour.mark_bits |= finding.mark.as_ref().map_or(0, |it| it.bits);
        marks.extend(finding.mark);
    }
    grouped
}

impl Neighbour {
    fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            seen: Vec::new(),
            mark_bits: 0,
            concerns: Vec::new(),
        }
    }
}

impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMED: usize = 3;
        let named: Vec<_> = self.seen.iter().take(NAMED).map(String::as_str).collect();
        write!(f, "{}", named.join(", "))?;
        match self.seen.len().saturating_sub(NAMED) {
            0 => {}
            more => write!(f, " and {more} more")?,
        }
        match self.mark_bits {
            0 => Ok(()),
            bits => write!(f, "; marks {bits:#x}"),
        }
    }
}

/// As checks of `doctor`: each neighbour with what is in the way, or none with how many were asked.
pub(super) async fn examine(
    netlink: &Netlink,
    config: &Config,
) -> Result<Vec<Check>, NetlinkError> {
    let Neighbours { found, unseen } = neighbours(netlink, config).await?;
    let mut checks = Vec::new();
    for neighbour in &found {
        let check = format!("beside {}", neighbour.name);
        if neighbour.concerns.is_empty() {
            checks.push(Check::ok(check.clone(), neighbour.to_string()));
        }
        for Concern {
            problem,
            remedy,
            is_certain,
        } in &neighbour.concerns
        {
            let make = if *is_certain {
                Check::fail
            } else {
                Check::warn
            };
            checks.push(make(check.clone(), problem.clone(), remedy.clone()));
        }
    }
    for Unseen { what, why, remedy } in unseen {
        checks.push(Check::warn(what, format!("not looked at: {why}"), remedy));
    }
    if checks.is_empty() {
        checks.push(Check::ok(
            "others who steer packets",
            "no rules, marks, flow tables or programs but ours",
        ));
    }
    Ok(checks)
}
