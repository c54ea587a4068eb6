//! Slow flows as exemplars of the completion times.

use crate::support::site;
use std::thread::sleep;
use std::time::Duration;

use flow_telemetry::docs;
use site::{Connection, Site, on_site};

/// Between two bounds of buckets, 4.3 and 6.4 s, and more than a sweep behind the first.
const SLOW: Duration = Duration::from_millis(5_450);
/// The kernel counts ticks, and misses those of a processor that the host has taken away until it is back:
/// 0.12 s were seen. A time that is not the last packet's is off by all of `SLOW`.
const TICKS_MISSED: Duration = Duration::from_secs(1);
/// A sweep that comes late, on a busy machine, leaves bounds that are too far apart.
const ATTEMPTS: u32 = 4;

#[test]
fn slow_flow_is_an_exemplar_of_the_bucket_that_the_kernel_counts_it_in() {
    on_site(|site| {
        site.configure("[flows]\nsweep_interval_s = 1\ntable_size = 4096\n");
        let _daemon = site.run();
        let flow = (0..ATTEMPTS).find_map(|_| {
            let mut connection = Connection::open(&site.topology);
            connection.send(1_000);
            sleep(SLOW);
            connection.close();
            // Two sweeps.
            sleep(Duration::from_secs(2));
            exemplar(site)
        });
        let flow = flow.expect("an exemplar");
        let is_name = flow.len() == 16 && flow.bytes().all(|it| it.is_ascii_hexdigit());
        assert!(is_name, "{flow}");
    });
}

/// The name of the flow that is shown, if there is one.
fn exemplar(site: &Site) -> Option<String> {
    let (_, text) = site.get("/metrics").expect("it answers");
    let families = docs::parse_exposition(&text).expect("it is OpenMetrics");
    let name = "splitter_flow_completion_seconds";
    let family = families.iter().find(|it| it.name == name)?;
    let buckets = family.samples.iter().filter(|it| {
        it.name.ends_with("_bucket") && it.labels.get("class").is_some_and(|it| it == "short")
    });
    let (mut below, mut counted, mut flow) = (0.0, 0.0, None);
    for bucket in buckets {
        let bound: f64 = bucket.labels["le"].parse().expect("a bound");
        if let Some(exemplar) = &bucket.exemplar {
            assert!((below..=bound).contains(&exemplar.value), "{bucket:?}");
            assert!(bucket.value > counted, "none is counted here: {bucket:?}");
            let took = Duration::from_secs_f64(exemplar.value);
            assert!(took + TICKS_MISSED >= SLOW, "{bucket:?}");
            assert!(exemplar.unix_s > Some(1.7e9), "{bucket:?}");
            let names: Vec<&str> = exemplar.labels.keys().map(String::as_str).collect();
            assert_eq!(names, ["bytes", "flow", "packets"]);
            flow = Some(exemplar.labels["flow"].clone());
        }
        (below, counted) = (bound, bucket.value);
    }
    flow
}
