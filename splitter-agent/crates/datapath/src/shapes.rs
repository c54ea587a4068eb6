//! Tells aya that the shapes of `splitter-policy` are plain data.

use flow_balance::RemoteBacklogs;
use splitter_policy::clock::ClockReading;
use splitter_policy::counters::Counters;
use splitter_policy::egress_counts::EgressCounts;
use splitter_policy::fabric::{Agreement, FabricCounters};
use splitter_policy::flow::{FlowKeyV6, TapEntry};
use splitter_policy::forward::Mac;
use splitter_policy::next_hop::{Generation, TunnelHops};
use splitter_policy::packet_selection::{PacketPassage, PacketSelection};
use splitter_policy::paths::{PathCounters, SitePaths, UplinkNumbers};
use splitter_policy::prefix_lengths::PrefixLengths;
use splitter_policy::queue_search::{QueueSearch, ShortQueues};
use splitter_policy::reverse::ReverseEntry;
use splitter_policy::settings::Settings;

/// A value shared with the kernel programs.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape<T>(pub(crate) T);

macro_rules! plain_data {
    ($($shape:ty),*) => {$(
        // SAFETY: `repr(C)`, `Copy`, 'static, made of integers without padding,
        // so that any bytes the kernel hands back are a valid value.
        unsafe impl aya::Pod for Shape<$shape> {}
    )*};
}

plain_data!(
    Agreement,
    ClockReading,
    Counters,
    EgressCounts,
    FabricCounters,
    FlowKeyV6,
    Generation,
    Mac,
    PacketPassage,
    PacketSelection,
    PathCounters,
    PrefixLengths,
    QueueSearch,
    RemoteBacklogs,
    ReverseEntry,
    Settings,
    ShortQueues,
    SitePaths,
    TapEntry,
    TunnelHops,
    UplinkNumbers
);

/// Sizes that the kernel programs were compiled with; padding would show here.
const _: () = {
    assert!(size_of::<Agreement>() == 16);
    assert!(size_of::<EgressCounts>() == 200);
    assert!(size_of::<FabricCounters>() == 192);
    assert!(size_of::<FlowKeyV6>() == 40);
    assert!(size_of::<Generation>() == 8);
    assert!(size_of::<PacketPassage>() == 64);
    assert!(size_of::<PacketSelection>() == 24);
    assert!(size_of::<PathCounters>() == 768);
    assert!(size_of::<PrefixLengths>() == 33_280);
    assert!(size_of::<QueueSearch>() == 32);
    assert!(size_of::<RemoteBacklogs>() == 256);
    assert!(size_of::<ReverseEntry>() == 32);
    assert!(size_of::<ShortQueues>() == 24);
    assert!(size_of::<SitePaths>() == 896);
    assert!(size_of::<TapEntry>() == 32);
    assert!(size_of::<TunnelHops>() == 324);
    assert!(size_of::<Settings>() == 688);
};
