//! The queueing disciplines of this network namespace.

use anyhow::{Context as _, Result};
use futures_util::TryStreamExt as _;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};

use super::network::with_netlink;

/// How many devices of this namespace have a `clsact` queueing discipline.
pub(crate) fn count_clsact() -> Result<usize> {
    with_netlink(async |it| {
        let qdiscs: Vec<TcMessage> = it.qdisc().get().execute().try_collect().await?;
        let is_clsact =
            |it: &&TcMessage| it.attributes.contains(&TcAttribute::Kind("clsact".into()));
        Ok(qdiscs.iter().filter(is_clsact).count())
    })
}

/// The bytes that wait in a queueing discipline, as the kernel reports them.
pub(crate) fn backlog(device: &str, handle: u32) -> Result<u32> {
    let found = queue(device, handle)?;
    let backlog = found.attributes.iter().find_map(|it| match it {
        TcAttribute::Stats(stats) => Some(stats.backlog),
        _ => None,
    });
    backlog.context("the kernel reports no backlog")
}

/// The kind of a queueing discipline, and the packets that it has let out.
pub(crate) fn passed(device: &str, handle: u32) -> Result<(String, u32)> {
    let found = queue(device, handle)?;
    let (mut kind, mut packets) = (None, None);
    for attribute in found.attributes {
        match attribute {
            TcAttribute::Kind(it) => kind = Some(it),
            TcAttribute::Stats(stats) => packets = Some(stats.packets),
            _ => {}
        }
    }
    kind.zip(packets).context("the kernel does not say")
}

fn queue(device: &str, handle: u32) -> Result<TcMessage> {
    let index = nix::net::if_::if_nametoindex(device)?.cast_signed();
    with_netlink(async |it| {
        let qdiscs: Vec<TcMessage> = it.qdisc().get().execute().try_collect().await?;
        let is_it =
            |it: &&TcMessage| it.header.index == index && u32::from(it.header.handle) == handle;
        let found = qdiscs.iter().find(is_it);
        found.cloned().context("it is not there")
    })
}

pub(crate) fn remove_clsact(device: &str) -> Result<()> {
    let index = nix::net::if_::if_nametoindex(device)?.cast_signed();
    with_netlink(async |it| {
        let mut removal = it.qdisc().del(index);
        removal.message_mut().header.parent = TcHandle::CLSACT;
        Ok(removal.execute().await?)
    })
}
