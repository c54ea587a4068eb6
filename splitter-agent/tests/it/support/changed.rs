//! Packets that come out of the tunnels with a DSCP, which none was sent with.

use super::site::Site;

/// Has the other border count them.
pub(crate) fn count_dscp(site: &Site) {
    let rule = |family: &str| format!("iifname \"tun*\" {family} dscp != 0 counter name changed\n");
    let table = format!(
        "table inet dscp {{\ncounter changed {{}}\nchain in {{\n\
         type filter hook prerouting priority -300;\n{}{}}}\n}}\n",
        rule("ip"),
        rule("ip6"),
    );
    let far = &site.topology.borders[1].namespace;
    far.run_with_input("nft -f -", &table).expect("nft works");
}

/// How many there were.
pub(crate) fn with_dscp(site: &Site) -> u64 {
    let far = &site.topology.borders[1].namespace;
    let shown = far
        .run("nft list counter inet dscp changed")
        .expect("nft works");
    let mut words = shown
        .split_whitespace()
        .skip_while(|word| *word != "packets");
    words
        .nth(1)
        .and_then(|count| count.parse().ok())
        .expect("a count")
}
