//! The configuration: a TOML file turned into a [`Config`] that cannot be wrong in itself.
//!
//! Each key is declared once, in the file of its section under `sections/` ([`Config`] has those
//! above all sections): its name, values, unit, default, explanation, and when it may change.
//! The parser, [`difference`], [`keys`], [`example`], [`schema`] and [`mod@reference`] come from that.
//! Adding a key takes a row there, the code that uses it, and a test.
//!
//! Whether the system has the interfaces that a configuration names is not decided here: that is
//! for the plan and for `splitter doctor`.

use std::sync::LazyLock;

mod by_site;
mod config;
mod declaration;
mod declare;
mod diagnostic;
mod difference;
mod example;
mod fabric_config;
mod file;
mod key;
mod kind;
mod location;
pub mod overrides;
pub mod reference;
mod replacement;
mod schema;
mod sections;
mod source;
#[cfg(test)]
pub(crate) mod tests;
mod values;

pub use config::{Config, TunnelPolicy};
pub use diagnostic::{ConfigError, Diagnostic, Paint, drawn};
pub use difference::{KeyChange, difference, frozen};
pub use example::example;
pub use fabric_config::{FABRIC_PATH, FabricConfig, FabricMetrics};
pub use file::ConfigFile;
pub use key::{Change, DefaultValue, Key};
pub use location::Location;
pub use overrides::{Overrides, SetError};
pub use replacement::{ReplaceError, Replacement};
pub use schema::schema;
pub use sections::{
    Advise, Attach, AttachMode, Balance, Balancers, CloudburstQueue, DscpMatch, Fabric, FabricLeaf,
    FabricPort, FabricRole, Flows, Gateways, Handover, Health, Log, LongQueue, MAX_SITES,
    MAX_TUNNELS, Marks, Metrics, Otlp, PacketLog, Protocol, Routes, Share, Site, SiteHealth,
    Steering, SteeringMode, Tunnel, Tunnels,
};
pub use values::{
    CollectorUrl, Dscp, InstanceName, InvalidValue, NumaNode, RulePriority, SiteName, TableId,
    TableSize, Threshold,
};

/// Path at which the configuration is looked for when no `--config` is given.
pub const DEFAULT_PATH: &str = "/etc/splitter/splitter.toml";

/// Lists every key once, in the order of the example.
#[must_use]
pub fn keys() -> &'static [Key] {
    static KEYS: LazyLock<Vec<Key>> = LazyLock::new(|| {
        let top = <Config as declare::Section>::keys("");
        let inside = sections_with_keys().into_iter().flat_map(|it| it.keys);
        top.into_iter().chain(inside).collect()
    });
    &KEYS
}

/// A section with its comment and keys, for documents.
struct SectionWithKeys {
    name: &'static str,
    doc: String,
    keys: Vec<Key>,
}

/// The sections in the order of the example.
fn sections_with_keys() -> Vec<SectionWithKeys> {
    let sections = Config::sections().into_iter();
    let written = sections.map(|section| SectionWithKeys {
        name: section.name,
        doc: key::in_one_line(section.doc),
        keys: section.keys,
    });
    written.collect()
}
