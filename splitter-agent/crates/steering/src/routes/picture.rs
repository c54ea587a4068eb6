//! A picture of the main table (a copy of the kernel's RIB), kept up to date from the kernel's
//! notifications. Where they do not tell for certain what the table holds, it is read again.

use std::collections::{BTreeMap, HashMap};

use ipnet::IpNet;
use netlink_packet_route::route::{RouteHeader, RouteMessage};
use splitter_config::Config;
use splitter_netlink::{
    Addition, Family, Interfaces, Netlink, NetlinkError, NextHopObjects, RoutingEvent,
};

use super::main_table::{FoundRoute, MainRoute, RouteEgress, Tunnels};
use super::{destinations, snapshot};

const TABLE_MAIN: u32 = RouteHeader::RT_TABLE_MAIN as u32;

/// Holds the routes of the main table of both families, as far as they matter for what is split.
#[derive(Debug, Default)]
pub struct MainTables {
    v4: MainTable,
    v6: MainTable,
    objects: NextHopObjects,
}

/// The routes of a family.
#[derive(Debug, Default)]
struct MainTable {
    routes: BTreeMap<Key, EgressId>,
    egresses: Egresses,
    /// It was read, and nothing has come since that leaves doubt.
    is_certain: bool,
}

/// In the order in which the kernel prefers them, of one destination: by metric, and as it lists those
/// of the same metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    destination: IpNet,
    metric: u32,
    turn: u16,
}

/// A place in [`Egresses`].
type EgressId = u32;

/// Ten thousand routes lead to a handful of next hops: each is kept once.
#[derive(Debug, Default)]
struct Egresses {
    list: Vec<RouteEgress>,
    places: HashMap<RouteEgress, EgressId>,
}

impl MainTables {
    /// Takes in a notification.
    pub fn take(&mut self, event: RoutingEvent) {
        match event {
            RoutingEvent::Added { route, addition } => {
                if let Some((family, route)) = found(&route) {
                    // An object is listed first when a route has it.
                    if let RouteEgress::Object(id) = route.egress
                        && !self.objects.holds(id)
                    {
                        self.of_mut(family).is_certain = false;
                    }
                    self.of_mut(family).add(route, addition);
                }
            }
            RoutingEvent::Removed(route) => {
                if let Some((family, route)) = found(&route) {
                    self.of_mut(family).remove(&route);
                }
            }
            RoutingEvent::Other | RoutingEvent::Lost => self.doubt(),
        }
    }

    /// Has the tables read before they are used next.
    pub fn doubt(&mut self) {
        self.v4.is_certain = false;
        self.v6.is_certain = false;
    }

    /// Reads those tables that a configuration depends on and of which it is not known for certain what
    /// they hold. Notifications must have been listened to since before, and are taken in later.
    ///
    /// # Errors
    /// When the kernel does not list them; then they are read the next time.
    pub async fn refresh(
        &mut self,
        netlink: &Netlink,
        config: &Config,
    ) -> Result<(), NetlinkError> {
        for family in [Family::V4, Family::V6] {
            if self.of(family).is_certain || !destinations::depends_on_main(config, family) {
                continue;
            }
            let messages = snapshot::routes(netlink, family, TABLE_MAIN).await?;
            let mut table = MainTable::default();
            let routes = messages.iter().filter_map(|it| FoundRoute::of(it, family));
            routes.for_each(|route| table.append(route));
            table.is_certain = true;
            // Asked for only where the kernel leaves out what they stand for.
            if table.has_objects() {
                self.objects = NextHopObjects::read().map_err(|source| NetlinkError::Refused {
                    request: "list the next hop objects".to_owned(),
                    source,
                    explanation: None,
                })?;
            }
            *self.of_mut(family) = table;
        }
        Ok(())
    }

    /// The routes of a family that packets take, one for each destination, in order.
    pub(super) fn in_use(
        &self,
        config: &Config,
        interfaces: &Interfaces,
        family: Family,
    ) -> Vec<MainRoute> {
        let table = self.of(family);
        let tunnels = Tunnels::of(config, interfaces, family);
        let egresses = table.egresses.list.iter();
        let sites: Vec<_> = egresses
            .map(|it| tunnels.site_of(it, &self.objects))
            .collect();
        let mut routes: Vec<MainRoute> = Vec::with_capacity(table.routes.len());
        for (key, egress) in &table.routes {
            let is_taken = |last: &MainRoute| last.destination == key.destination;
            if routes.last().is_none_or(|last| !is_taken(last)) {
                routes.push(MainRoute {
                    destination: key.destination,
                    by_tunnel_to: sites[*egress as usize],
                });
            }
        }
        routes
    }

    const fn of(&self, family: Family) -> &MainTable {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    const fn of_mut(&mut self, family: Family) -> &mut MainTable {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }
}

/// A route of a notification; none where it does not matter.
fn found(message: &RouteMessage) -> Option<(Family, FoundRoute)> {
    let family = super::message::family(message.header.address_family)?;
    Some((family, FoundRoute::of(message, family)?))
}

impl MainTable {
    /// What was read earlier may hold more than a notification from before: then it is as it was, and
    /// later notifications lead to what was read.
    fn add(&mut self, route: FoundRoute, addition: Addition) {
        if !self.is_certain {
            return;
        }
        let FoundRoute {
            destination,
            metric,
            egress,
        } = route;
        let there = self.keys(destination, metric);
        let egress = self.egresses.place(egress);
        match (addition, &there[..]) {
            (Addition::Only, others) => {
                for key in others {
                    self.routes.remove(key);
                }
            }
            (Addition::Replacement, [] | [_]) => {}
            // Of IPv6 routes with several next hops the kernel does not tell whether they are the only
            // ones.
            (Addition::Further, []) if destination.addr().is_ipv6() => {}
            (Addition::Further, [only])
                if destination.addr().is_ipv6() && self.routes.get(only) == Some(&egress) => {}
            // It may come before or after the others.
            _ => {
                self.is_certain = false;
                return;
            }
        }
        let turn = 0;
        let key = Key {
            destination,
            metric,
            turn,
        };
        self.routes.insert(key, egress);
    }

    fn remove(&mut self, route: &FoundRoute) {
        if !self.is_certain {
            return;
        }
        let there = self.keys(route.destination, route.metric);
        match &there[..] {
            [] => {}
            [only] if self.egress_of(only) == Some(&route.egress) => {
                self.routes.remove(only);
            }
            // One of several, or one next hop of a route.
            _ => self.is_certain = false,
        }
    }

    /// Adds a route as the kernel lists it, after others of its destination and metric.
    fn append(&mut self, route: FoundRoute) {
        let FoundRoute {
            destination,
            metric,
            egress,
        } = route;
        let there = self.keys(destination, metric);
        let turn = there.last().map_or(0, |last| last.turn.saturating_add(1));
        let egress = self.egresses.place(egress);
        let key = Key {
            destination,
            metric,
            turn,
        };
        self.routes.insert(key, egress);
    }

    fn keys(&self, destination: IpNet, metric: u32) -> Vec<Key> {
        let key = |turn| Key {
            destination,
            metric,
            turn,
        };
        let there = self.routes.range(key(0)..=key(u16::MAX));
        there.map(|(key, _)| *key).collect()
    }

    fn egress_of(&self, key: &Key) -> Option<&RouteEgress> {
        let place = *self.routes.get(key)?;
        self.egresses.list.get(place as usize)
    }

    fn has_objects(&self) -> bool {
        let mut egresses = self.egresses.list.iter();
        egresses.any(|it| matches!(it, RouteEgress::Object(_)))
    }
}

impl Egresses {
    fn place(&mut self, egress: RouteEgress) -> EgressId {
        if let Some(place) = self.places.get(&egress) {
            return *place;
        }
        // As many as came since the table was read, at most.
        let place = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        self.list.push(egress.clone());
        self.places.insert(egress, place);
        place
    }
}

#[cfg(test)]
mod tests;
