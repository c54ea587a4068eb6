//! Connections with both of their directions, at a site that downloads.

use crate::support::daemon::Daemon;
use crate::support::datagrams::Datagrams;
use crate::support::site;
use std::net::IpAddr;

use flow_testbed::require;
use flow_testbed::require::Requirement::Program;
use flow_testbed::topology::{Host, LAN, TUNNELS};
use nix::sys::signal::Signal;
use serde_json::Value;
use site::{Connection, Site, on_site, stdout};

/// Much more than the request and the acknowledgements.
const BYTES: u64 = 2_000_000;
/// At most so much of a transfer are headers and what is sent again.
const HEADERS: f64 = 0.1;

fn is_about(counted: u64, payload: u64) -> bool {
    let most = payload + (payload as f64 * HEADERS) as u64;
    (payload..most).contains(&counted)
}

/// Brings the instance up; packets that come back are counted from then on.
fn up(site: &Site, changes: &str) {
    site.configure(changes);
    assert!(site.splitter(&["up"]).status.success());
}

/// A download over each family, and what is shown of them.
fn downloads(site: &Site) -> Vec<Value> {
    let (client, server) = (&site.topology.client, &site.topology.server);
    let addresses = [Some(server.ipv4.into()), server.ipv6.map(IpAddr::from)];
    let of_each = addresses.into_iter().flatten().map(|address| {
        let mut connection = Connection::over(client, server, address);
        connection.send(1_000);
        connection.answer(BYTES as usize);
        let flow = site.flow_from(connection.port());
        connection.close();
        flow
    });
    of_each.collect()
}

fn check_downloads(site: &Site) {
    let flows = downloads(site);
    assert_eq!(flows.len(), 2, "both families");
    for flow in flows {
        let reverse = &flow["reverse"];
        let bytes = reverse["bytes"].as_u64().expect("it was seen");
        assert!(is_about(bytes, BYTES), "{flow}");
        // Segments, not aggregates: of some 1,448 bytes at most.
        assert!(reverse["packets"].as_u64() >= Some(BYTES / 1_500), "{flow}");
        assert_eq!(flow["fills"], "in", "{flow}");
        assert!(flow["bytes"].as_u64() < Some(BYTES / 4), "{flow}");
    }
}

#[test]
fn download_is_shown_with_what_came_back_and_fills_the_tunnel_inwards() {
    on_site(|site| {
        up(site, "");
        check_downloads(site);
        // The far border sends all by the first tunnel, until it is told otherwise.
        let by = |site: &Site| downloads(site)[0]["reverse"]["tunnel"].clone();
        assert_eq!(by(site), "short");
        let far = &site.topology.borders[1];
        let (client, gateway) = (site.topology.client.ipv4, far.gateways[1]);
        let route = format!("ip route add {client}/32 via {gateway} dev {}", TUNNELS[1]);
        far.namespace.run(&route).expect("ip works");
        assert_eq!(by(site), "long");
    });
}

#[test]
fn what_comes_back_is_counted_beside_a_program_that_marks_there() {
    on_site(|site| {
        up(site, "[steering]\nmode = 'mark'\n");
        check_downloads(site);
    });
}

#[test]
fn upload_fills_the_tunnel_outwards() {
    on_site(|site| {
        up(site, "");
        let mut connection = Connection::open(&site.topology);
        connection.send(BYTES as usize);
        let flow = site.flow_from(connection.port());
        assert_eq!(flow["fills"], "out", "{flow}");
        // Acknowledgements.
        let back = flow["reverse"]["bytes"].as_u64().expect("it was seen");
        assert!((1..BYTES / 4).contains(&back), "{flow}");
    });
}

#[test]
fn flow_that_nothing_is_seen_of_in_return_says_so() {
    on_site(|site| {
        up(
            site,
            "[flows]\ntable_size = 4096\nprotocols = ['tcp', 'udp']\n",
        );
        let mut datagrams = Datagrams::between(site, false);
        datagrams.send(20, 500);
        let flow = site.datagrams_from(datagrams.port());
        assert!(
            flow["reverse"].is_null() && flow["fills"].is_null(),
            "{flow}"
        );
        let shown = stdout(&site.splitter(&["flows"]));
        assert!(shown.contains("not seen"), "{shown}");
        let shown = stdout(&site.splitter(&["top", "--once", "-i", "0.2"]));
        assert!(shown.contains("reverse not seen"), "{shown}");
    });
}

#[test]
fn shadow_counts_nothing_at_the_site_and_says_so() {
    on_site(|site| {
        let text = std::fs::read_to_string(site.config()).expect("a file");
        std::fs::write(site.config(), format!("shadow = true\n{text}")).expect("a file");
        assert!(site.splitter(&["up"]).status.success());
        let mut connection = Connection::open(&site.topology);
        connection.answer(BYTES as usize);
        let flow = site.flow_from(connection.port());
        assert!(flow["reverse"].is_null(), "{flow}");
    });
}

#[test]
fn counting_at_the_site_is_put_back_and_goes_with_the_instance() {
    require!(Program("tc"));
    on_site(|site| {
        let clean = site.border().run("tc qdisc show").expect("tc works");
        let daemon = site.run();
        let link = site.bpffs().join("splitter/test/egress_links").join(LAN);
        let is_there = || link.exists().then_some(());
        site.wait_for("the count of what comes back", is_there);
        std::fs::remove_file(&link).expect("it is pinned");
        site.wait_for("it to be there again", is_there);
        check_downloads(site);
        assert!(daemon.end(Signal::SIGTERM).success());
        assert!(!site.bpffs().join("splitter").exists());
        assert_eq!(site.border().run("tc qdisc show").expect("tc works"), clean);
    });
}

/// Starts a program at a host and waits until it listens.
fn serve(site: &Site, host: &Host, port: u16, program: &[&str]) -> Daemon {
    let mut command = host.namespace.command(program[0]);
    command.args(&program[1..]);
    let daemon = Daemon::start(command, &site.path(&format!("server-{port}")));
    site.wait_for("the server to listen", || {
        let listening = host.namespace.run(&format!("ss -Hltn sport = :{port}"));
        (!listening.expect("ss works").is_empty()).then_some(())
    });
    daemon
}

#[test]
fn top_shows_which_direction_fills_the_tunnel_and_how_fast() {
    require!(Program("iperf3"), Program("ss"));
    on_site(|site| {
        site.configure("");
        assert!(site.splitter(&["up"]).status.success());
        let (client, server) = (&site.topology.client, &site.topology.server);
        let address = server.ipv4.to_string();
        let _servers = ["5201", "5202"].map(|port| {
            serve(
                site,
                server,
                port.parse().expect("a port"),
                &["iperf3", "-s", "-p", port],
            )
        });
        let start = |port: &str, more: &[&str]| {
            let mut command = client.namespace.command("iperf3");
            command
                .args(["-c", &address, "-p", port, "-t", "60"])
                .args(more);
            Daemon::start(command, &site.path(&format!("client-{port}")))
        };
        let _download = start("5201", &["-R", "-b", "20M"]);
        let _upload = start("5202", &["-b", "4M"]);
        // The connection for control is idle and comes after it.
        let of_port = |shown: &Value, port: u16| {
            let flows = shown["flows"].as_array().expect("a list");
            let fast = flows
                .iter()
                .find(|it| it["destination_port"] == port && it["fills"].is_string());
            fast.cloned()
        };
        let both = || {
            let shown = site.json(&["top", "-i", "1"]);
            let found = [5201, 5202].map(|port| of_port(&shown, port));
            let [Some(download), Some(upload)] = found else {
                return None;
            };
            let is_steady = |it: &Value| it["age_s"].as_f64() > Some(3.0);
            (is_steady(&download) && is_steady(&upload)).then_some((shown, download, upload))
        };
        let (shown, download, upload) = site.wait_for("both transfers", both);
        assert_eq!(
            (&download["fills"], &upload["fills"]),
            (&"in".into(), &"out".into())
        );
        let rate = |it: &Value| it["bits_per_s"].as_f64().expect("it is known");
        let packets = |it: &Value| it["packets_per_s"].as_f64().expect("it is known");
        let back = &download["reverse"];
        // Twice what it is allowed to send: a machine that is busy sends in bursts.
        assert!((1e6..40e6).contains(&rate(back)), "{download}");
        assert!(rate(back) > 5.0 * rate(&download), "{download}");
        assert!(rate(&upload) > 5.0 * rate(&upload["reverse"]), "{upload}");
        // Bits and packets are of the same time: a full segment has 1,514 bytes.
        let bytes_each = rate(back) / 8.0 / packets(back);
        assert!((500.0..1_600.0).contains(&bytes_each), "{download}");
        let first = &shown["flows"][0];
        assert_eq!(first["destination_port"], 5201, "the fastest comes first");
        // The tunnel that it came by received it, by what the device counts.
        let tunnel = back["tunnel"].as_str().expect("it came by one of ours");
        let tunnels = shown["tunnels"].as_array().expect("a list");
        let row = tunnels
            .iter()
            .find(|it| it["tunnel"] == tunnel)
            .expect("it is listed");
        let received = row["received_bits_per_s"].as_f64().expect("it is known");
        assert!(received > 0.8 * rate(back), "{row}");
        assert!(
            row["received_packets_per_s"].as_f64() > Some(100.0),
            "{row}"
        );

        let text = stdout(&site.splitter(&["top", "--once", "-i", "1"]));
        assert!(text.contains("reverse, carries more"), "{text}");
        assert!(text.contains("reverse, carries less"), "{text}");
        let widest = text.lines().map(|it| it.chars().count()).max();
        assert!(widest <= Some(80), "{text}");
    });
}

#[test]
fn curl_that_downloads_is_shown_so_by_the_running_agent() {
    require!(Program("curl"), Program("python3"), Program("ss"));
    on_site(|site| {
        site.configure("[metrics]\nflow_addresses = true\n");
        let daemon = site.run();
        let link = site.bpffs().join("splitter/test/egress_links").join(LAN);
        site.wait_for("the count of what comes back", || {
            link.exists().then_some(())
        });
        let server = &site.topology.server;
        let directory = site.path("files");
        std::fs::create_dir(&directory).expect("a directory");
        std::fs::write(directory.join("file"), vec![7; BYTES as usize]).expect("a file");
        let directory = directory.to_str().expect("it is text");
        let address = server.ipv4.to_string();
        let program = [
            "python3",
            "-m",
            "http.server",
            "8080",
            "--bind",
            &address,
            "-d",
            directory,
        ];
        let _server = serve(site, server, 8_080, &program);
        let url = format!("curl -sf -o /dev/null http://{address}:8080/file");
        site.topology
            .client
            .namespace
            .run(&url)
            .expect("curl downloads it");
        let flow = site.wait_for("the flow on the page", || {
            let (_, body) = site.get("/status.json").ok()?;
            let status: Value = serde_json::from_str(&body).ok()?;
            let flows = status["flows"].as_array()?;
            let is_its = |it: &&Value| it["flow"].as_str().is_some_and(|it| it.contains(":8080"));
            flows.iter().find(is_its).cloned()
        });
        let bytes = flow["reverse_bytes"].as_u64().expect("it was seen");
        assert!(is_about(bytes, BYTES), "{flow}");
        assert_eq!(flow["finished"], true, "{flow}");
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}
