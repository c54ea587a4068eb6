//! Values of keys that are refused: transports, policies and Cloudburst.

use netsim::{Overrides, Source};

use crate::{scenarios::GOOD, support::error};

#[test]
fn what_is_said_of_cloudburst_is_checked() {
    let transport = |text: &str| {
        GOOD.replace("sizes = 'web_search_xpass'", "sizes = 5000")
            .replace("[fabric]", &format!("{text}\n[fabric]"))
    };
    let paper = "transport = { control = 'cloudburst', cloudburst = { mode = 'paper' } }";
    let cloudburst = |text: &str| format!("transport.cloudburst = {{ {text} }}");
    for (text, told) in [
        (cloudburst("paths = 0"), "transport.cloudburst.paths = 0"),
        (cloudburst("share = 0"), "transport.cloudburst.share = 0"),
        (
            cloudburst("share = 1.5"),
            "transport.cloudburst.share = 1.5",
        ),
        (
            cloudburst("encode_ns = 2_000_000_000"),
            "transport.cloudburst.encode_ns",
        ),
        (cloudburst("mode = 'fast'"), "unknown variant `fast`"),
        (cloudburst("routes = 3"), "unknown field `routes`"),
        (
            cloudburst("schedule = 'uniform'"),
            "transport.cloudburst.schedule",
        ),
        (
            "transport = { control = 'cloudburst', replicas = 2 }".to_owned(),
            "transport.control = \"cloudburst\": it has no flows",
        ),
        (
            "background_transport.control = 'cloudburst'".to_owned(),
            "background_transport.control",
        ),
        (
            "background_transport.mss_bytes = 1".to_owned(),
            "background_transport.mss_bytes = 1",
        ),
        (
            "transport.pace = { bytes = 100, every_us = 1 }".to_owned(),
            "transport.pace.bytes = 100",
        ),
        (
            "transport.pace = { bytes = 2000, every_us = 0 }".to_owned(),
            "transport.pace.every_us = 0",
        ),
        (
            "transport.priority = 8".to_owned(),
            "transport.priority = 8",
        ),
    ] {
        let error = error(&transport(&text));
        assert!(error.contains(told), "{told} is not in: {error}");
    }
    let large = transport(paper).replace("sizes = 5000", "sizes = 93_441");
    let told = error(&large);
    assert!(
        told.contains("traffic[0]: bytes = 93441") && told.contains("93440"),
        "{told}"
    );
    let request =
        transport(paper).replace("messages = 10", "messages = 10\nrequest_bytes = 100_000");
    assert!(error(&request).contains("traffic[0].request_bytes = 100000"));
    let workload = GOOD.replace("[fabric]", &format!("{paper}\n[fabric]"));
    assert!(error(&workload).contains("Cloudburst carries messages of up to 93440 bytes"));
}

#[test]
fn settings_of_policies_are_checked() {
    let balance =
        |text: &str| GOOD.replace("[fabric]", &format!("balance = {{ {text} }}\n[fabric]"));
    for (text, told) in [
        ("policy = 'fastest'", "unknown variant `fastest`"),
        ("letflow_gap_us = -1", "balance.letflow_gap_us = -1"),
        ("tr = { guard_us = nan }", "balance.tr.guard_us"),
        ("tr = { slack_us = 1e12 }", "balance.tr.slack_us"),
        ("tr = { grd_us = 1 }", "unknown field `grd_us`"),
    ] {
        let error = error(&balance(text));
        assert!(error.contains(told), "{told} is not in: {error}");
    }
}

#[test]
fn transports_and_the_rest_are_checked_too() {
    let transport =
        |text: &str| GOOD.replace("[fabric]", &format!("transport = {{ {text} }}\n[fabric]"));
    for (text, key) in [
        ("initial_window = 0", "transport.initial_window = 0"),
        (
            "mss_bytes = 65_000",
            "transport.mss_bytes + header_bytes = 65040",
        ),
        ("mss_bytes = 1", "transport.mss_bytes = 1"),
        ("replicas = 2, subflows = 2", "transport.replicas"),
        ("subflows = 100", "transport.subflows = 100"),
        ("pias_bytes = [2, 1]", "transport.pias_bytes"),
        ("rto_min_us = 0", "transport.rto_min_us = 0"),
    ] {
        let error = error(&transport(text));
        assert!(error.contains(key), "{key} is not in: {error}");
    }
    let error = error(
        "about = 'x'\ntraffic = []\n[fabric]\nleaves=1\nspines=1\nhosts_per_leaf=2\nhost_gbps=1\nuplink_gbps=1\nlink_delay_us=1",
    );
    assert!(error.contains("nothing is sent"), "{error}");
    let missing = Source::find("no-such-scenario")
        .expect_err("there is none")
        .to_string();
    assert!(missing.contains("no-such-scenario") && missing.contains("netsim list"));
}

/// The laboratory has it, and the message says so.
#[test]
fn mode_paper_needs_a_machine_that_is_given() {
    let source = Source::find("cloudburst-testbed").expect("it is built in");
    let overrides = Overrides {
        scheme: Some("cloudburst".to_owned()),
        ..Overrides::default()
    };
    let error = source.experiment(&overrides).expect_err("it has none");
    let told = error.to_string();
    assert!(told.contains("cloudburst.mode = \"paper\""), "{told}");
    assert!(told.contains("cargo xtask reproduce"), "{told}");
    let source = source.with_paper_machine(paper_machine::simulated);
    assert!(source.experiment(&overrides).is_ok());
}
