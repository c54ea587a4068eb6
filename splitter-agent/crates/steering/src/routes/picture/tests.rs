use proptest::prelude::*;

use super::*;

fn route(destination: &str, metric: u32, device: u32) -> FoundRoute {
    FoundRoute {
        destination: destination.parse().unwrap(),
        metric,
        egress: RouteEgress::Hops(vec![super::super::main_table::Way {
            device,
            gateway: None,
        }]),
    }
}

/// A table that was read, with these routes.
fn table(routes: &[FoundRoute]) -> MainTable {
    let mut table = MainTable {
        is_certain: true,
        ..MainTable::default()
    };
    routes.iter().for_each(|it| table.append(it.clone()));
    table
}

/// What it holds, in order.
fn contents(table: &MainTable) -> Vec<FoundRoute> {
    let routes = table.routes.keys().map(|key| FoundRoute {
        destination: key.destination,
        metric: key.metric,
        egress: table.egress_of(key).unwrap().clone(),
    });
    routes.collect()
}

#[test]
fn notifications_lead_to_what_the_kernel_has() {
    let mut table = table(&[route("10.2.0.0/16", 0, 3)]);
    table.add(route("10.3.0.0/16", 0, 3), Addition::Only);
    table.add(route("10.2.0.0/16", 20, 4), Addition::Only);
    table.add(route("10.3.0.0/16", 0, 5), Addition::Replacement);
    table.remove(&route("10.2.0.0/16", 0, 3));
    assert!(table.is_certain);
    let expected = [route("10.2.0.0/16", 20, 4), route("10.3.0.0/16", 0, 5)];
    assert_eq!(contents(&table), expected);
}

#[test]
fn what_notifications_leave_open_is_read_again() {
    let (near, far) = (route("10.2.0.0/16", 0, 3), route("10.2.0.0/16", 0, 4));
    let doubtful: [&dyn Fn(&mut MainTable); 3] = [
        // It may come before or after the other one.
        &|table| table.add(far.clone(), Addition::Further),
        // It is not known which of two it replaces.
        &|table| {
            table.append(far.clone());
            table.add(route("10.2.0.0/16", 0, 5), Addition::Replacement);
        },
        // One next hop of a route with several.
        &|table| table.remove(&far),
    ];
    for change in doubtful {
        let mut table = table(std::slice::from_ref(&near));
        change(&mut table);
        assert!(!table.is_certain);
    }
}

#[test]
fn lost_notification_and_what_has_none_of_its_own_have_the_tables_read_again() {
    for event in [RoutingEvent::Lost, RoutingEvent::Other] {
        let mut tables = MainTables::default();
        (tables.v4.is_certain, tables.v6.is_certain) = (true, true);
        tables.take(event);
        assert!(!tables.v4.is_certain && !tables.v6.is_certain);
    }
}

#[test]
fn route_with_the_lowest_metric_is_in_use() {
    let v4 = table(&[
        route("10.2.0.0/16", 200, 3),
        route("10.2.0.0/16", 20, 9),
        route("10.3.0.0/16", 20, 3),
        route("10.3.0.0/16", 200, 9),
    ]);
    let tables = MainTables {
        v4,
        ..MainTables::default()
    };
    let text = "lan = 'eth0'\n[short]\ndevice = 'a'\n[long]\ndevice = 'b'\n";
    let config = Config::parse(text, "test").unwrap();
    let interface = splitter_netlink::Interface {
        index: 3,
        name: "a".to_owned(),
        ..splitter_netlink::Interface::default()
    };
    let interfaces = [interface].into_iter().collect();
    let routes = tables.in_use(&config, &interfaces, Family::V4);
    let sites: Vec<_> = routes.iter().map(|it| it.by_tunnel_to).collect();
    assert_eq!(sites, [None, Some(0)]);
}

/// A change of one of few routes: added where there was none, replaced, or removed.
#[derive(Debug, Clone)]
struct Step {
    destination: u8,
    device: Option<u32>,
}

fn any_step() -> impl Strategy<Value = Step> {
    (0..4_u8, proptest::option::of(3..6_u32)).prop_map(|(destination, device)| Step {
        destination,
        device,
    })
}

proptest! {
    /// A reading holds some of the changes already whose notifications are taken in after it.
    #[test]
    fn whenever_the_table_is_read_the_picture_ends_as_the_kernel_has_it(
        steps in proptest::collection::vec(any_step(), 1..30),
        heard_from in 0..30_usize,
        read_after in 0..30_usize,
    ) {
        let mut kernel: BTreeMap<u8, u32> = BTreeMap::new();
        let mut notifications = Vec::new();
        let mut picture = table(&[]);
        let named = |destination, device| route(&format!("10.{destination}.0.0/16"), 0, device);
        for (number, Step { destination, device }) in steps.iter().enumerate() {
            if number == read_after.max(heard_from) {
                let routes: Vec<_> = kernel.iter().map(|(net, device)| named(*net, *device)).collect();
                picture = table(&routes);
            }
            let (notification, is_sent) = match (device, kernel.get(destination).copied()) {
                (Some(device), Some(_)) => {
                    kernel.insert(*destination, *device);
                    (Ok((named(*destination, *device), Addition::Replacement)), true)
                }
                (Some(device), None) => {
                    kernel.insert(*destination, *device);
                    (Ok((named(*destination, *device), Addition::Only)), true)
                }
                (None, Some(device)) => {
                    kernel.remove(destination);
                    (Err(named(*destination, device)), true)
                }
                (None, None) => (Err(named(*destination, 0)), false),
            };
            if is_sent && number >= heard_from {
                notifications.push(notification);
            }
        }
        if steps.len() <= read_after.max(heard_from) {
            let routes: Vec<_> = kernel.iter().map(|(net, device)| named(*net, *device)).collect();
            picture = table(&routes);
        }
        for notification in notifications {
            match notification {
                Ok((route, addition)) => picture.add(route, addition),
                Err(route) => picture.remove(&route),
            }
        }
        let expected: Vec<_> = kernel.iter().map(|(net, device)| named(*net, *device)).collect();
        prop_assert!(!picture.is_certain || contents(&picture) == expected, "{:?}", contents(&picture));
    }
}
