//! Limits of network drivers for XDP programs, as the kernel's sources have them.
//!
//! Declared once: `doctor` goes by it, and the table of `docs/src/reference/drivers.md` is written from it.

use splitter_netlink::{Channels, DeviceFeatures, Interface};

use super::Check;

/// A version of Linux.
pub(crate) type Version = (u32, u32);

/// What a driver's XDP takes, and what to set for it. Of pages of 4 KiB.
#[derive(Debug)]
#[cfg_attr(not(test), allow(dead_code, reason = "what the page says besides"))]
pub(crate) struct Driver {
    /// Its module, or the kind of a virtual device.
    pub(crate) name: &'static str,
    /// The largest MTU whose packets lie in one buffer.
    one_buffer_mtu: u32,
    /// Since when it takes packets of several buffers, which our program is written for.
    several_buffers: Option<Version>,
    /// The largest MTU then; none where the device's own is the limit.
    several_buffers_mtu: Option<u32>,
    queues: Queues,
    /// It refuses programs while the device merges packets in hardware (`rx-gro-hw`).
    refuses_hardware_gro: bool,
    /// The rule on queues, in words.
    queue_rule: &'static str,
    /// What to set.
    settings: &'static str,
    /// Files and functions.
    source: &'static str,
    /// Where it was tried here.
    tried: &'static str,
}

/// What a driver asks of the number of queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queues {
    /// Nothing that could be looked at.
    Any,
    /// One more for each CPU, or what is sent from XDP takes turns.
    SpareForEachCpu,
    /// At most half of what the device has, or the program is refused.
    AtMostHalf,
    /// One for each CPU, or what is redirected into the device from the others is dropped.
    OneForEachCpu,
    /// Combined ones, or the program is refused.
    Combined,
}

/// The drivers, in the order of the page.
pub(crate) const DRIVERS: &[Driver] = &[
    Driver {
        name: "virtio_net",
        one_buffer_mtu: 3_506,
        several_buffers: Some((6, 3)),
        several_buffers_mtu: None,
        queues: Queues::SpareForEachCpu,
        refuses_hardware_gro: false,
        queue_rule: "as many pairs in use and one more for each CPU as the host offers; with fewer, what XDP sends \
                     takes turns by a lock (before 5.13: refused)",
        settings: "on the host `queues=` of twice the CPUs, `mrg_rxbuf=on` (without it there are no packets of \
                   several buffers) and `ctrl_guest_offloads=on` (without it programs are refused while the host \
                   merges packets; with it the driver switches that off itself)",
        source: "`drivers/net/virtio_net.c`: `virtnet_xdp_set`, `virtnet_probe`",
        tried: "no: the machines of our tests have no device of it that they may use",
    },
    Driver {
        name: "veth",
        one_buffer_mtu: 3_506,
        several_buffers: Some((5, 18)),
        several_buffers_mtu: Some(65_535),
        queues: Queues::Any,
        refuses_hardware_gro: false,
        queue_rule: "as many receive queues as the other end has transmit queues, or the program is refused; the limit \
                     on the MTU is on the other end's",
        settings: "`ethtool -K PEER gro on` or a program at the other end, or what is redirected there vanishes",
        source: "`drivers/net/veth.c`: `veth_xdp_set`, `veth_xdp_xmit`",
        tried: "yes: every test in network namespaces, `dscp` and `redirect`, MTU 1,500 and 9,000",
    },
    Driver {
        name: "ena",
        one_buffer_mtu: 3_498,
        several_buffers: None,
        several_buffers_mtu: None,
        queues: Queues::AtMostHalf,
        refuses_hardware_gro: false,
        queue_rule: "at most half of the channels that the instance has, or the program is refused",
        settings: "`ip link set DEV mtu 1500` (an instance has 9,001 as it comes), `ethtool -L DEV combined N` with N half \
                   of the maximum, `ethtool -C DEV adaptive-rx on`",
        source: "`drivers/net/ethernet/amazon/ena/ena_xdp.h`: `ENA_XDP_MAX_MTU`; `ena_xdp.c`: `ena_xdp_set`; \
                 `ena_netdev.h`: `ena_xdp_legal_queue_count`",
        tried: "no",
    },
    Driver {
        name: "mlx5_core",
        one_buffer_mtu: 3_498,
        several_buffers: Some((6, 4)),
        several_buffers_mtu: None,
        queues: Queues::OneForEachCpu,
        refuses_hardware_gro: true,
        queue_rule: "a channel for each CPU that redirects into it: from others packets are dropped",
        settings: "`ethtool -K DEV lro off rx-gro-hw off`, `ethtool -L DEV combined CPUS`; before 6.4 also \
                   `ethtool --set-priv-flags DEV rx_striding_rq off` for an MTU beyond one buffer (from 5.18 on)",
        source: "`drivers/net/ethernet/mellanox/mlx5/core/en_main.c`: `mlx5e_xdp_allowed`, \
                 `mlx5e_params_validate_xdp`; `en/xdp.c`: `mlx5e_xdp_xmit`",
        tried: "no",
    },
    Driver {
        name: "ice",
        one_buffer_mtu: 3_046,
        several_buffers: Some((6, 3)),
        several_buffers_mtu: None,
        queues: Queues::Any,
        refuses_hardware_gro: false,
        queue_rule: "takes a transmit queue for each CPU by itself; with fewer left they are shared by a lock",
        settings: "`ethtool -L DEV combined CPUS`, `ethtool -G DEV rx 2048 tx 2048`, `ethtool -C DEV adaptive-rx on`; \
                   `legacy-rx` off (`ethtool --set-priv-flags`), with it one buffer has 1,638",
        source: "`drivers/net/ethernet/intel/ice/ice_main.c`: `ice_max_xdp_frame_size`, `ice_xdp_setup_prog`, \
                 `ice_vsi_determine_xdp_res`",
        tried: "no",
    },
    Driver {
        name: "i40e",
        one_buffer_mtu: 3_046,
        several_buffers: Some((6, 4)),
        several_buffers_mtu: None,
        queues: Queues::OneForEachCpu,
        refuses_hardware_gro: false,
        queue_rule: "a queue pair for each CPU that redirects into it, and a program on itself: else packets are dropped",
        settings: "`ethtool -L DEV combined CPUS`, `ethtool -G DEV rx 2048 tx 2048`, `ethtool -C DEV adaptive-rx on`; \
                   `legacy-rx` off",
        source: "`drivers/net/ethernet/intel/i40e/i40e_main.c`: `i40e_xdp_setup`, `i40e_max_vsi_frame_size`; \
                 `i40e_txrx.c`: `i40e_xdp_xmit`",
        tried: "no",
    },
    Driver {
        name: "ixgbe",
        one_buffer_mtu: 3_050,
        several_buffers: None,
        several_buffers_mtu: None,
        queues: Queues::Any,
        refuses_hardware_gro: false,
        queue_rule: "takes a transmit queue for each CPU by itself; refused with SR-IOV or DCB",
        settings: "`ethtool -K DEV lro off` before, or the program is refused; no virtual functions; \
                   `ethtool -G DEV rx 2048 tx 2048`; `legacy-rx` off",
        source: "`drivers/net/ethernet/intel/ixgbe/ixgbe_main.c`: `ixgbe_xdp_setup`, `ixgbe_change_mtu`, \
                 `ixgbe_fix_features`",
        tried: "no",
    },
    Driver {
        name: "igc",
        one_buffer_mtu: 1_500,
        several_buffers: None,
        several_buffers_mtu: None,
        queues: Queues::Any,
        refuses_hardware_gro: false,
        queue_rule: "its four transmit queues are shared with the network stack, by a lock",
        settings: "`ip link set DEV mtu 1500`; the interface goes down for a moment when a program is attached",
        source: "`drivers/net/ethernet/intel/igc/igc_xdp.c`: `igc_xdp_set_prog`",
        tried: "no",
    },
    Driver {
        name: "bnxt_en",
        one_buffer_mtu: 3_500,
        several_buffers: Some((5, 19)),
        several_buffers_mtu: None,
        queues: Queues::Combined,
        refuses_hardware_gro: false,
        queue_rule: "channels must be combined, with as many transmit queues left as it receives by, or the program is \
                     refused",
        settings: "`ethtool -L DEV combined N rx 0 tx 0`; `ethtool -K DEV lro off rx-gro-hw off` (it switches LRO off \
                   itself); `ethtool -G DEV tcp-data-split off` where the firmware has that",
        source: "`drivers/net/ethernet/broadcom/bnxt/bnxt_xdp.c`: `bnxt_xdp_set`; `bnxt.h`: \
                 `BNXT_MAX_PAGE_MODE_MTU`; `bnxt.c`: `bnxt_set_rx_skb_mode`",
        tried: "no",
    },
];

/// What a device has of what its driver's XDP goes by.
pub(crate) struct Device<'a> {
    pub(crate) interface: &'a Interface,
    pub(crate) driver: &'a str,
    pub(crate) features: DeviceFeatures,
    pub(crate) channels: Option<Channels>,
    pub(crate) cpus: u32,
    pub(crate) kernel: Version,
    /// Packets are redirected into it, or out of it.
    pub(crate) redirects: bool,
}

/// What of a device exceeds what its driver's XDP takes; nothing of a driver that is not listed.
pub(crate) fn judge(device: &Device<'_>) -> Vec<Check> {
    let Some(driver) = DRIVERS.iter().find(|it| it.name == device.driver) else {
        return Vec::new();
    };
    let mut checks = vec![driver.mtu(device)];
    checks.extend(driver.queues_of(device));
    if driver.refuses_hardware_gro && device.features.hardware_gro == Some(true) {
        let name = &device.interface.name;
        checks.push(Check::fail(
            format!("hardware GRO of {name}"),
            format!(
                "{} refuses XDP while the device merges packets",
                driver.name
            ),
            format!("ethtool -K {name} rx-gro-hw off lro off"),
        ));
    }
    checks
}

impl Driver {
    fn mtu(&self, device: &Device<'_>) -> Check {
        let (name, mtu) = (&device.interface.name, device.interface.mtu);
        let check = format!("MTU of {name}");
        let one = self.one_buffer_mtu;
        let since = self.several_buffers;
        let limit = match since.filter(|since| device.kernel >= *since) {
            Some(_) => self.several_buffers_mtu,
            None => Some(one),
        };
        let driver = self.name;
        match limit {
            Some(limit) if mtu > limit => {
                let newer = match since.filter(|_| limit == one) {
                    Some((major, minor)) => format!(", or use Linux {major}.{minor} or later"),
                    None => String::new(),
                };
                Check::fail(
                    check,
                    format!("{mtu}, where native XDP of {driver} takes {limit} here"),
                    format!(
                        "ip link set {name} mtu {limit}, or set attach.mode to \"generic\"{newer}"
                    ),
                )
            }
            _ if mtu > one => Check::ok(
                check,
                format!("{mtu}: {driver} takes packets of several buffers"),
            ),
            _ => Check::ok(check, format!("{mtu}; {driver} takes {one} in one buffer")),
        }
    }

    fn queues_of(&self, device: &Device<'_>) -> Option<Check> {
        let channels = device.channels?;
        let (name, cpus) = (&device.interface.name, device.cpus);
        let Channels {
            combined,
            most_combined,
        } = channels;
        let check = format!("queues of {name}");
        let driver = self.name;
        let set = |count: u32| format!("ethtool -L {name} combined {count}");
        Some(match self.queues {
            Queues::SpareForEachCpu if combined + cpus > most_combined && device.redirects => {
                Check::warn(
                    check,
                    format!(
                        "{combined} of {most_combined} in use leave fewer than the {cpus} that {driver} wants for what \
                         XDP sends: CPUs take turns by a lock"
                    ),
                    match most_combined.checked_sub(cpus).filter(|left| *left > 0) {
                        Some(left) => set(left),
                        None => format!("have the host offer {} queues", 2 * cpus),
                    },
                )
            }
            Queues::AtMostHalf if 2 * combined > most_combined => Check::fail(
                check,
                format!(
                    "{driver} refuses XDP with more than half of its {most_combined} channels, and has {combined}"
                ),
                set((most_combined / 2).max(1)),
            ),
            Queues::OneForEachCpu if combined < cpus && device.redirects => Check::warn(
                check,
                format!(
                    "{driver} drops what is redirected into it from other CPUs than the first {combined} of {cpus}"
                ),
                match cpus <= most_combined {
                    true => set(cpus),
                    false => format!(
                        "have the interrupts of the site's other interfaces on CPUs 0 to {}",
                        most_combined.saturating_sub(1)
                    ),
                },
            ),
            Queues::Combined if combined == 0 => Check::fail(
                check,
                format!("{driver} refuses XDP while queues for receiving and sending are apart"),
                format!(
                    "ethtool -L {name} combined {} rx 0 tx 0",
                    cpus.min(most_combined.max(1))
                ),
            ),
            _ => Check::ok(check, format!("{combined} of {most_combined}")),
        })
    }
}

#[cfg(test)]
mod tests;
