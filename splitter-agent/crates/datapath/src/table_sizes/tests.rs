use proptest::prelude::*;
use splitter_config::Config;

use super::*;

const MIB: u64 = 1 << 20;

fn sizing(flows: &str, memory_bytes: u64) -> TableSizing {
    let text =
        format!("lan = 'eth0'\n[short]\ndevice = 'a'\n[long]\ndevice = 'b'\n[flows]\n{flows}\n");
    let config = Config::parse(&text, "test").unwrap();
    let memory = UsableMemory {
        machine_bytes: memory_bytes,
        limit_bytes: None,
    };
    TableSizing::new(&config.flows, Some(memory))
}

const fn sizes(ipv4: u32, ipv6: u32) -> TableSizes {
    TableSizes { ipv4, ipv6 }
}

#[test]
fn tables_take_a_hundredth_of_the_memory_until_they_hold_a_million_flows() {
    let initial = |memory| sizing("", memory).wanted(None);
    assert_eq!(initial(128 * MIB), sizes(13_624, 3_404));
    assert_eq!(initial(1 << 30), sizes(109_008, 27_252));
    for memory in [16 << 30, 1 << 40] {
        assert_eq!(initial(memory), sizes(1 << 20, 1 << 18));
    }
    // A group of each family with its tags: 264 and 520 bytes.
    assert_eq!(sizes(4, 4).bytes(), 264 + 520);
    assert_eq!(sizes(1 << 20, 1 << 18).bytes(), 98 * MIB + MIB / 2);
    assert_eq!(initial(MIB), sizes(1_024, 256));
    assert_eq!(
        TableSizing::new(
            &Config::parse(
                "lan = 'eth0'\n[short]\ndevice = 'a'\n[long]\ndevice = 'b'\n",
                "test",
            )
            .unwrap()
            .flows,
            None
        )
        .wanted(None),
        initial(128 * MIB)
    );
}

#[test]
fn stated_sizes_win_over_memory_and_over_what_is_loaded() {
    let loaded = Some(sizes(40_000, 40_000));
    for memory in [MIB, 1 << 40] {
        let wanted = |flows| sizing(flows, memory).wanted(loaded);
        assert_eq!(wanted("table_size = 4096"), sizes(4_096, 4_096));
        assert_eq!(wanted("table_size = 4097"), sizes(4_100, 4_100));
        let both = "table_size = 4096\ntable_size_ipv6 = 65536";
        assert_eq!(wanted(both), sizes(4_096, 65_536));
    }
    let ipv6 = sizing("table_size_ipv6 = 65536", 1 << 34);
    assert_eq!(ipv6.wanted(None), sizes(1 << 20, 65_536));
    assert_eq!(ipv6.wanted(loaded), sizes(40_000, 65_536));
}

/// Or a look at it from outside the agent's container, where memory is another, would change it.
#[test]
fn loaded_tables_stay_while_they_take_no_more_than_they_may_grow_to() {
    for memory in [128 * MIB, 1 << 40] {
        let kept = sizes(20_000, 8);
        assert_eq!(sizing("", memory).wanted(Some(kept)), kept);
    }
    let much = sizes(1 << 20, 1 << 20);
    let small = sizing("", 128 * MIB);
    assert_eq!(small.wanted(Some(much)), small.wanted(None));
}

#[test]
fn table_that_is_full_doubles_until_the_bound_and_no_other_does() {
    let router = sizing("", 128 * MIB);
    let full = |of: &[Family], sizes: TableSizes| {
        let of = of.to_vec();
        move |family| {
            if of.contains(&family) {
                u64::from(sizes.of(family)) * 3 / 4
            } else {
                0
            }
        }
    };
    let start = router.wanted(None);
    let grow = |of: &[Family], from| router.grown(from, full(of, from));
    assert_eq!(grow(&[], start), None);
    let (v4, v6) = (&[Family::V4][..], &[Family::V6][..]);
    assert_eq!(grow(v6, start), Some(sizes(13_624, 6_808)));
    let once = grow(v4, start).unwrap();
    assert_eq!(once, sizes(27_248, 3_404));
    let twice = grow(v4, once).unwrap();
    assert_eq!(twice, sizes(54_496, 3_404));
    let last = grow(v4, twice).unwrap();
    assert!(last.ipv4 > 54_496 && last.ipv4 < 109_008, "{last:?}");
    assert_eq!(grow(v4, last), None);
    assert!(!router.may_grow(last, Family::V4) && router.may_grow(start, Family::V6));
    // One flow less than three quarters is not full.
    assert_eq!(router.grown(start, |_| u64::from(start.ipv6) / 2), None);
}

#[test]
fn stated_tables_and_those_that_must_not_do_not_grow() {
    let full = |_| 1 << 30;
    let start = sizes(16, 16);
    assert_eq!(sizing("table_size = 16", 1 << 40).grown(start, full), None);
    assert_eq!(
        sizing("table_growth_percent = 0", 1 << 40).grown(start, full),
        None
    );
    let ipv4 = sizing("table_size_ipv6 = 16", 1 << 40).grown(start, full);
    assert_eq!(ipv4, Some(sizes(32, 16)));
}

proptest! {
    #[test]
    fn no_table_takes_more_than_it_may(
        memory in 64 * MIB..1 << 40,
        percent in 0u32..=50,
        ipv4 in 4u32..1 << 22,
        ipv6 in 4u32..1 << 22,
        entries in (0u64..1 << 23, 0u64..1 << 23),
    ) {
        let sizing = sizing(&format!("table_growth_percent = {percent}"), memory);
        let loaded = TableSizes::new(ipv4, ipv6);
        let wanted = sizing.wanted(Some(loaded));
        prop_assert!(wanted.bytes() <= sizing.most_bytes());
        prop_assert!(sizing.wanted(None).bytes() <= memory / 100);
        prop_assert!(sizing.most_bytes() <= memory / 100 * u64::from(percent.max(1)));
        let of = |family| if family == Family::V4 { entries.0 } else { entries.1 };
        if let Some(grown) = sizing.grown(wanted, of) {
            prop_assert!(grown.bytes() <= sizing.most_bytes());
            prop_assert!(grown.ipv4 >= wanted.ipv4 && grown.ipv6 >= wanted.ipv6);
            // What grew is what the next plan leaves as it is.
            prop_assert_eq!(sizing.wanted(Some(grown)), grown);
        }
    }
}
