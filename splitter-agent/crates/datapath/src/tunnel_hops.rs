//! The next hops of the tunnels that packets choose among where they are redirected, as programs read them.

use flow_balance::MAX_PATHS;
use splitter_policy::next_hop::{TunnelHop, TunnelHops};

/// A tunnel's device and what the kernel knows of its next hops now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelLink {
    /// The number of the device.
    pub device: u32,
    /// The largest packet that it carries, in bytes.
    pub mtu: u32,
    /// Its address on its link.
    pub address: [u8; 6],
    /// The link addresses of its next hops of IPv4 and of IPv6; none where they are not known.
    pub next_hops: [Option<[u8; 6]>; 2],
}

/// Describes tunnels to programs, for IPv4 and for IPv6: those whose device has a slot, by `slots` of devices.
pub(super) fn described(tunnels: &[Option<TunnelLink>], slots: &[(u32, u32)]) -> [TunnelHops; 2] {
    [0, 1].map(|family| {
        let mut hops = TunnelHops::default();
        for (hop, tunnel) in hops.hops.iter_mut().zip(tunnels.iter().take(MAX_PATHS)) {
            let Some((link, next_hop)) = tunnel.and_then(|it| Some((it, it.next_hops[family]?)))
            else {
                continue;
            };
            let Some((device, slot)) = slots.iter().find(|(device, _)| *device == link.device)
            else {
                continue;
            };
            let mut addresses = [0; 12];
            addresses[..6].copy_from_slice(&next_hop);
            addresses[6..].copy_from_slice(&link.address);
            *hop = TunnelHop {
                device: *device,
                slot: *slot,
                link: addresses,
            };
            hops.mtu = match hops.mtu {
                0 => link.mtu,
                least => least.min(link.mtu),
            };
        }
        hops
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunnels_are_described_where_packets_can_be_put_into_them() {
        let link = |device: u32, mtu, next_hops| {
            Some(TunnelLink {
                device,
                mtu,
                address: [device as u8; 6],
                next_hops,
            })
        };
        let tunnels = [
            link(7, 1_500, [Some([1; 6]), None]),
            None,
            // No program puts anything into it.
            link(8, 900, [Some([2; 6]), Some([2; 6])]),
            link(9, 1_400, [Some([3; 6]), Some([4; 6])]),
        ];
        let [v4, v6] = described(&tunnels, &[(9, 5), (7, 3), (4, 8)]);
        let hop = |device: u32, slot, next_hop: u8| TunnelHop {
            device,
            slot,
            link: [[next_hop; 6], [device as u8; 6]]
                .concat()
                .try_into()
                .unwrap(),
        };
        let none = TunnelHop::default();
        // What is longer than the least of them fits none for certain.
        assert_eq!((v4.mtu, v6.mtu), (1_400, 1_400));
        assert_eq!(v4.hops[..5], [hop(7, 3, 1), none, none, hop(9, 5, 3), none]);
        assert_eq!(v6.hops[..5], [none, none, none, hop(9, 5, 4), none]);
        assert_eq!(described(&[], &[(7, 3)]), [TunnelHops::default(); 2]);
    }
}
