//! The tables of the reference page, which stand between markers in its prose.

use crate::declare::Section as _;
use crate::key::{Change, DefaultValue, Key};
use crate::sections::{FabricLeaf, FabricPort, Site, Tunnel, Tunnels};
use crate::{Config, FabricConfig, sections_with_keys};

const END: &str = "<!-- end -->";

/// Fills the tables of the keys again; all between them stays as it is.
///
/// A table stands between `<!-- keys: NAME -->` and `<!-- end -->`. `NAME` is a section, `top` for
/// the keys above all, `class` for those of either class, `tunnel` for those of a tunnel in a
/// list, `site` for those of a site, or `restart` for all keys that need another start. The tables of the
/// file of a leaf or a spine are `fabric-file`, `fabric`, `fabric-port`, `fabric-leaf` and
/// `fabric-metrics`.
///
/// # Errors
/// In words, when a marker names no section or has no end.
pub fn fill(page: &str) -> Result<String, String> {
    fill_tables(page, "keys", table)
}

/// Fills the tables between `<!-- WHAT: NAME -->` and `<!-- end -->` of a page; `table` makes the
/// one of that name.
///
/// # Errors
/// In words, when there is none of a name, or a marker has no end.
pub fn fill_tables(
    page: &str,
    what: &str,
    table: impl Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let begin = format!("<!-- {what}: ");
    let mut filled = String::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once(&begin) {
        let (name, after) = after
            .split_once(" -->\n")
            .ok_or_else(|| format!("{begin}: this marker does not end in ` -->`"))?;
        let (_, after) = after
            .split_once(END)
            .ok_or_else(|| format!("{begin}{name}: no {END} follows"))?;
        let table = table(name).ok_or_else(|| format!("{begin}{name}: there is no such table"))?;
        filled += &format!("{before}{begin}{name} -->\n\n{table}\n{END}");
        rest = after;
    }
    Ok(filled + rest)
}

fn table(name: &str) -> Option<String> {
    match name {
        "top" => Some(rows(&Config::keys(""))),
        "tunnel" => Some(rows(&Tunnel::keys("tunnels"))),
        "class" => Some(rows_of_either_class()),
        "site" => Some(rows(&Site::keys())),
        "restart" => Some(restarts()),
        "fabric-file" => Some(rows(&FabricConfig::keys(""))),
        "fabric" => fabric_section("fabric"),
        "fabric-port" => Some(rows(&FabricPort::keys(""))),
        "fabric-leaf" => Some(rows(&FabricLeaf::keys(""))),
        "fabric-metrics" => fabric_section("metrics"),
        _ => section(name),
    }
}

fn section(name: &str) -> Option<String> {
    let mut sections = sections_with_keys().into_iter();
    let section = sections.find(|section| section.name == name)?;
    Some(rows(&section.keys))
}

/// The keys of a section of the file of a leaf or a spine.
fn fabric_section(name: &str) -> Option<String> {
    let mut sections = FabricConfig::sections().into_iter();
    let section = sections.find(|section| section.name == name)?;
    Some(rows(&section.keys))
}

fn rows<S: 'static>(keys: &[Key<S>]) -> String {
    rows_with(keys, default)
}

/// The keys of both classes; where their defaults differ, both are there.
fn rows_of_either_class() -> String {
    let of = |name| Tunnels::keys(name);
    let (short, long) = (of("short"), of("long"));
    rows_with(&short, |key| {
        let twin = long.iter().find(|it| it.name == key.name);
        let defaults = (default(key), twin.map(default).unwrap_or_default());
        match defaults.0 == defaults.1 {
            true => defaults.0,
            false => format!("{} (short), {} (long)", defaults.0, defaults.1),
        }
    })
}

fn rows_with<S: 'static>(keys: &[Key<S>], default: impl Fn(&Key<S>) -> String) -> String {
    let head =
        "| key | values | default | change | meaning and trade-off |\n|---|---|---|---|---|\n";
    let rows = keys.iter().map(|key| {
        let also = match key.also {
            "" => String::new(),
            also => format!("; {also}"),
        };
        let change = match key.change {
            Change::Set => "set",
            Change::Reload => "reload",
            Change::Restart(_) => "restart",
        };
        format!(
            "| `{}` | {}{also} | {} | {change} | {} {} |\n",
            key.bare(),
            key.values,
            default(key),
            key.doc,
            key.trade_off,
        )
    });
    head.to_owned() + &rows.collect::<String>()
}

fn default<S: 'static>(key: &Key<S>) -> String {
    match &key.default {
        DefaultValue::Value { shown, .. } => format!("`{shown}`"),
        DefaultValue::Sentence(sentence) => (*sentence).to_owned(),
        DefaultValue::Required => "required".to_owned(),
    }
}

/// The keys that need another start, with what is to be done.
fn restarts() -> String {
    let head = "| key | another value needs another start |\n|---|---|\n";
    let rows = crate::keys().iter().filter_map(|key| match key.change {
        Change::Restart(remedy) => Some(format!("| `{}` | {remedy} |\n", key.name)),
        Change::Set | Change::Reload => None,
    });
    head.to_owned() + &rows.collect::<String>()
}
