//! Families of metrics as the reference page has them: a row each, with labels and their values.

use flow_telemetry::otlp;
use splitter_config::reference::fill_tables;
use splitter_instance::family_label;
use splitter_policy::flow::{Class, TunnelRole};
use splitter_steering::Egress;

use super::FAMILIES;

/// A family as the reference page has it.
pub(super) struct Row {
    pub(super) section: &'static str,
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    pub(super) unit: &'static str,
    pub(super) labels: Vec<Label>,
    pub(super) help: &'static str,
    pub(super) more: &'static str,
}

/// A label, with its values where these are a fixed set.
#[derive(Clone)]
pub(super) struct Label {
    name: &'static str,
    values: Vec<&'static str>,
}

pub(super) fn of<const N: usize>(name: &'static str, values: [&'static str; N]) -> Label {
    let values = values.to_vec();
    Label { name, values }
}

/// A label whose values the configuration fixes.
pub(super) fn open(name: &'static str) -> Label {
    of(name, [])
}

pub(super) fn class() -> Label {
    of("class", Class::ALL.map(Class::name))
}

pub(super) fn tunnel() -> Label {
    of("tunnel", TunnelRole::ALL.map(TunnelRole::name))
}

/// A tunnel, or the main table.
pub(super) fn place() -> Label {
    of("tunnel", Egress::ALL.map(Egress::name))
}

/// The remote site that a tunnel leads to, or a class goes to: `default` where none are listed.
pub(super) fn site() -> Label {
    open("site")
}

pub(super) fn family() -> Label {
    of("family", FAMILIES.map(family_label))
}

/// Fills the tables of a page again, each with the rows of its section.
pub(super) fn fill(page: &str, rows: &[Row]) -> Result<String, String> {
    fill_tables(page, "metrics", |section| {
        let own = rows.iter().filter(|row| row.section == section);
        let rows: String = own.map(Row::written).collect();
        let head = "| name | type | unit | labels | meaning |\n|---|---|---|---|---|\n";
        let shared = match section {
            "agent" => format!("{}{BUILD_INFO}", otlp::reference_rows("splitter")),
            _ => String::new(),
        };
        (!rows.is_empty()).then(|| format!("{head}{rows}{shared}"))
    })
}

/// The registry has it by itself.
const BUILD_INFO: &str =
    "| `splitter_build_info` | info | - | `version` | Version of the running agent. |\n";

impl Row {
    fn written(&self) -> String {
        let labels = self.labels.iter().map(|label| match &label.values[..] {
            [] => format!("`{}`", label.name),
            values => format!("`{}` ({})", label.name, values.join(", ")),
        });
        let labels = match self.labels.is_empty() {
            true => "-".to_owned(),
            false => labels.collect::<Vec<_>>().join(", "),
        };
        let Self {
            name, unit, help, ..
        } = self;
        let kind = self.kind.to_lowercase();
        let more = match self.more {
            "" => String::new(),
            more => format!(" {more}"),
        };
        format!("| `splitter_{name}` | {kind} | {unit} | {labels} | {help}.{more} |\n")
    }
}
