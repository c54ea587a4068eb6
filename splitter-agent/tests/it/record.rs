//! `splitter record`: a file that says what passed.

use std::net::IpAddr;
use std::path::Path;

use flow_recording::{FlowEnd, FlowRecord, Header, Reader};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::daemon::Daemon;
use crate::support::site::{Connection, Site, on_site};

/// Starts recording, and returns when the first look is over.
fn record(site: &Site, arguments: &[&str]) -> Daemon {
    let output = site.path("day.flows").display().to_string();
    let all = [&["record", "--output", &output, "-i", "0.2"], arguments].concat();
    let recorder = Daemon::start(site.command(&all), &site.path("record.log"));
    site.wait_for("recording", || {
        recorder.log().contains("recording flows").then_some(())
    });
    recorder
}

fn read(path: &Path) -> (Header, Vec<FlowRecord>) {
    let reader = Reader::open(path).expect("a recording");
    let header = reader.header().clone();
    let flows = reader.collect::<Result<_, _>>();
    (header, flows.expect("a whole recording"))
}

/// Payload is known but for options of TCP, and what is sent again passes the border again.
fn is_about(counted: u64, payload: u64) -> bool {
    (payload.saturating_sub(200)..=payload + 200 + payload / 5).contains(&counted)
}

#[test]
fn recording_says_what_passed_and_nothing_of_who() {
    on_site(|site| {
        site.configure("");
        assert!(site.splitter(&["up"]).status.success());
        let (client, server) = (&site.topology.client, &site.topology.server);
        let mut before = Connection::open(&site.topology);
        before.send(500_000);
        let path = site.path("day.flows");
        let recorder = record(site, &[]);

        before.send(50_000);
        let mut download = Connection::open(&site.topology);
        download.send(2_000);
        download.answer(300_000);
        download.close();
        if let Some(address) = server.ipv6 {
            let mut upload = Connection::over(client, server, IpAddr::from(address));
            upload.send(100_000);
            upload.close();
        }
        let mut open = Connection::open(&site.topology);
        open.send(10_000);
        // The table has been looked at since.
        std::thread::sleep(std::time::Duration::from_millis(500));
        assert!(!path.exists(), "it is not whole yet");
        assert!(recorder.end(Signal::SIGINT).success());

        let (header, mut flows) = read(&path);
        assert_eq!(
            (header.threshold, header.rates_mbit),
            (40, Some([100, 100]))
        );
        assert_eq!(header.unseen, flow_recording::Unseen::default());
        assert!(flows.is_sorted_by_key(|it| it.start_us));
        flows.sort_by_key(FlowRecord::payload_out);
        let [download, open, before, upload] = &flows[..] else {
            panic!("four flows: {flows:?}");
        };
        for (flow, out, end) in [
            (download, 2_000, FlowEnd::Finished),
            (open, 10_000, FlowEnd::Open),
            (before, 50_000, FlowEnd::Open),
            (upload, 100_000, FlowEnd::Finished),
        ] {
            assert!(is_about(flow.payload_out(), out), "{out}: {flow:?}");
            assert_eq!(flow.end, end, "{flow:?}");
            assert_eq!(flow.began_before, out == 50_000, "{flow:?}");
        }
        assert!(is_about(download.payload_back(), 300_000), "{download:?}");
        assert!(upload.is_ipv6 && upload.is_long && !open.is_long);
        let bytes = std::fs::read(&path).expect("it is there");
        let address = client.ipv4.octets();
        assert!(!bytes.windows(4).any(|it| it == address), "an address");

        let advice = site.json(&["advise", "--recording", &path.display().to_string()]);
        assert_eq!(advice["verdict"], "too_few_flows");
        assert_eq!(advice["flows"], 3.0, "without the one that began before");
    });
}

#[test]
fn recording_ends_by_itself_and_counts_what_it_missed() {
    on_site(|site| {
        site.configure("[flows]\ntable_size = 4096\n");
        assert!(site.splitter(&["up"]).status.success());
        let recorder = record(site, &["--for", "3s", "--json"]);
        let mut connection = Connection::open(&site.topology);
        connection.send(1_000);
        // A third of the time without an instance, whose flows are forgotten.
        std::thread::sleep(std::time::Duration::from_millis(400));
        assert!(site.splitter(&["down"]).status.success());
        std::thread::sleep(std::time::Duration::from_millis(800));
        assert!(site.splitter(&["up"]).status.success());
        assert!(recorder.wait().success());
        let log = recorder.log();
        let json = log.find("{\n").expect("an object");
        let said: Value = serde_json::from_str(&log[json..]).expect("JSON");
        let (header, flows) = read(&site.path("day.flows"));
        assert_eq!(said["flows"], header.flows);
        assert!((3_000_000..4_000_000).contains(&header.duration_us));
        let blind_us = header.unseen.blind_us;
        // An instance that comes up on a busy machine takes longer.
        assert!(
            (600_000..=header.duration_us).contains(&blind_us),
            "{blind_us}"
        );
        assert_eq!(said["unseen"]["blind_us"], blind_us);
        let ends: Vec<_> = flows.iter().map(|it| it.end).collect();
        assert_eq!(ends, [FlowEnd::Vanished]);
        assert_eq!(header.unseen.vanished, 1);
    });
}
