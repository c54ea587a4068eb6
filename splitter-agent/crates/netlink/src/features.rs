//! What a device can do and does: XDP in its driver, and what becomes of received packets before.

use std::time::Duration;

use ethtool::EthtoolAttr;
use ethtool::EthtoolChannelAttr;
use ethtool::EthtoolFeatureAttr;
use futures_util::TryStreamExt as _;
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};
use rtnetlink::packet_core::{
    DecodeError, DefaultNla, Emitable, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload, NlaBuffer,
    NlasIterator, Parseable as _, ParseableParametrized,
};
use rtnetlink::packet_core::{Nla as _, parse_u64};
use serde::Serialize;
use tokio::time::error::Elapsed;

use super::Interface;

const TIMEOUT: Duration = Duration::from_secs(2);

/// Holds what is known of a device; `None` where the kernel gives no answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct DeviceFeatures {
    /// Whether the driver runs XDP programs (reported since Linux 6.3).
    pub native_xdp: Option<bool>,
    /// Whether large receive offload is on, which merges packets beyond recognition.
    pub lro: Option<bool>,
    /// Whether generic receive offload is on.
    pub gro: Option<bool>,
    /// Whether the hardware merges packets itself, such that they can be told apart again.
    pub hardware_gro: Option<bool>,
    /// Whether it takes VLAN tags (802.1Q) off what it receives, before an XDP program sees it.
    pub strips_vlan: Option<bool>,
    /// The same for the tags of service VLANs (802.1ad).
    pub strips_service_vlan: Option<bool>,
}

/// Asks the `netdev` and `ethtool` families about a device.
pub async fn device_features(interface: &Interface) -> DeviceFeatures {
    let xdp = tokio::time::timeout(TIMEOUT, xdp_features(interface.index)).await;
    let active = tokio::time::timeout(TIMEOUT, active_features(&interface.name)).await;
    let active = active.ok().flatten();
    let is_on = |name: &str| {
        active
            .as_ref()
            .map(|active| active.iter().any(|on| on == name))
    };
    DeviceFeatures {
        native_xdp: xdp.ok().flatten().map(|features| features & XDP_BASIC != 0),
        lro: is_on("rx-lro"),
        gro: is_on("rx-gro"),
        hardware_gro: is_on("rx-gro-hw"),
        strips_vlan: is_on("rx-vlan-hw-parse"),
        strips_service_vlan: is_on("rx-vlan-stag-hw-parse"),
    }
}

/// Counts the queues of a device that receive and send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Channels {
    /// Those in use.
    pub combined: u32,
    /// What the device has.
    pub most_combined: u32,
}

/// Asks the `ethtool` family for a device's queues; `None` where its driver does not say.
pub async fn device_channels(interface: &Interface) -> Option<Channels> {
    let channels = tokio::time::timeout(TIMEOUT, channels(&interface.name)).await;
    channels.ok().flatten()
}

async fn channels(name: &str) -> Option<Channels> {
    let (connection, mut handle, _) = ethtool::new_connection().ok()?;
    let connection = tokio::spawn(connection);
    let asked = async {
        let answers = handle.channel().get(Some(name)).execute().await.ok()?;
        let answers: Vec<_> = answers.try_collect().await.ok()?;
        let attributes: Vec<_> = answers.into_iter().flat_map(|it| it.payload.nlas).collect();
        let count = |of: fn(&EthtoolChannelAttr) -> Option<u32>| {
            attributes.iter().find_map(|it| match it {
                EthtoolAttr::Channel(attribute) => of(attribute),
                _ => None,
            })
        };
        Some(Channels {
            combined: count(|it| match it {
                EthtoolChannelAttr::CombinedCount(count) => Some(*count),
                _ => None,
            })?,
            most_combined: count(|it| match it {
                EthtoolChannelAttr::CombinedMax(count) => Some(*count),
                _ => None,
            })?,
        })
    };
    let channels = asked.await;
    connection.abort();
    channels
}

/// Finds out whether a device's driver takes packets that XDP redirects to it (`ndo_xdp_xmit`), in its present
/// state; `None` where the kernel cannot say (before Linux 6.3).
///
/// # Errors
/// When it does not answer in time.
pub async fn takes_redirected(interface: &Interface) -> Result<Option<bool>, Elapsed> {
    let features = tokio::time::timeout(TIMEOUT, xdp_features(interface.index)).await?;
    Ok(features.map(|features| features & XDP_NDO_XMIT != 0))
}

/// The names of the features that are on.
async fn active_features(name: &str) -> Option<Vec<String>> {
    let (connection, mut handle, _) = ethtool::new_connection().ok()?;
    let connection = tokio::spawn(connection);
    let features = async {
        let answers = handle.feature().get(Some(name)).execute().await.ok()?;
        let answers: Vec<_> = answers.try_collect().await.ok()?;
        let attributes = answers.into_iter().flat_map(|answer| answer.payload.nlas);
        let active = attributes.filter_map(|attribute| match attribute {
            EthtoolAttr::Feature(EthtoolFeatureAttr::Active(bits)) => Some(bits),
            _ => None,
        });
        Some(
            active
                .flatten()
                .filter(|bit| bit.value)
                .map(|bit| bit.name)
                .collect(),
        )
    };
    let features = features.await;
    connection.abort();
    features
}

/// `NETDEV_XDP_ACT_BASIC` of linux/netdev.h: pass, drop, abort and transmit work.
const XDP_BASIC: u64 = 1;
/// `NETDEV_XDP_ACT_NDO_XMIT`.
const XDP_NDO_XMIT: u64 = 4;
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;

/// A message of the `netdev` family, as far as it is needed here.
#[derive(Debug, Clone)]
struct NetdevMessage(Vec<DefaultNla>);

impl GenlFamily for NetdevMessage {
    fn family_name() -> &'static str {
        "netdev"
    }

    fn command(&self) -> u8 {
        NETDEV_CMD_DEV_GET
    }

    fn version(&self) -> u8 {
        1
    }
}

impl Emitable for NetdevMessage {
    fn buffer_len(&self) -> usize {
        self.0.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.0.as_slice().emit(buffer);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for NetdevMessage {
    fn parse_with_param(buffer: &[u8], _: GenlHeader) -> Result<Self, DecodeError> {
        let parse = |attribute: Result<NlaBuffer<&[u8]>, _>| DefaultNla::parse(&attribute?);
        NlasIterator::new(buffer)
            .map(parse)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

async fn xdp_features(index: u32) -> Option<u64> {
    let (connection, mut handle, _) = genetlink::new_connection().ok()?;
    let connection = tokio::spawn(connection);
    let features = async {
        let device = DefaultNla::new(NETDEV_A_DEV_IFINDEX, index.to_ne_bytes().to_vec());
        let message = GenlMessage::from_payload(NetdevMessage(vec![device]));
        let mut message = NetlinkMessage::from(message);
        message.header.flags = NLM_F_REQUEST;
        let mut answers = Box::pin(handle.request(message).await.ok()?);
        match answers.try_next().await.ok()??.payload {
            NetlinkPayload::InnerMessage(answer) => answer.payload.xdp_features(),
            _ => None,
        }
    };
    let features = features.await;
    connection.abort();
    features
}

impl NetdevMessage {
    fn xdp_features(&self) -> Option<u64> {
        let attribute = self
            .0
            .iter()
            .find(|it| it.kind() == NETDEV_A_DEV_XDP_FEATURES)?;
        let mut value = vec![0; attribute.value_len()];
        attribute.emit_value(&mut value);
        parse_u64(&value).ok()
    }
}

#[cfg(test)]
mod tests {
    use flow_testbed::namespace::Namespace;
    use flow_testbed::require;
    use flow_testbed::require::Requirement::{Program, Root};

    use super::*;

    #[test]
    fn a_device_that_takes_vlan_tags_off_is_distinguished_from_one_that_does_not() {
        require!(Root, Program("ip"), Program("ethtool"));
        let namespace = Namespace::new("features").unwrap();
        let run = |line: &str| namespace.run(line).map(drop);
        run("ip link add lan type veth peer name far").unwrap();
        let features = || {
            let ask = || {
                let mut runtime = tokio::runtime::Builder::new_current_thread();
                let runtime = runtime.enable_all().build().unwrap();
                let interface = Interface {
                    name: "lan".to_owned(),
                    ..Interface::default()
                };
                runtime.block_on(device_features(&interface))
            };
            let reported = namespace.enter(ask).unwrap();
            (reported.strips_vlan, reported.strips_service_vlan)
        };
        for (settings, expected) in [
            (
                "rxvlan on rx-vlan-stag-hw-parse on",
                (Some(true), Some(true)),
            ),
            ("rxvlan off", (Some(false), Some(true))),
            ("rx-vlan-stag-hw-parse off", (Some(false), Some(false))),
        ] {
            run(&format!("ethtool -K lan {settings}")).unwrap();
            assert_eq!(features(), expected, "{settings}");
        }
    }
}
