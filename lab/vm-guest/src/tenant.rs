//! Somebody else's network on the same router, in a VRF, with the addresses of ours.
//!
//! ```text
//! tenant0 ── red0 border red1 ── redfar server
//! ```

use std::net::{Ipv4Addr, TcpListener};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rtnetlink::{LinkUnspec, LinkVrf, RouteMessageBuilder};
use splitter_policy::config::PolicyConfig;

use super::agent::{bring_up, configure, go_down, send_both_classes};
use super::network::{
    CABLES, Capture, Connection, Network, SERVER, Space, add_default_route, cable, serve, set_up,
    with_netlink,
};

const VRF: &str = "red";
const TABLE: u32 = 77;
const HERE: [u8; 4] = [10, 0, 1, 1];
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 7, 2);
const PACKETS: usize = 60;

/// The site is split, and who is in a VRF is routed by its table, also with a mark of ours on the packets.
pub(crate) fn keeps_its_routes(network: &Network) -> Result<Vec<&'static str>> {
    let tenant = Tenant::build()?;
    configure("dscp", "generic", CABLES, false)?;
    bring_up("generic")?;
    let marks = [
        PolicyConfig::DEFAULT_SHORT_MARK,
        PolicyConfig::DEFAULT_LONG_MARK,
    ];
    let captures = [network.capture(CABLES[0])?, network.capture(CABLES[1])?];
    for mark in marks {
        let mut connection = tenant.connect()?;
        connection.mark(mark)?;
        connection.send(PACKETS, Duration::ZERO)?;
    }
    for strays in captures.map(Capture::packets) {
        let strays = strays?;
        ensure!(strays.is_empty(), "left by a tunnel: {strays:?}");
    }
    send_both_classes(network, marks, CABLES)?;
    go_down(network)?;
    tenant.connect()?.send(1, Duration::ZERO)?;
    tenant.remove()?;
    Ok(vec!["generic"])
}

struct Tenant {
    site: Space,
}

impl Tenant {
    fn build() -> Result<Self> {
        let (site, far) = (Space::new()?, Space::new()?);
        with_netlink(async |it| {
            let vrf = LinkVrf::new(VRF, TABLE).up().build();
            let made = it.link().add(vrf).execute().await;
            made.context("cannot make a VRF")?;
            cable(it, "red0", "tenant0", &site).await?;
            cable(it, "red1", "redfar", &far).await?;
            let vrf = nix::net::if_::if_nametoindex(VRF)?;
            for (device, address) in [("red0", HERE), ("red1", [10, 0, 7, 1])] {
                let member = LinkUnspec::new_with_name(device).controller(vrf);
                it.link().set(member.build()).execute().await?;
                set_up(it, device, Some(address)).await?;
            }
            let route = RouteMessageBuilder::<Ipv4Addr>::new()
                .table_id(TABLE)
                .gateway(GATEWAY)
                .output_interface(nix::net::if_::if_nametoindex("red1")?);
            Ok(it.route().add(route.build()).execute().await?)
        })?;
        far.enter(|| {
            with_netlink(async |it| {
                set_up(it, "lo", Some(SERVER.0.octets())).await?;
                set_up(it, "redfar", Some(GATEWAY.octets())).await?;
                add_default_route(it, Ipv4Addr::new(10, 0, 7, 1)).await
            })
        })?;
        site.enter(|| {
            with_netlink(async |it| {
                set_up(it, "tenant0", Some([10, 0, 1, 2])).await?;
                add_default_route(it, HERE.into()).await
            })
        })?;
        let listener = far.enter(|| TcpListener::bind(SERVER))?;
        thread::spawn(move || serve(&listener));
        Ok(Self { site })
    }

    fn connect(&self) -> Result<Connection> {
        Connection::open_in(&self.site)
    }

    fn remove(self) -> Result<()> {
        with_netlink(async |it| {
            for device in ["red0", "red1", VRF] {
                let index = nix::net::if_::if_nametoindex(device)?;
                it.link().del(index).execute().await?;
            }
            Ok(())
        })
    }
}
