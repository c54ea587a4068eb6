//! What tunnels may be made of, and how long packets may be, where a DSCP steers: real agents and
//! real connections over two tunnels for each class.

use crate::support::over;
use crate::support::several;
use crate::support::site;
use flow_testbed::require;
use flow_testbed::require::Requirement::{Device, NftRule, Program};
use over::Over;
use several::{COUNTS, Kind};
use site::on_site;

fn split_over(kind: Kind, mtu: u16) {
    on_site(|site| Over::new("dscp", kind, mtu).check(site));
}

#[test]
fn jumbo_frames_are_split_over_veth() {
    require!(Program("nft"), NftRule(COUNTS));
    split_over(Kind::Veth, 9_000);
}

#[test]
fn tunnels_may_be_vxlan() {
    require!(
        Program("nft"),
        NftRule(COUNTS),
        Device("vxlan id 1 dstport 4789")
    );
    split_over(Kind::Over("vxlan"), 1_500);
}

#[test]
fn jumbo_frames_are_split_over_vxlan() {
    require!(
        Program("nft"),
        NftRule(COUNTS),
        Device("vxlan id 1 dstport 4789")
    );
    split_over(Kind::Over("vxlan"), 9_000);
}

#[test]
fn tunnels_may_be_vlans() {
    require!(Program("nft"), NftRule(COUNTS), Device("vlan id 1"));
    split_over(Kind::Over("vlan"), 1_500);
}

#[test]
fn tunnels_may_be_gre() {
    require!(
        Program("nft"),
        NftRule(COUNTS),
        Device("gre local 127.0.0.1 remote 127.0.0.2")
    );
    split_over(Kind::Over("gre"), 1_500);
}

#[test]
fn xdp_in_the_network_stack_splits_the_same() {
    require!(Program("nft"), NftRule(COUNTS));
    on_site(|site| Over::new("dscp", Kind::Veth, 1_500).generic().check(site));
}

#[test]
fn xdp_in_the_network_stack_splits_jumbo_frames_over_vxlan() {
    require!(
        Program("nft"),
        NftRule(COUNTS),
        Device("vxlan id 1 dstport 4789")
    );
    let over = Over::new("dscp", Kind::Over("vxlan"), 9_000).generic();
    on_site(|site| over.check(site));
}
