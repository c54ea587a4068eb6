//! A hub: one border with tunnels to many remote sites, each a pair of cables.

use std::fmt::Write as _;

use flow_testbed::namespace::Namespace;

/// What one remote site is called, has, and is reached by.
pub(crate) struct Remote {
    index: usize,
}

impl Remote {
    pub(crate) const fn new(index: usize) -> Self {
        Self { index }
    }

    pub(crate) fn name(&self) -> String {
        format!("site{}", self.index)
    }

    pub(crate) fn short(&self) -> String {
        format!("s{}", self.index)
    }

    pub(crate) fn long(&self) -> String {
        format!("l{}", self.index)
    }

    /// An address at the site, of either family.
    pub(crate) fn addresses(&self) -> [String; 2] {
        [
            format!("10.{}.{}.9", 100 + self.index / 256, self.index % 256),
            format!("fd00:b:{}::9", self.index),
        ]
    }

    fn destinations(&self) -> [String; 2] {
        [
            format!("10.{}.{}.0/24", 100 + self.index / 256, self.index % 256),
            format!("fd00:b:{}::/48", self.index),
        ]
    }

    /// The address of one end of a tunnel (1 or 2), without its length.
    fn end(&self, class: u8, end: u8) -> [String; 2] {
        let (high, low) = (self.index / 256, self.index % 256);
        [
            format!("172.{}.{low}.{end}", 16 + 2 * high + usize::from(class)),
            format!("fd00:{}:{}::{end}", 100 + class, self.index),
        ]
    }

    fn section(&self) -> String {
        let tunnel = |class: u8, device: String| {
            let gateway = self.end(class, 2);
            format!("{{ device = '{device}', gateway = {gateway:?} }}")
        };
        format!(
            "[[site]]\nname = '{}'\ndestinations = {:?}\nshort = {}\nlong = {}\n",
            self.name(),
            self.destinations(),
            tunnel(0, self.short()),
            tunnel(1, self.long())
        )
    }
}

/// The sections of so many sites.
pub(crate) fn sections(count: usize) -> String {
    (0..count).map(|it| Remote::new(it).section()).collect()
}

/// Gives a border the tunnels to so many sites. Their other ends, `far-` and the device, are on the
/// same machine, and answer nothing.
pub(crate) fn add_tunnels(border: &Namespace, count: usize) {
    let mut batch = String::new();
    for remote in (0..count).map(Remote::new) {
        batch += &steps(&remote, 0);
        batch += &steps(&remote, 1);
    }
    border.run_with_input("ip -batch -", &batch).expect("root");
}

/// Gives a border the tunnel of a class (0 short, 1 long) to a site.
pub(crate) fn add_tunnel(border: &Namespace, remote: &Remote, class: u8) {
    let batch = steps(remote, class);
    border.run_with_input("ip -batch -", &batch).expect("root");
}

fn steps(remote: &Remote, class: u8) -> String {
    let device = match class {
        0 => remote.short(),
        _ => remote.long(),
    };
    let mut batch = String::new();
    let [v4, v6] = remote.end(class, 1);
    let _ = writeln!(batch, "link add {device} type veth peer far-{device}");
    for end in [&device, &format!("far-{device}")] {
        let _ = writeln!(batch, "link set {end} addrgenmode none up");
    }
    let _ = writeln!(batch, "address add {v4}/24 dev {device}");
    let _ = writeln!(batch, "address add {v6}/64 dev {device} nodad");
    // Entered by hand, it counts as alive as long as the link is.
    let [next_hop, _] = remote.end(class, 2);
    let address = "lladdr 02:00:00:00:00:02 nud permanent";
    let _ = writeln!(batch, "neigh replace {next_hop} {address} dev {device}");
    batch
}
