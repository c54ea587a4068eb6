//! A cable between two namespaces, with addresses, neighbours and queues at its ends.

use std::{
    fmt::Write as _,
    net::{Ipv4Addr, Ipv6Addr},
};

use super::TUNNEL_QUEUE_BYTES;
use crate::namespace::{Namespace, NamespaceError};

/// The least burst that a token bucket can forward full packets with.
const TWO_PACKETS_BYTES: u32 = 3_100;
/// What a link of 1 Mbit/s carries in 1 ms.
const BYTES_A_MS_PER_MBIT: u32 = 125;
/// The only device of a host.
const HOST_DEVICE: &str = "eth0";

/// A cable between two namespaces.
pub(super) struct Link<'a> {
    /// Tells the addresses: 10.X.Y.0/24 and fd00:X:Y::/64, host 1 at the first end and 2 at the
    /// second.
    pub(super) subnet: [u8; 2],
    pub(super) ends: [End<'a>; 2],
}

pub(super) struct End<'a> {
    pub(super) namespace: &'a Namespace,
    pub(super) device: &'a str,
    /// What this end may send.
    pub(super) rate_mbit: Option<u32>,
    /// The device below this one that has the queue, if it is another.
    pub(super) wire: Option<String>,
}

impl End<'_> {
    /// The end of the cable itself, which has the queue.
    fn cable(&self) -> &str {
        self.wire.as_deref().unwrap_or(self.device)
    }

    /// What may leave at once.
    ///
    /// As little as the shaper can do, two packets, where a border's own queue is meant. A queue
    /// behind it stands for a link that always has its rate, which the shaper loses whenever its
    /// timer is later than the burst takes; a queue that has formed then never drains. Hence 1 ms.
    fn burst_bytes(&self, rate_mbit: u32) -> u32 {
        match self.wire {
            None => TWO_PACKETS_BYTES,
            Some(_) => (rate_mbit * BYTES_A_MS_PER_MBIT).max(TWO_PACKETS_BYTES),
        }
    }
}

impl<'a> Link<'a> {
    pub(super) fn access(
        subnet: [u8; 2],
        (border, device): (&'a Namespace, &'a str),
        host: &'a Namespace,
        rate_mbit: Option<u32>,
    ) -> Self {
        let border = End {
            namespace: border,
            device,
            rate_mbit: None,
            wire: None,
        };
        Self {
            subnet,
            ends: [
                border,
                End {
                    namespace: host,
                    device: HOST_DEVICE,
                    rate_mbit,
                    wire: None,
                },
            ],
        }
    }

    pub(super) fn ipv4(&self, end: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, self.subnet[0], self.subnet[1], number(end))
    }

    pub(super) fn ipv6(&self, end: usize) -> Ipv6Addr {
        let [x, y] = self.subnet.map(u16::from);
        Ipv6Addr::new(0xfd00, x, y, 0, 0, 0, 0, number(end).into())
    }

    fn mac(&self, end: usize) -> String {
        let [x, y] = self.subnet;
        format!("02:00:00:{x:02x}:{y:02x}:{:02x}", number(end))
    }

    pub(super) fn make(&self, ipv6: bool) -> Result<(), NamespaceError> {
        let [one, two] = &self.ends;
        one.namespace
            .connect(one.cable(), two.namespace, two.cable())?;
        self.set_up(ipv6, true)
    }

    /// Sets up a cable whose ends are there already and have no hardware addresses.
    pub(super) fn set_up_delayed(&self, ipv6: bool) -> Result<(), NamespaceError> {
        self.set_up(ipv6, false)
    }

    fn set_up(&self, ipv6: bool, has_hardware_addresses: bool) -> Result<(), NamespaceError> {
        for (end, (near, far)) in self.ends.iter().zip([(0, 1), (1, 0)]) {
            let (device, cable) = (end.device, end.cable());
            if cable != device {
                end.namespace.run_with_input(
                    "ip -batch -",
                    &format!("link set dev {cable} up\nlink add link {cable} name {device} type macvlan mode private\n"),
                )?;
            }
            let mut addresses = vec![(
                format!("{}/24", self.ipv4(near)),
                self.ipv4(far).to_string(),
            )];
            if ipv6 {
                addresses.push((
                    format!("{}/64 nodad", self.ipv6(near)),
                    self.ipv6(far).to_string(),
                ));
            }
            let mut batch = if has_hardware_addresses {
                format!("link set dev {device} address {} up\n", self.mac(near))
            } else {
                format!("link set dev {device} up\n")
            };
            for (own, neighbour) in addresses {
                let mac = self.mac(far);
                let _ = writeln!(batch, "address add {own} dev {device}");
                if !has_hardware_addresses {
                    continue;
                }
                let _ = writeln!(
                    batch,
                    "neighbour replace {neighbour} lladdr {mac} dev {device} nud permanent"
                );
            }
            end.namespace.run_with_input("ip -batch -", &batch)?;
            end.namespace.keep_flows_in_order(cable)?;
            if let Some(rate) = end.rate_mbit {
                let burst = end.burst_bytes(rate);
                end.namespace.run(&format!(
                    "tc qdisc add dev {cable} root tbf rate {rate}mbit burst {burst} limit {TUNNEL_QUEUE_BYTES}"
                ))?;
            }
        }
        Ok(())
    }

    /// Sends what has no other way from `namespace` to the end numbered `gateway`.
    pub(super) fn add_default_route(
        &self,
        namespace: &Namespace,
        gateway: usize,
        attributes: &str,
        ipv6: bool,
    ) -> Result<(), NamespaceError> {
        let address = self.ipv4(gateway);
        namespace.run(&format!("ip route add default via {address} {attributes}"))?;
        if ipv6 {
            let address = self.ipv6(gateway);
            namespace.run(&format!(
                "ip -6 route add default via {address} {attributes}"
            ))?;
        }
        Ok(())
    }
}

/// The last part of the address of a link's end.
fn number(end: usize) -> u8 {
    if end == 0 { 1 } else { 2 }
}
