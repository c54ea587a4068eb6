//! The rules of nftables, as `nft --json list ruleset` has them (libnftables-json(5)).

use serde_json::Value;

use super::firewall::{Effect, EffectKind};
use super::known;

/// What a ruleset does, and whether parts of it are in a language of their own.
#[derive(Debug, Default)]
pub(super) struct Ruleset {
    pub(super) effects: Vec<Effect>,
    /// Some of its expressions are those of `iptables`, which only that command tells.
    pub(super) has_xtables: bool,
}

/// A chain, with the hook of one that the kernel enters.
struct Chain<'j> {
    family: &'j str,
    table: &'j str,
    name: &'j str,
    hook: Option<&'j str>,
    policy: Option<&'j str>,
}

pub(super) fn parse(text: &str) -> Result<Ruleset, serde_json::Error> {
    let json: Value = serde_json::from_str(text)?;
    let items = || json["nftables"].as_array().into_iter().flatten();
    let chains: Vec<_> = items().filter_map(|it| Chain::of(&it["chain"])).collect();
    let mut ruleset = Ruleset::default();
    for chain in &chains {
        ruleset.effects.push(chain.effect(EffectKind::Present));
        ruleset.effects.extend(forward_drop(chain, &chains));
    }
    for rule in items().map(|it| &it["rule"]).filter(|it| it.is_object()) {
        let found = chains.iter().find(|it| it.has(rule));
        let Some(chain) = found else { continue };
        ruleset
            .effects
            .extend(masquerade(chain.hook, rule).map(|it| chain.effect(it)));
        for expression in rule["expr"].as_array().into_iter().flatten() {
            ruleset.has_xtables |= expression.get("xt").is_some();
            ruleset.effects.extend(effect(chain, expression));
            if let Some(name) = expression["flow"]["flowtable"].as_str() {
                let name = name.trim_start_matches('@');
                let tables = || items().map(|it| &it["flowtable"]);
                let table = tables().find(|it| it["name"] == name && chain.is_beside(it));
                ruleset
                    .effects
                    .extend(table.map(|it| offload(chain, name, it)));
            }
        }
    }
    Ok(ruleset)
}

impl<'j> Chain<'j> {
    fn of(json: &'j Value) -> Option<Self> {
        Some(Self {
            family: json["family"].as_str()?,
            table: json["table"].as_str()?,
            name: json["name"].as_str()?,
            hook: json["hook"].as_str(),
            policy: json["policy"].as_str(),
        })
    }

    fn is_beside(&self, json: &Value) -> bool {
        json["family"] == self.family && json["table"] == self.table
    }

    fn has(&self, rule: &Value) -> bool {
        self.is_beside(rule) && rule["chain"] == self.name
    }

    fn effect(&self, kind: EffectKind) -> Effect {
        Effect {
            owner: known::of_chain(self.table, self.name),
            place: format!("nft chain {} {} {}", self.family, self.table, self.name),
            hook: self.hook.map(str::to_owned),
            kind,
        }
    }
}

/// A policy that drops is every firewall's; beside a chain that is there for exceptions, whoever set
/// it does not know of others.
fn forward_drop(chain: &Chain<'_>, all: &[Chain<'_>]) -> Option<Effect> {
    if (chain.hook, chain.policy) != (Some("forward"), Some("drop")) {
        return None;
    }
    let is_beside = |it: &&Chain<'_>| (it.family, it.table) == (chain.family, chain.table);
    let mut beside = all.iter().filter(is_beside);
    let exempt = beside.find(|it| it.name == EXEMPT)?;
    Some(Effect {
        owner: known::of_chain(exempt.table, exempt.name),
        ..chain.effect(EffectKind::DropsForwarded {
            exempt: EXEMPT.to_owned(),
        })
    })
}

/// Docker's chain for what the operator wants to pass.
pub(super) const EXEMPT: &str = "DOCKER-USER";

fn effect(chain: &Chain<'_>, expression: &Value) -> Option<Effect> {
    if let Some(bits) = matched_bits(&expression["match"]) {
        return Some(chain.effect(EffectKind::ReadsMark(bits)));
    }
    let mangle = &expression["mangle"];
    let kind = match &mangle["key"] {
        key if is_mark(key) => EffectKind::WritesMark(written_bits(&mangle["value"])),
        key if key["payload"]["field"] == "dscp" => EffectKind::WritesDscp,
        _ => return None,
    };
    (kind != EffectKind::WritesMark(0)).then(|| chain.effect(kind))
}

/// Of a rule that gives packets the address of the device by which they leave, the names of such devices: none of them
/// where all are meant. That is a rule of a chain that every packet goes through, and without any condition; what jumps to
/// another chain may have one, as with OpenWrt's, and one that goes by addresses or marks alone, or by what a device is not,
/// is for something in particular, as with Docker's and Podman's.
fn masquerade(hook: Option<&str>, rule: &Value) -> Option<EffectKind> {
    let expressions = || rule["expr"].as_array().into_iter().flatten();
    expressions().find(|it| it.get("masquerade").is_some())?;
    let mut matches = expressions().filter_map(|it| it.get("match"));
    let by_device = matches
        .clone()
        .find(|it| matches!(it["left"]["meta"]["key"].as_str(), Some("oifname" | "oif")));
    let Some(by_device) = by_device else {
        let is_for_all = hook == Some("postrouting") && matches.next().is_none();
        return is_for_all.then(|| EffectKind::Masquerades(Vec::new()));
    };
    if by_device["op"] == "!=" {
        return None;
    }
    let right = &by_device["right"];
    let names = right["set"]
        .as_array()
        .map_or_else(|| vec![right], |it| it.iter().collect());
    let names = names
        .into_iter()
        .filter_map(|it| Some(it.as_str()?.to_owned()));
    let names: Vec<_> = names.filter(|it| !it.starts_with('@')).collect();
    (!names.is_empty()).then_some(EffectKind::Masquerades(names))
}

fn is_mark(json: &Value) -> bool {
    json["meta"]["key"] == "mark"
}

/// The bits of the mark that a match looks at.
fn matched_bits(json: &Value) -> Option<u32> {
    let left = &json["left"];
    if is_mark(left) {
        return Some(u32::MAX);
    }
    let (mark, mask) = (&left["&"][0], &left["&"][1]);
    is_mark(mark).then(|| number(mask).unwrap_or(u32::MAX))
}

/// The bits of the mark that differ from what they were once this is the new mark.
fn written_bits(value: &Value) -> u32 {
    let operands = |operator: &str| {
        let [left, right] = value[operator].as_array()?.as_slice() else {
            return None;
        };
        Some((written_bits(left), number(right)?))
    };
    if is_mark(value) {
        0
    } else if let Some((changed, kept)) = operands("&") {
        changed | !kept
    } else if let Some((changed, set)) = operands("|").or_else(|| operands("^")) {
        changed | set
    } else {
        u32::MAX
    }
}

fn number(json: &Value) -> Option<u32> {
    u32::try_from(json.as_u64()?).ok()
}

fn offload(chain: &Chain<'_>, name: &str, table: &Value) -> Effect {
    let devices = match &table["dev"] {
        Value::String(device) => vec![device.clone()],
        list => {
            let list = list.as_array().into_iter().flatten();
            list.filter_map(|it| it.as_str().map(str::to_owned))
                .collect()
        }
    };
    let flags = match &table["flags"] {
        Value::String(flag) => vec![flag.as_str()],
        list => list
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect(),
    };
    Effect {
        place: format!("nft flowtable {} {} {name}", chain.family, chain.table),
        ..chain.effect(EffectKind::Offloads {
            devices,
            in_hardware: flags.contains(&"offload"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As nft 1.0.6 prints it, but for the flow table, which is as libnftables-json(5) has it.
    const RULESET: &str = r#"{"nftables": [
        {"metainfo": {"version": "1.0.6", "release_name": "Lester Gooch #5", "json_schema_version": 1}},
        {"table": {"family": "inet", "name": "fw4", "handle": 1}},
        {"flowtable": {"family": "inet", "table": "fw4", "name": "ft", "handle": 2, "hook": "ingress", "prio": 0, "dev": ["lan0", "wan0"]}},
        {"chain": {"family": "inet", "table": "fw4", "name": "forward", "handle": 3, "type": "filter", "hook": "forward", "prio": 0, "policy": "drop"}},
        {"chain": {"family": "inet", "table": "fw4", "name": "DOCKER-USER", "handle": 4}},
        {"chain": {"family": "ip", "table": "mangle", "name": "PREROUTING", "handle": 1, "type": "filter", "hook": "prerouting", "prio": -150, "policy": "accept"}},
        {"rule": {"family": "inet", "table": "fw4", "chain": "forward", "handle": 5, "expr": [{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "protocol"}}, "right": "tcp"}}, {"flow": {"op": "add", "flowtable": "@ft"}}]}},
        {"rule": {"family": "ip", "table": "mangle", "chain": "PREROUTING", "handle": 6, "expr": [{"match": {"op": "==", "left": {"&": [{"meta": {"key": "mark"}}, 16128]}, "right": 256}}, {"counter": null}, {"mangle": {"key": {"payload": {"protocol": "ip", "field": "dscp"}}, "value": 5}}]}},
        {"rule": {"family": "ip", "table": "mangle", "chain": "PREROUTING", "handle": 7, "expr": [{"xt": null}]}}
    ]}"#;

    #[test]
    fn ruleset_shows_offloading_marks_and_policies() {
        let ruleset = parse(RULESET).unwrap();
        assert!(ruleset.has_xtables);
        let kinds: Vec<_> = ruleset
            .effects
            .iter()
            .filter(|it| it.kind != EffectKind::Present)
            .map(|it| (it.place.as_str(), it.hook.as_deref(), &it.kind))
            .collect();
        let devices = ["lan0", "wan0"].map(str::to_owned).to_vec();
        let (forward, prerouting) = (Some("forward"), Some("prerouting"));
        assert_eq!(
            kinds,
            [
                (
                    "nft chain inet fw4 forward",
                    forward,
                    &EffectKind::DropsForwarded {
                        exempt: "DOCKER-USER".to_owned()
                    }
                ),
                (
                    "nft flowtable inet fw4 ft",
                    forward,
                    &EffectKind::Offloads {
                        devices,
                        in_hardware: false
                    }
                ),
                (
                    "nft chain ip mangle PREROUTING",
                    prerouting,
                    &EffectKind::ReadsMark(0x3f00)
                ),
                (
                    "nft chain ip mangle PREROUTING",
                    prerouting,
                    &EffectKind::WritesDscp
                ),
            ]
        );
        assert!(parse("nonsense").is_err());
        assert!(parse("{}").unwrap().effects.is_empty());
    }

    #[test]
    fn devices_whose_packets_get_another_source_are_told() {
        let kind_in = |hook: Option<&str>, expressions: &str| {
            let rule = format!(r#"{{"expr": [{expressions}]}}"#);
            masquerade(hook, &serde_json::from_str(&rule).unwrap())
        };
        let kind = |expressions: &str| kind_in(Some("postrouting"), expressions);
        let named = |names: &[&str]| {
            let names = names.iter().map(ToString::to_string);
            Some(EffectKind::Masquerades(names.collect()))
        };
        let by_device = |op: &str, right: &str| {
            kind(&format!(
                r#"{{"match": {{"op": "{op}", "left": {{"meta": {{"key": "oifname"}}}}, "right": {right}}}}}, {{"masquerade": null}}"#
            ))
        };
        assert_eq!(by_device("==", r#""wan0""#), named(&["wan0"]));
        let set = r#"{"set": ["wan0", "wg*"]}"#;
        assert_eq!(by_device("==", set), named(&["wan0", "wg*"]));
        assert_eq!(by_device("!=", r#""docker0""#), None);
        assert_eq!(by_device("==", r#""@uplinks""#), None, "not known");
        assert_eq!(kind(r#"{"masquerade": null}"#), named(&[]));
        let source = r#"{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "172.17.0.1"}}"#;
        assert_eq!(kind(&format!(r#"{source}, {{"masquerade": null}}"#)), None);
        assert_eq!(kind(source), None);
        let family =
            r#"{"match": {"op": "==", "left": {"meta": {"key": "nfproto"}}, "right": "ipv4"}}"#;
        assert_eq!(kind(&format!(r#"{family}, {{"masquerade": null}}"#)), None);
        let what_jumps_there_may_have_a_condition = kind_in(None, r#"{"masquerade": null}"#);
        assert_eq!(what_jumps_there_may_have_a_condition, None);
    }

    #[test]
    fn bits_that_a_new_mark_changes_are_told_from_those_it_keeps() {
        for (value, bits) in [
            ("5", u32::MAX),
            (r#"{"ct": {"key": "mark"}}"#, u32::MAX),
            (r#"{"meta": {"key": "mark"}}"#, 0),
            (r#"{"|": [{"meta": {"key": "mark"}}, 1]}"#, 1),
            (r#"{"^": [{"meta": {"key": "mark"}}, 6]}"#, 6),
            (r#"{"&": [{"meta": {"key": "mark"}}, 4294967040]}"#, 0xff),
            (
                r#"{"|": [{"&": [{"meta": {"key": "mark"}}, 4294902271]}, 256]}"#,
                0xff00,
            ),
            (
                r#"{"|": [{"&": [{"ct": {"key": "mark"}}, 255]}, 256]}"#,
                u32::MAX,
            ),
        ] {
            let value = serde_json::from_str(value).unwrap();
            assert_eq!(written_bits(&value), bits, "{value}");
        }
    }
}
