//! The daemon and command `splitter` from outside: in network namespaces, with real traffic.

#[allow(dead_code, reason = "shared with the tests of the crate")]
#[path = "../../../crates/balance/tests/support/balance_vectors.rs"]
mod balance_vectors;
#[allow(dead_code, reason = "tests of kernel programs use a part of it")]
#[path = "../../../crates/splitter-policy/tests/support/mod.rs"]
mod policy;
mod support;
#[path = "../../../crates/cli/tests/support/transcript.rs"]
mod transcript;

mod apply;
mod bad_input;
mod balance;
mod balance_programs;
mod balancers;
mod boot;
mod both_directions;
mod cli;
mod cores;
mod counting_programs;
mod demo;
mod egress_counts;
mod emergency;
mod explain;
mod fabric;
mod fabric_programs;
mod faults;
mod follow;
mod follow_frr;
mod follow_live;
mod follow_sites;
mod foreign_xdp;
mod handover;
mod headers_in_pages;
mod health;
mod heard_programs;
mod in_force;
mod keys;
mod killed;
mod lifecycle;
mod living;
mod log;
mod metrics;
mod misrouted;
mod moved;
mod neighbours;
mod next_hops;
mod other_instances;
mod otlp;
mod overload;
mod placement;
mod privileges;
mod probe_times;
mod probes;
mod programs;
mod real_queue;
mod record;
mod route_audit;
mod routes;
mod service_manager;
mod several_lossy;
mod several_redirected;
mod several_routes;
mod shadow;
mod shapes;
mod shaping;
mod sharing;
mod sharing_steered;
mod site_routes;
mod sites;
mod slow_flows;
mod status_page;
mod steering;
mod steering_over_tunnels;
mod steering_programs;
mod table;
mod table_memory;
mod tap;
mod top;
mod tunnel_kinds;
mod tunnels;
mod upgrade;
mod verifier;
mod verify;
mod vrrp;
mod wording;
