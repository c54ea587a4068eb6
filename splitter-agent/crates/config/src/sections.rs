//! The sections of the file, each with its keys and the rules that hold between them.

mod advise;
mod attach;
mod balance;
mod fabric;
mod flows;
mod handover;
mod health;
mod log;
mod marks;
mod metrics;
mod otlp;
mod routes;
mod share;
mod site_health;
mod sites;
mod steering;
mod tunnel;
mod tunnels;

pub use advise::Advise;
pub use attach::{Attach, AttachMode};
pub use balance::{Balance, Balancers};
pub(crate) use balance::{listed as listed_tunnels, read_listed};
pub use fabric::{Fabric, FabricLeaf, FabricPort, FabricRole};
pub(crate) use fabric::{read_lists as read_fabric_lists, role_is_possible};
pub use flows::{Flows, Protocol};
pub use handover::Handover;
pub use health::Health;
pub use log::{Log, PacketLog};
pub use marks::{DscpMatch, Marks};
pub use metrics::Metrics;
pub use otlp::Otlp;
pub use routes::Routes;
pub use share::{CloudburstQueue, LongQueue, Share};
pub use site_health::SiteHealth;
pub use sites::{MAX_SITES, Site};
pub(crate) use sites::{SITES_EXAMPLE, listed as listed_sites, read_sites};
pub use steering::{Steering, SteeringMode};
pub(crate) use tunnel::LISTED_EXAMPLE;
pub use tunnel::{Gateways, Tunnel};
pub use tunnels::{MAX_TUNNELS, Tunnels};

use crate::Config;
use crate::config::Given;
use crate::source::Source;

/// Holds the keys of single sections against each other; sections that lack a required key are
/// left out.
pub(crate) const WITHIN: &[fn(&Source<'_>, &Given)] = &[
    flows::threshold_can_be_found,
    handover::margin_is_within_the_wait,
    advise::bounds_are_in_order,
    marks::are_distinct,
    health::times_agree,
];

/// Holds the sections against each other.
pub(crate) const ACROSS: &[fn(&Source<'_>, &Config)] = &[
    tunnels::devices_differ,
    tunnels::families_agree,
    routes::priorities_suffice,
    health::peers_have_a_key,
    share::tunnels_can_be_shaped,
    share::cloudburst_has_its_own_mark,
    steering::mode_is_possible,
    balance::choice_is_possible,
    sites::sites_are_distinct,
    sites::sites_are_possible,
    sites::thresholds_are_possible,
    sites::keys_of_sites_are_used,
    site_health::times_of_sites_agree,
];
