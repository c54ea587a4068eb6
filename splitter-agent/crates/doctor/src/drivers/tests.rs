use std::fmt::Write as _;
use std::path::Path;

use super::*;
use crate::Status;

const CPUS: u32 = 8;

fn check(driver: &str, mtu: u32, kernel: Version, channels: Option<(u32, u32)>) -> Vec<Check> {
    let interface = Interface {
        name: "lan0".to_owned(),
        mtu,
        ..Interface::default()
    };
    judge(&Device {
        interface: &interface,
        driver,
        features: DeviceFeatures::default(),
        channels: channels.map(|(combined, most_combined)| Channels {
            combined,
            most_combined,
        }),
        cpus: CPUS,
        kernel,
        redirects: true,
    })
}

#[test]
fn mtu_beyond_one_buffer_needs_a_driver_and_a_kernel_that_take_several() {
    for driver in DRIVERS {
        let mtu = |mtu, kernel| check(driver.name, mtu, kernel, None)[0].clone();
        let one = driver.one_buffer_mtu;
        assert_eq!(mtu(one, (6, 1)).status, Status::Ok, "{}", driver.name);
        let old = mtu(one + 1, (5, 15));
        assert_eq!(old.status, Status::Fail, "{}", driver.name);
        let remedy = old.remedy.expect("there is one");
        assert!(
            remedy.contains(&format!("ip link set lan0 mtu {one}")),
            "{remedy}"
        );
        let new = mtu(one + 1, (6, 12));
        let expected = match driver.several_buffers {
            Some(_) => Status::Ok,
            None => Status::Fail,
        };
        assert_eq!(new.status, expected, "{}", driver.name);
        if let Some((major, minor)) = driver.several_buffers {
            assert!(
                remedy.contains(&format!("Linux {major}.{minor} or later")),
                "{remedy}"
            );
            assert_eq!(mtu(9_000, (major, minor)).status, Status::Ok);
            let just_before = (major, minor - 1);
            assert_eq!(
                mtu(9_000, just_before).status,
                Status::Fail,
                "{}",
                driver.name
            );
        }
    }
    assert!(check("r8169", 9_000, (6, 12), None).is_empty());
}

#[test]
fn queues_that_are_too_few_or_too_many_are_named_with_the_command() {
    let queues = |driver, in_use, most| {
        let checks = check(driver, 1_500, (6, 12), Some((in_use, most)));
        let check = checks.into_iter().nth(1).expect("queues are looked at");
        (check.status, check.remedy.unwrap_or_default())
    };
    let set = |count: u32| format!("ethtool -L lan0 combined {count}");
    assert_eq!(queues("virtio_net", 8, 16).0, Status::Ok);
    assert_eq!(queues("virtio_net", 8, 12), (Status::Warn, set(4)));
    let host = (Status::Warn, "have the host offer 16 queues".to_owned());
    assert_eq!(queues("virtio_net", 8, 8), host);
    assert_eq!(queues("ena", 4, 8).0, Status::Ok);
    assert_eq!(queues("ena", 8, 8), (Status::Fail, set(4)));
    assert_eq!(queues("mlx5_core", 8, 16).0, Status::Ok);
    assert_eq!(queues("mlx5_core", 4, 16), (Status::Warn, set(8)));
    let (status, remedy) = queues("i40e", 4, 4);
    assert_eq!(status, Status::Warn);
    assert!(remedy.contains("CPUs 0 to 3"), "{remedy}");
    assert_eq!(queues("bnxt_en", 8, 8).0, Status::Ok);
    let (status, remedy) = queues("bnxt_en", 0, 16);
    assert_eq!(
        (status, remedy.as_str()),
        (Status::Fail, "ethtool -L lan0 combined 8 rx 0 tx 0")
    );
}

#[test]
fn hardware_that_merges_packets_is_named_where_the_driver_refuses_it() {
    for (driver, found) in [("mlx5_core", 1), ("ice", 0)] {
        let interface = Interface {
            name: "lan0".to_owned(),
            mtu: 1_500,
            ..Interface::default()
        };
        let checks = judge(&Device {
            interface: &interface,
            driver,
            features: DeviceFeatures {
                hardware_gro: Some(true),
                ..DeviceFeatures::default()
            },
            channels: None,
            cpus: CPUS,
            kernel: (6, 12),
            redirects: false,
        });
        let failed = checks.iter().filter(|it| it.status == Status::Fail);
        assert_eq!(failed.count(), found, "{driver}: {checks:?}");
    }
}

fn grouped(number: u32) -> String {
    match number {
        ..1_000 => number.to_string(),
        _ => format!("{},{:03}", number / 1_000, number % 1_000),
    }
}

fn table() -> String {
    let mut table = String::from(
        "| driver | MTU in one buffer | several buffers | queues | what to set | tried here |\n|---|---|---|---|---|---|\n",
    );
    for it in DRIVERS {
        let several = match (it.several_buffers, it.several_buffers_mtu) {
            (Some((major, minor)), Some(mtu)) => {
                format!("since Linux {major}.{minor}, up to {}", grouped(mtu))
            }
            (Some((major, minor)), None) => {
                format!("since Linux {major}.{minor}, up to what the device takes")
            }
            (None, _) => "no".to_owned(),
        };
        let one = grouped(it.one_buffer_mtu);
        writeln!(
            table,
            "| `{}` | {one} | {several} | {} | {} | {} |",
            it.name, it.queue_rule, it.settings, it.tried
        )
        .unwrap();
    }
    table.push_str("\n| driver | where the kernel's sources say so |\n|---|---|\n");
    for it in DRIVERS {
        writeln!(table, "| `{}` | {} |", it.name, it.source).unwrap();
    }
    table
}

/// `UPDATE=1` writes it.
#[test]
fn page_is_what_the_table_of_drivers_says() {
    const MARKS: [&str; 2] = ["<!-- drivers -->\n", "<!-- end of drivers -->\n"];
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/src/reference/drivers.md");
    if !page.exists() {
        // A package on its own has no book.
        return;
    }
    let text = std::fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once(MARKS[0]).expect("it begins there");
    let (_, after) = rest.split_once(MARKS[1]).expect("it ends there");
    let wanted = format!("{before}{}\n{}\n{}{after}", MARKS[0], table(), MARKS[1]);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&page, &wanted).unwrap();
        return;
    }
    assert!(
        text == wanted,
        "write it by UPDATE=1 cargo test -p splitter-doctor page_is_what"
    );
}
