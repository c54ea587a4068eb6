//! The kernel half: the programs, their maps and links, as typed values.
//!
//! Everything is pinned below `<bpffs>/splitter/<instance>`, so that packets
//! are split on while no agent runs and the next agent finds what there is.

mod attach;
mod calibrate;
mod chain;
pub mod clock;
pub mod connections;
mod dataplane;
mod egress;
mod error;
mod fabric;
pub mod flows;
mod foreign_tc;
mod foreign_xdp;
mod heard;
mod inherit;
mod inject;
mod load;
mod memory;
mod names;
mod next_hops;
mod object;
mod path_queues;
mod pins;
mod prefix_lengths;
mod prefix_thresholds;
mod program;
mod raw;
mod replace;
mod reverse;
mod settings;
mod shapes;
mod short_queues;
mod site_paths;
pub mod slow_flows;
mod table_note;
mod table_sizes;
mod tables;
pub mod tap;
mod targets;
mod tc;
mod tunnel_hops;
mod undisturbed;

pub use attach::AttachedMode;
pub use calibrate::CalibrationError;
pub use dataplane::Dataplane;
pub use error::KernelError;
pub use error::mount_command;
pub use fabric::{
    FabricDataplane, FabricPortState, FabricRemains, fabric_object, fabric_ports, fabric_programs,
};
pub use foreign_tc::{ForeignTcProgram, TcSide, foreign_tc_programs};
pub use foreign_xdp::remedy as foreign_program_remedy;
pub use foreign_xdp::{ForeignProgram, Member};
pub use heard::{HeardByTunnel, HeardMaps};
pub use inherit::{FlowsOutlook, InheritedFlows};
pub use inject::{Injector, LONGEST_FRAME_BYTES};
pub use load::LoadOptions;
pub use memory::UsableMemory;
pub use next_hops::NextHops;
pub use object::{Object, PROGRAM};
pub use path_queues::{MappedWord, PathQueues};
pub use pins::Pins;
pub use prefix_lengths::read_prefix_lengths;
pub use prefix_thresholds::PrefixThresholds;
pub use program::{is_splitting, program_kind, program_name};
pub use settings::policy_settings;
pub(crate) use shapes::Shape;
pub use short_queues::{QueueId, UnseenQueues, locate_queues};
pub use site_paths::{follow_delays, site_paths};
pub use table_sizes::{TableSizes, TableSizing};
pub use tables::FlowTables;
pub use targets::Targets;
pub use tc::TcHook;
pub(crate) use tc::{Clsact, Position, attach as attach_tc};
pub use tunnel_hops::TunnelLink;
