//! What has to be so that packets can be put into tunnels, and how many were.

use super::site::Site;

/// Has the client finish its packets, the far border's devices take what is put into them, and the
/// kernel's lookup for programs find what routing finds.
pub(crate) fn be_redirectable(site: &Site, devices: &[&str]) {
    let client = &site.topology.client.namespace;
    client
        .run("ethtool -K eth0 tx off")
        .expect("veth can do without");
    for device in devices {
        // As the manual has it.
        let line = format!("ethtool -K {device} gro on");
        let far = &site.topology.borders[1].namespace;
        far.run(&line).expect("it is there");
    }
    if site.topology.client.ipv6.is_some() {
        let border = site.border();
        border.run("ip -6 route del default").expect("it is there");
    }
}

/// Packets that were put into a tunnel.
pub(crate) fn redirected(site: &Site) -> f64 {
    site.metric("splitter_redirected_packets_total")
}

/// Packets that went by the network stack for that reason.
pub(crate) fn fallbacks(site: &Site, reason: &str) -> f64 {
    let labels = format!("{{reason=\"{reason}\"}}");
    site.metric(&format!("splitter_redirect_fallbacks_total{labels}"))
}
