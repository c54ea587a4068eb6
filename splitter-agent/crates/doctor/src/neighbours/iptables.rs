//! The rules of iptables, as `iptables-save` writes them.

use super::firewall::{Effect, EffectKind};
use super::{known, nft};

/// Reads what the rules of a family do: `ip` or `ip6`.
pub(super) fn parse(family: &str, text: &str) -> Vec<Effect> {
    let mut table = "";
    let mut effects = Vec::new();
    let exempts = text
        .lines()
        .any(|line| line.starts_with(&format!(":{} ", nft::EXEMPT)));
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        } else if let Some(chain) = line.strip_prefix(':') {
            let mut words = chain.split(' ');
            let place = Place::new(family, table, words.next().unwrap_or_default());
            effects.push(place.effect(EffectKind::Present));
            let is_forward = (table, place.chain) == ("filter", "FORWARD");
            if is_forward && exempts && words.next() == Some("DROP") {
                let exempt = nft::EXEMPT.to_owned();
                effects.push(Effect {
                    owner: known::of_chain(table, &exempt),
                    ..place.effect(EffectKind::DropsForwarded { exempt })
                });
            }
        } else if let Some(rule) = line.strip_prefix("-A ") {
            let words: Vec<_> = rule.split(' ').collect();
            let place = Place::new(family, table, words[0]);
            effects.extend(kinds(&words).into_iter().map(|kind| place.effect(kind)));
        }
    }
    effects
}

struct Place<'t> {
    family: &'t str,
    table: &'t str,
    chain: &'t str,
}

impl<'t> Place<'t> {
    fn new(family: &'t str, table: &'t str, chain: &'t str) -> Self {
        Self {
            family,
            table,
            chain,
        }
    }

    fn effect(&self, kind: EffectKind) -> Effect {
        let command = match self.family {
            "ip6" => "ip6tables",
            _ => "iptables",
        };
        let builtin = ["PREROUTING", "FORWARD", "POSTROUTING", "INPUT", "OUTPUT"];
        Effect {
            owner: known::of_chain(self.table, self.chain),
            place: format!("{command} chain {} {}", self.table, self.chain),
            hook: builtin
                .contains(&self.chain)
                .then(|| self.chain.to_lowercase()),
            kind,
        }
    }
}

/// What a rule does to marks, and to the DSCP.
fn kinds(words: &[&str]) -> Vec<EffectKind> {
    let after = |option: &str| {
        let place = words.iter().position(|word| *word == option)?;
        words.get(place + 1).copied()
    };
    let mut kinds = Vec::new();
    let matched = after("--mark").and_then(|it| value_and_mask(it).map(|(_, mask)| mask));
    // `-m connmark` looks at another one.
    if words.windows(2).any(|it| it == ["-m", "mark"]) {
        kinds.extend(matched.map(EffectKind::ReadsMark));
    }
    let bits = match after("-j") {
        // The bits of the mask are cleared, then those of the value turned over.
        Some("MARK") => after("--set-xmark")
            .or_else(|| after("--set-mark"))
            .and_then(value_and_mask)
            .map_or(u32::MAX, |(value, mask)| value | mask),
        Some("CONNMARK") if words.contains(&"--restore-mark") => {
            after("--nfmask").and_then(number).unwrap_or(u32::MAX)
        }
        _ => 0,
    };
    if bits != 0 {
        kinds.push(EffectKind::WritesMark(bits));
    }
    if after("-j") == Some("MASQUERADE") {
        kinds.extend(masquerade(words));
    }
    if matches!(after("-j"), Some("DSCP" | "TOS")) {
        kinds.push(EffectKind::WritesDscp);
    }
    kinds
}

/// As [`nft::parse`] has it.
fn masquerade(words: &[&str]) -> Option<EffectKind> {
    let place = |option: &str| words.iter().position(|word| *word == option);
    let Some(device) = place("-o") else {
        let is_by_address = place("-s").is_some() || place("-d").is_some();
        // The chain's own name is the first word; one that is jumped to is for something in particular.
        let is_for_all = words[0] == "POSTROUTING" && !is_by_address && place("-m").is_none();
        return is_for_all.then(|| EffectKind::Masquerades(Vec::new()));
    };
    if device.checked_sub(1).and_then(|it| words.get(it)) == Some(&"!") {
        return None;
    }
    let name = words.get(device + 1)?;
    let name = match name.strip_suffix('+') {
        Some(begin) => format!("{begin}*"),
        None => (*name).to_owned(),
    };
    Some(EffectKind::Masquerades(vec![name]))
}

/// `0x4000/0x4000`, or a value alone, which means all bits.
fn value_and_mask(text: &str) -> Option<(u32, u32)> {
    match text.split_once('/') {
        Some((value, mask)) => Some((number(value)?, number(mask)?)),
        None => Some((number(text)?, u32::MAX)),
    }
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a node with kube-proxy, Tailscale and Docker.
    const SAVED: &str = "\
# Generated by iptables-save v1.8.9 (nf_tables)
*mangle
:PREROUTING ACCEPT [0:0]
:ts-input - [0:0]
-A PREROUTING -m connmark --mark 0x5 -j CONNMARK --restore-mark --nfmask 0xff0000 --ctmask 0xff0000
-A PREROUTING -i lan0 -j DSCP --set-dscp 0x2e
-A PREROUTING -i lan1 -j MARK --set-mark 7
COMMIT
*nat
:KUBE-MARK-MASQ - [0:0]
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE
-A POSTROUTING -s 10.1.0.0/24 -j MASQUERADE
-A POSTROUTING -o wan+ -j MASQUERADE
-A KUBE-POSTROUTING -m comment --comment x -j MASQUERADE --random-fully
COMMIT
*filter
:FORWARD DROP [0:0]
:DOCKER-USER - [0:0]
COMMIT
";

    #[test]
    fn saved_rules_show_marks_and_whose_they_are() {
        let effects = parse("ip", SAVED);
        let seen: Vec<_> = effects
            .iter()
            .filter(|it| it.kind != EffectKind::Present)
            .map(|it| (it.owner, it.place.as_str(), &it.kind))
            .collect();
        let kubernetes = "Kubernetes (kube-proxy)";
        assert_eq!(
            seen,
            [
                (
                    known::FIREWALL,
                    "iptables chain mangle PREROUTING",
                    &EffectKind::WritesMark(0xff_0000)
                ),
                (
                    known::FIREWALL,
                    "iptables chain mangle PREROUTING",
                    &EffectKind::WritesDscp
                ),
                (
                    known::FIREWALL,
                    "iptables chain mangle PREROUTING",
                    &EffectKind::WritesMark(u32::MAX)
                ),
                (
                    kubernetes,
                    "iptables chain nat KUBE-MARK-MASQ",
                    &EffectKind::WritesMark(0x4000)
                ),
                (
                    kubernetes,
                    "iptables chain nat KUBE-POSTROUTING",
                    &EffectKind::ReadsMark(0x4000)
                ),
                (
                    kubernetes,
                    "iptables chain nat KUBE-POSTROUTING",
                    &EffectKind::WritesMark(0x4000)
                ),
                (
                    known::FIREWALL,
                    "iptables chain nat POSTROUTING",
                    &EffectKind::Masquerades(vec!["wan*".to_owned()])
                ),
                (
                    "Docker",
                    "iptables chain filter FORWARD",
                    &EffectKind::DropsForwarded {
                        exempt: "DOCKER-USER".to_owned()
                    }
                ),
            ]
        );
        assert!(effects.iter().any(|it| it.owner == "Tailscale"));
    }
}
