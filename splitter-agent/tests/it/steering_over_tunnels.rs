//! Steering by the kernel's mark, and past the network stack, over tunnels of several kinds and with
//! packets of several lengths: TCP, UDP whole and in fragments, ESP and GRE, IPv4 and IPv6.

use crate::support::over;
use crate::support::several;
use crate::support::site;
use flow_testbed::require;
use flow_testbed::require::Requirement::{Device, NftRule, Program};
use over::Over;
use several::{COUNTS, Kind};
use site::on_site;

const VXLAN: Kind = Kind::Over("vxlan");
const VLAN: Kind = Kind::Over("vlan");

/// A test for each way to steer and what over, which says so when the kernel lacks it.
macro_rules! checks {
    ($($name:ident: $over:expr, $kind:literal;)+) => {
        $(#[test]
        fn $name() {
            require!(Program("nft"), NftRule(COUNTS), Device($kind));
            on_site(|site| $over.check(site));
        })+
    };
}

checks! {
    marks_steer_jumbo_frames: Over::new("mark", Kind::Veth, 9_000), "veth";
    marks_steer_over_vxlan: Over::new("mark", VXLAN, 1_500), "vxlan id 1 dstport 4789";
    marks_steer_jumbo_frames_over_vxlan:
        Over::new("mark", VXLAN, 9_000), "vxlan id 1 dstport 4789";
    marks_steer_over_vlans: Over::new("mark", VLAN, 1_500), "vlan id 1";

    packets_are_redirected_into_several_tunnels: Over::new("redirect", Kind::Veth, 1_500), "veth";
    what_is_in_pieces_goes_by_the_stack: Over::new("redirect", Kind::Veth, 9_000), "veth";
    what_vxlan_does_not_take_goes_by_the_stack:
        Over::new("redirect", VXLAN, 1_500), "vxlan id 1 dstport 4789";
    jumbo_frames_that_vxlan_does_not_take_go_by_the_stack:
        Over::new("redirect", VXLAN, 9_000), "vxlan id 1 dstport 4789";

    what_is_in_pieces_goes_by_the_stack_in_generic_xdp:
        Over::new("redirect", Kind::Veth, 9_000).generic(), "veth";
    generic_xdp_redirects_into_vxlan:
        Over::new("redirect", VXLAN, 1_500).generic(), "vxlan id 1 dstport 4789";
    what_is_in_pieces_goes_by_the_stack_into_vxlan:
        Over::new("redirect", VXLAN, 9_000).generic(), "vxlan id 1 dstport 4789";
    generic_xdp_redirects_into_vlans: Over::new("redirect", VLAN, 1_500).generic(), "vlan id 1";
}
