//! What firewalls do with the packets that are to be split: offloading, marks, DSCPs, policies.

use std::io;
use std::process::Command;

use splitter_config::{Config, SteeringMode};

use super::marks::MarkUse;
use super::{Concern, Finding, Unseen, iptables, known, nft};

/// What was found in the tables of all firewalls.
#[derive(Debug, Default)]
pub(super) struct Firewall {
    pub(super) effects: Vec<Effect>,
    pub(super) unseen: Vec<Unseen>,
}

/// Something that a chain or a flow table does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Effect {
    /// Who is known to make it.
    pub(super) owner: &'static str,
    /// Where it is, as the operator lists it: "nft chain inet fw4 forward".
    pub(super) place: String,
    /// The hook at which the chain is entered, where it is one that is.
    pub(super) hook: Option<String>,
    pub(super) kind: EffectKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EffectKind {
    /// A chain that somebody known has made.
    Present,
    /// Looks at bits of the kernel's mark.
    ReadsMark(u32),
    /// Writes bits of the kernel's mark.
    WritesMark(u32),
    /// Writes the DSCP.
    WritesDscp,
    /// Packets of known flows that come in by these devices pass the network stack by.
    Offloads {
        devices: Vec<String>,
        in_hardware: bool,
    },
    /// What leaves by devices with these names gets the address of its device; `wg*` stands for all that
    /// begin so, and no name at all for every device.
    Masquerades(Vec<String>),
    /// What no rule accepts is not forwarded, in a table that has a chain for who wants it to be.
    DropsForwarded { exempt: String },
}

impl Firewall {
    /// Lists what the kernel has, with the commands that the machine has for that.
    pub(super) fn look() -> Self {
        let mut firewall = Self::default();
        let mut is_xtables_used = is_legacy_used();
        match output(
            "nft",
            &["--json", "--stateless", "--terse", "list", "ruleset"],
        ) {
            Ok(text) => match nft::parse(&text) {
                Ok(found) => {
                    is_xtables_used |= found.has_xtables;
                    firewall.effects = found.effects;
                    firewall.see_hardware();
                }
                Err(error) => {
                    firewall.could_not("nftables", format!("its list is not understood ({error})"))
                }
            },
            Err(why) => firewall.could_not("nftables", why),
        }
        if is_xtables_used {
            for (command, family) in [("iptables-save", "ip"), ("ip6tables-save", "ip6")] {
                match output(command, &[]) {
                    Ok(text) => firewall.effects.extend(iptables::parse(family, &text)),
                    Err(why) => firewall.could_not(command.trim_end_matches("-save"), why),
                }
            }
        }
        firewall
    }

    /// Older versions of `nft` name the flag in text alone.
    fn see_hardware(&mut self) {
        let kinds = self.effects.iter_mut().map(|it| &mut it.kind);
        let mut offloads = kinds.filter_map(|kind| match kind {
            EffectKind::Offloads { in_hardware, .. } => Some(in_hardware),
            _ => None,
        });
        let Some(first) = offloads.next() else {
            return;
        };
        let text = output("nft", &["list", "flowtables"]).unwrap_or_default();
        let is_flag = |line: &str| line.trim().trim_end_matches(';') == "flags offload";
        let flagged = text.lines().any(is_flag);
        for in_hardware in std::iter::once(first).chain(offloads) {
            *in_hardware |= flagged;
        }
    }

    fn could_not(&mut self, what: &str, why: String) {
        self.unseen.push(Unseen {
            what: what.to_owned(),
            why,
            remedy: format!("install `{what}` and run this as root, to see its marks and offloads"),
        });
    }
}

/// Whether the tables of before nftables are there.
fn is_legacy_used() -> bool {
    let lists = ["/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"];
    let text = |path| std::fs::read_to_string(path).unwrap_or_default();
    lists.iter().any(|path| !text(path).trim().is_empty())
}

/// What a command prints, or why it cannot be run.
fn output(command: &str, arguments: &[&str]) -> Result<String, String> {
    // Where they are is not in every user's path.
    let path = std::env::var("PATH").unwrap_or_default();
    let run = Command::new(command)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .args(arguments)
        .output();
    match run {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let first = said.lines().next().unwrap_or("it says nothing");
            Err(format!("`{command}` failed: {}", first.trim()))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(format!("there is no `{command}`"))
        }
        Err(error) => Err(format!("`{command}` cannot be run: {error}")),
    }
}

pub(super) fn findings(config: &Config, firewall: &Firewall) -> Vec<Finding> {
    let effects = firewall.effects.iter();
    effects
        .filter_map(|effect| finding(config, effect))
        .collect()
}

fn finding(config: &Config, effect: &Effect) -> Option<Finding> {
    let found = Finding {
        name: effect.owner,
        seen: vec![effect.place.clone()],
        ..Finding::default()
    };
    let mark = |bits, verb: &str| {
        Some(MarkUse {
            bits,
            what: format!("{} {verb}", effect.place),
        })
    };
    match &effect.kind {
        // Every firewall has chains; those of nobody known mean nothing.
        EffectKind::Present => (effect.owner != known::FIREWALL).then_some(found),
        EffectKind::ReadsMark(bits) => Some(Finding {
            mark: mark(*bits, "looks at"),
            ..found
        }),
        EffectKind::WritesMark(bits) => Some(Finding {
            mark: mark(*bits, "writes"),
            ..found
        }),
        EffectKind::WritesDscp => Some(Finding {
            concern: overwritten(config, effect),
            ..found
        }),
        EffectKind::Offloads {
            devices,
            in_hardware,
        } => Some(Finding {
            concern: offloaded(config, effect, devices, *in_hardware),
            ..found
        }),
        EffectKind::Masquerades(devices) => Some(Finding {
            concern: translated(config, effect, devices),
            ..found
        }),
        EffectKind::DropsForwarded { exempt } => Some(Finding {
            concern: Some(Concern {
                problem: format!(
                    "{} drops what no rule accepts of what is forwarded",
                    effect.place
                ),
                remedy: format!(
                    "have what comes from and goes to the site accepted in the chain {exempt}, as in \
                     `iptables -I {exempt} -i {} -j ACCEPT`",
                    config.lan.first().map_or("LAN", |it| it.as_str())
                ),
                is_certain: false,
            }),
            ..found
        }),
    }
}

/// The DSCP is what rules go by, up to where they are looked up: behind that it matters to others
/// alone. Packets that choose go by the kernel's mark.
fn overwritten(config: &Config, effect: &Effect) -> Option<Concern> {
    let is_behind = matches!(
        effect.hook.as_deref(),
        Some("forward" | "postrouting" | "output" | "egress")
    );
    let told_by_it = match (config.balancers().is_some(), config.is_shared()) {
        (false, _) => "the splitter's rules tell the classes",
        (true, true) => "the order in the queues and the counts at the tunnels tell the classes",
        (true, false) => "the counts at the tunnels tell the classes",
    };
    (config.steering.mode != SteeringMode::Mark && !is_behind).then(|| Concern {
        problem: format!("{} writes the DSCP, by which {told_by_it}", effect.place),
        remedy: "leave out what comes from the site there, or set steering.mode to \"mark\"".into(),
        is_certain: false,
    })
}

/// Connection tracking keeps the address that a flow began with, whichever tunnel it is in later. Other conditions of the rule
/// may leave out what is to be split.
fn translated(config: &Config, effect: &Effect, devices: &[String]) -> Option<Concern> {
    let is_meant = |device: &str| {
        let is_like = |it: &String| match it.strip_suffix('*') {
            Some(begin) => device.starts_with(begin),
            None => it == device,
        };
        devices.is_empty() || devices.iter().any(is_like)
    };
    let mut tunnels = config.tunnels().map(|(_, it)| &it.device);
    let device = tunnels.find(|it| is_meant(it.as_str()))?;
    let stated = config.routes.destinations.as_ref();
    let exempt = match stated.and_then(|it| it.first()) {
        Some(first) => format!("what goes to {first}"),
        None => "what goes to the other site".to_owned(),
    };
    Some(Concern {
        problem: format!(
            "{} gives what leaves by {device} the address of that device: a flow that changes tunnels \
             keeps the address of the one that it began in, and is dropped where sources are checked",
            effect.place
        ),
        remedy: format!(
            "leave {exempt} out of that rule, or have both tunnels translate to one address (`snat`)"
        ),
        is_certain: false,
    })
}

fn offloaded(
    config: &Config,
    effect: &Effect,
    devices: &[String],
    in_hardware: bool,
) -> Option<Concern> {
    let lan = config
        .lan
        .iter()
        .find(|lan| devices.iter().any(|it| it == lan.as_str()))?;
    let place = &effect.place;
    let problem = match in_hardware {
        true => format!(
            "{place} has the hardware forward what comes in by {lan}: the splitter does not see \
             packets of known flows"
        ),
        false => format!(
            "{place} takes packets of known flows from {lan} past the rules: a flow stays in the \
             tunnel that it began in"
        ),
    };
    Some(Concern {
        problem,
        remedy: format!(
            "take {lan} out of its devices, or what is to be split out of the rule that adds flows to \
             it (OpenWrt: `uci set firewall.@defaults[0].flow_offloading=0`)"
        ),
        // What is redirected never comes to the flow table.
        is_certain: in_hardware || config.steering.mode != SteeringMode::Redirect,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masquerading_matters_at_tunnels_alone() {
        let effect = |devices: &[&str]| Effect {
            owner: known::FIREWALL,
            place: "a chain".to_owned(),
            hook: Some("postrouting".to_owned()),
            kind: EffectKind::Masquerades(devices.iter().map(ToString::to_string).collect()),
        };
        let text = "lan = 'l'\n[short]\ndevice = 'wgs'\n[long]\ndevice = 'wgl'\n[routes]\ndestinations = '10.2.0.0/24'\n";
        let config = Config::parse(text, "t").expect("it is whole");
        let firewall = |devices: &[&str]| Firewall {
            effects: vec![effect(devices)],
            unseen: Vec::new(),
        };
        let said = |devices: &[&str]| {
            let found = findings(&config, &firewall(devices));
            found.into_iter().next().and_then(|it| it.concern)
        };
        assert!(said(&["up0", "wg"]).is_none());
        for (devices, device) in [
            (&["up0", "wgl"][..], "wgl"),
            (&["wg*"][..], "wgs"),
            (&[][..], "wgs"),
        ] {
            let concern = said(devices).expect("a tunnel's");
            assert!(!concern.is_certain);
            assert!(concern.problem.contains(device), "{concern:?}");
            assert!(concern.remedy.contains("10.2.0.0/24"), "{concern:?}");
        }
    }

    #[test]
    fn written_dscp_matters_as_far_as_it_tells_classes() {
        let effect = Effect {
            owner: known::FIREWALL,
            place: "a chain".to_owned(),
            hook: Some("prerouting".to_owned()),
            kind: EffectKind::WritesDscp,
        };
        let said = |top: &str, mode: &str| {
            let text = format!(
                "lan = 'l'\n{top}\n[short]\ndevice = 'a'\nrate_mbit = 3\n[long]\ndevice = 'b'\nrate_mbit = 5\n\
                 [steering]\nmode = '{mode}'\n"
            );
            let config = Config::parse(&text, "t").expect("it is whole");
            overwritten(&config, &effect).map(|it| it.problem)
        };
        for (top, expected) in [
            ("", "the splitter's rules tell"),
            ("balance = 'tr'", "the counts at the tunnels tell"),
            (
                "balance = 'tr'\npolicy = 'share'",
                "the order in the queues",
            ),
        ] {
            let problem = said(top, "dscp").expect("the DSCP tells classes");
            assert!(problem.contains(expected), "{problem}");
            assert_eq!(said(top, "mark"), None);
        }
    }
}
