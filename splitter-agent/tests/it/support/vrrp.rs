//! Two borders of one site that share the address of its router by VRRP, and the border of another
//! site, as the book sets them up: keepalived and BGP, an agent at each of the three.

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flow_testbed::namespace::Namespace;
use flow_testbed::topology::{Host, LAN};
use nix::sys::signal::Signal;
use serde_json::Value;

use super::daemon::Daemon;
use super::frr::Frr;
use super::site::{BINARY, Connection, Site, get_from, output};

/// The borders' device towards the shared LAN.
const SHARED: &str = "site0";
/// Both of the site's borders.
const BORDERS: usize = 2;
const KEY: &str = "00112233445566778899aabbccddeeff0123456789abcdef0123456789abcdef\n";
/// So that what had failed comes back while a test waits.
const QUICK: &str = "hold_down_s = 1\nmax_hold_down_s = 2\n";
/// Sent at a time by a transfer, which pauses in between.
const CHUNK_BYTES: usize = 30_000;
const PAUSE: Duration = Duration::from_millis(20);

/// A site with two borders, and all that runs on them.
pub(crate) struct Shared<'a> {
    pub(crate) site: &'a Site,
    /// A host of the site, whose router is the shared address.
    pub(crate) host: Host,
    borders: [Namespace; BORDERS],
    keepalived: [Option<Daemon>; BORDERS],
    agents: Vec<Daemon>,
    routers: Vec<Frr>,
    _switch: Namespace,
}

impl<'a> Shared<'a> {
    /// Sets all of it up, with the address at the first border, and waits until both sites reach each
    /// other.
    pub(crate) fn set_up(site: &'a Site) -> Self {
        let ipv6 = site.topology.client.ipv6.is_some();
        let second = router("second-border", ipv6);
        let borders = [site.border().clone(), second];
        let switch = Namespace::new("switch").expect("root");
        let host = Host {
            namespace: router("host", ipv6),
            ipv4: Ipv4Addr::new(10, 3, 0, 10),
            ipv6: ipv6.then(|| Ipv6Addr::new(0xfd00, 3, 0, 0, 0, 0, 0, 0x10)),
        };
        run(&switch, "ip link add lan type bridge");
        run(&switch, "ip link set lan up");
        plug(&switch, "host", &host.namespace, "eth0", 0x10, ipv6);
        for (border, port) in borders.iter().zip(["first", "second"]) {
            let number = if port == "first" { 1 } else { 2 };
            plug(&switch, port, border, SHARED, number, ipv6);
        }
        run(&host.namespace, "ip route add default via 10.3.0.254");
        if ipv6 {
            run(
                &host.namespace,
                "ip -6 route add default via fe80::fe dev eth0",
            );
        }
        let mut shared = Self {
            site,
            host,
            borders,
            keepalived: [None, None],
            agents: Vec::new(),
            routers: Vec::new(),
            _switch: switch,
        };
        shared.add_tunnels_of_second();
        shared.start_routers();
        shared.start_agents();
        for index in 0..BORDERS {
            shared.start_keepalived(index);
        }
        shared.wait_for_address(0);
        shared
    }

    pub(crate) fn border(&self, index: usize) -> &Namespace {
        &self.borders[index]
    }

    pub(crate) fn far(&self) -> &Namespace {
        &self.site.topology.borders[1].namespace
    }

    /// What a command of the agent of one of the site's borders prints, as JSON.
    pub(crate) fn json(&self, index: usize, arguments: &[&str]) -> Value {
        let mut command = self.borders[index].command(BINARY);
        command
            .arg("--config")
            .arg(self.file(index))
            .args(arguments)
            .arg("--json");
        let output = output(command);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// The flow from a port of the host, as one of the site's borders knows it.
    pub(crate) fn flow_from(&self, index: usize, port: u16) -> Option<Value> {
        let listing = self.json(index, &["flows", "--limit", "1000"]);
        let mut flows = listing["flows"].as_array()?.iter();
        flows.find(|flow| flow["source_port"] == port).cloned()
    }

    /// What a border answers to who asks if it is ready.
    pub(crate) fn ready(&self, index: usize) -> Option<(u16, String)> {
        get_from(&self.borders[index], "/ready").ok()
    }

    /// The sum of a metric over all its labels at one of the site's borders.
    pub(crate) fn metric(&self, index: usize, name: &str) -> f64 {
        let scrape = || get_from(&self.borders[index], "/metrics").ok();
        let (_, text) = self.site.wait_for("a scrape", scrape);
        let samples = text.lines().filter(|line| line.starts_with(name));
        let values = samples.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum()
    }

    /// Waits until that border alone has the shared addresses.
    pub(crate) fn wait_for_address(&self, index: usize) {
        let has = |border: &Namespace| {
            let shown = border.run(&format!("ip -br address show {SHARED}"));
            let shown = shown.unwrap_or_default();
            let ipv6 = self.host.ipv6.is_none() || shown.contains("fe80::fe/");
            shown.contains("10.3.0.254/") && ipv6
        };
        let is_there = || {
            let [first, second] = &self.borders;
            let (one, other) = if index == 0 {
                (first, second)
            } else {
                (second, first)
            };
            (has(one) && !has(other)).then_some(())
        };
        if flow_testbed::wait::poll(super::site::PATIENCE, is_there).is_none() {
            panic!("the address did not come to border {index}: {}", self.log());
        }
    }

    /// Waits until the far border returns what is for the site by the tunnels of that border.
    pub(crate) fn wait_for_way_back(&self, index: usize) {
        let devices = [["tun0", "tun1"], ["tun2", "tun3"]][index];
        self.site.wait_for("the way back to change", || {
            let shown = self.far().run("ip route show table 10402 10.3.0.0/24");
            let shown = shown.unwrap_or_default();
            devices.iter().any(|it| shown.contains(it)).then_some(())
        });
    }

    /// Starts keepalived at a border, as the book has it.
    pub(crate) fn start_keepalived(&mut self, index: usize) {
        let name = |end: &str| self.site.path(&format!("keepalived-{index}.{end}"));
        let text = keepalived(index, self.host.ipv6.is_some());
        fs::write(name("conf"), text).expect("a file");
        let mut command = self.borders[index].command("keepalived");
        command
            .args(["--dont-fork", "--log-console", "--log-detail", "--vrrp"])
            .arg("--use-file")
            .arg(name("conf"))
            .arg("--pid")
            .arg(name("pid"))
            .arg("--vrrp_pid")
            .arg(name("vrrp-pid"));
        self.keepalived[index] = Some(Daemon::start(command, &name("log")));
    }

    /// Stops keepalived at a border, as an operator would.
    pub(crate) fn stop_keepalived(&mut self, index: usize) {
        let daemon = self.keepalived[index].take().expect("it runs");
        daemon.end(Signal::SIGTERM);
    }

    /// A border loses its links, all at once, as without power.
    pub(crate) fn lose_power(&self, index: usize) {
        for device in [SHARED, "tun0", "tun1"] {
            run(&self.borders[index], &format!("ip link set {device} down"));
        }
    }

    /// What keepalived has logged at both.
    pub(crate) fn log(&self) -> String {
        let logs = self.keepalived.iter().flatten().map(Daemon::log);
        logs.collect::<Vec<_>>().join("\n")
    }

    /// Keeps transfers of each family going to the other site while `work` lasts; all that is sent has to
    /// arrive, on the connections that there were before.
    pub(crate) fn transferring(&mut self, work: impl FnOnce(&mut Self, &[u16])) {
        let server = &self.site.topology.server;
        let mut connections = vec![Connection::between(&self.host, server)];
        if let Some(ipv6) = server.ipv6 {
            connections.push(Connection::over(&self.host, server, ipv6.into()));
        }
        let ports: Vec<_> = connections.iter().map(Connection::port).collect();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for mut connection in connections {
                let over = &over;
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        connection.send(CHUNK_BYTES);
                        connection.answer(CHUNK_BYTES);
                        std::thread::sleep(PAUSE);
                    }
                });
            }
            let _ending = Ending(&over);
            work(self, &ports);
        });
    }

    fn file(&self, index: usize) -> std::path::PathBuf {
        match index {
            0 => self.site.config(),
            _ => self.site.path("second.toml"),
        }
    }

    /// Tunnels from the second border, called there as they are at the first.
    fn add_tunnels_of_second(&self) {
        let [_, second] = &self.borders;
        for (near, number) in [("tun0", 2), ("tun1", 3)] {
            let far = format!("tun{number}");
            second.connect(near, self.far(), &far).expect("root");
            for (border, device, own) in [(second, near, 1), (self.far(), &far, 2)] {
                run(border, &format!("ip link set {device} up"));
                let v4 = format!("10.9.{number}.{own}/24");
                run(border, &format!("ip address add {v4} dev {device}"));
                if self.host.ipv6.is_some() {
                    let v6 = format!("fd00:9:{number}::{own}/64");
                    run(border, &format!("ip address add {v6} dev {device} nodad"));
                }
            }
        }
    }

    /// BGP through each tunnel, in each family; the other site prefers the first border.
    fn start_routers(&mut self) {
        let near = |numbers: [u8; 2], metric| Speaker {
            system: [65_001, 65_002],
            neighbours: self.ends(&numbers, 2),
            networks: ["10.3.0.0/24", "fd00:3::/64"],
            metric,
        };
        let far = Speaker {
            system: [65_002, 65_001],
            neighbours: self.ends(&[0, 1, 2, 3], 1),
            networks: ["10.2.0.0/16", "fd00:2::/32"],
            metric: None,
        };
        let speakers = [
            (&self.borders[0], near([0, 1], None)),
            (&self.borders[1], near([2, 3], Some(100))),
            (self.far(), far),
        ];
        let started = speakers.map(|(border, speaker)| {
            let text = speaker.configuration(self.host.ipv6.is_some());
            Frr::start(border, &text)
        });
        // All is learnt.
        for border in &self.site.topology.borders {
            for family in ["", "-6 "] {
                let _ = border
                    .namespace
                    .run(&format!("ip {family}route del default"));
            }
        }
        for border in &self.borders {
            self.site.wait_for("the other site to be known", || {
                let shown = border.run("ip route show 10.2.0.0/16").ok()?;
                (shown.matches("nexthop").count() == 2).then_some(())
            });
        }
        self.routers = started.into();
    }

    /// The addresses of one end (1 or 2) of tunnels.
    fn ends(&self, numbers: &[u8], end: u8) -> Vec<String> {
        let v4 = numbers.iter().map(|it| format!("10.9.{it}.{end}"));
        let v6 = numbers.iter().map(|it| format!("fd00:9:{it}::{end}"));
        let v6 = v6.filter(|_| self.host.ipv6.is_some());
        v4.chain(v6).collect()
    }

    fn start_agents(&mut self) {
        let key = self.site.path("key");
        fs::write(&key, KEY).expect("a file");
        let mode = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
        fs::set_permissions(&key, mode).expect("it is ours");
        let health = format!("[health]\nkey_file = {key:?}\n{QUICK}");
        let tunnel = |device: &str, number: u8, end: u8| {
            let gateway = self.ends(&[number], end);
            let peer = &gateway[0];
            format!("{{ device = '{device}', gateway = {gateway:?}, peer = '{peer}' }}")
        };
        let at_site = |number: u8| {
            let (short, long) = (tunnel("tun0", number, 2), tunnel("tun1", number + 1, 2));
            format!(
                "lan = ['{SHARED}']\nshort = {short}\nlong = {long}\n[routes]\nfollow = true\n{health}"
            )
        };
        let remote = |name: &str, number: u8| {
            let device = |it: u8| format!("tun{it}");
            let short = tunnel(&device(number), number, 1);
            let long = tunnel(&device(number + 1), number + 1, 1);
            format!("[[site]]\nname = '{name}'\nshort = {short}\nlong = {long}\n")
        };
        self.site.configure(&at_site(0));
        let (run, bpffs) = (self.site.path("run"), self.site.bpffs());
        let common =
            |name: &str| format!("name = '{name}'\nruntime_dir = {run:?}\nbpffs = {bpffs:?}\n");
        let table = "[flows]\ntable_size = 4096\n";
        let second = format!("{}{}{table}", common("second"), at_site(2));
        fs::write(self.site.path("second.toml"), second).expect("a file");
        let far = format!(
            "{}lan = ['{LAN}']\n{table}[routes]\nfollow = true\n{health}{}{}",
            common("far"),
            remote("first", 0),
            remote("second", 2)
        );
        fs::write(self.site.path("far.toml"), far).expect("a file");
        let [first, second] = &self.borders;
        let borders = [
            (first, "splitter.toml"),
            (second, "second.toml"),
            (self.far(), "far.toml"),
        ];
        let started = borders.map(|(border, file)| {
            let mut command = border.command(BINARY);
            command.arg("--config").arg(self.site.path(file)).arg("run");
            let daemon = Daemon::start(command, &self.site.path(&format!("{file}.log")));
            (border, daemon)
        });
        for (border, daemon) in &started {
            self.site.wait_for("an agent to be ready", || {
                assert!(daemon.is_running(), "it ended:\n{}", daemon.log());
                let (status, _) = get_from(border, "/ready").ok()?;
                (status == 200).then_some(())
            });
        }
        self.agents = started.into_iter().map(|(_, daemon)| daemon).collect();
    }
}

/// Ends the transfers, also where the test panics.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One router's BGP.
struct Speaker {
    /// Its own number and that of the others.
    system: [u32; 2],
    neighbours: Vec<String>,
    networks: [&'static str; 2],
    /// What it says its way costs, where another one is to be preferred.
    metric: Option<u32>,
}

impl Speaker {
    fn configuration(&self, ipv6: bool) -> String {
        let [own, others] = self.system;
        let each = |line: &str, is_ipv6: Option<bool>| -> String {
            let meant = self.neighbours.iter();
            let meant = meant.filter(|it| is_ipv6.is_none_or(|six| it.contains(':') == six));
            meant.map(|it| format!("neighbor {it} {line}\n")).collect()
        };
        let mut text = String::new();
        if let Some(metric) = self.metric {
            text += &format!("route-map standby permit 10\nset metric {metric}\nexit\n");
        }
        // The other site's own network is spread over several devices.
        let check = if own == 65_001 { "" } else { "no " };
        let id = self.neighbours[0].replace("10.9", "10.8");
        text += &format!(
            "router bgp {own}\nbgp router-id {id}\nno bgp ebgp-requires-policy\n\
             {check}bgp network import-check\nno bgp default ipv4-unicast\n"
        );
        for line in [
            &format!("remote-as {others}"),
            "timers 1 3",
            "timers connect 1",
            "advertisement-interval 0",
        ] {
            text += &each(line, None);
        }
        for (is_ipv6, family) in [(false, "ipv4"), (true, "ipv6")] {
            if is_ipv6 && !ipv6 {
                continue;
            }
            text += &format!("address-family {family} unicast\n");
            text += &format!("network {}\n", self.networks[usize::from(is_ipv6)]);
            text += &each("activate", Some(is_ipv6));
            if self.metric.is_some() {
                text += &each("route-map standby out", Some(is_ipv6));
            }
            text += "exit-address-family\n";
        }
        text
    }
}

/// The configuration of a border's keepalived, as the book has it, with shorter times.
fn keepalived(index: usize, ipv6: bool) -> String {
    let priority = [150, 100][index];
    let instance = |name: &str, number: u8, address: &str| {
        format!(
            "vrrp_instance {name} {{\nstate BACKUP\ninterface {SHARED}\nvirtual_router_id {number}\n\
             priority {priority}\nadvert_int 0.2\nvirtual_ipaddress {{\n{address}\n}}\n\
             track_script {{\nsplitter\n}}\n}}\n"
        )
    };
    let mut text = "global_defs {\nvrrp_version 3\nscript_user root\nenable_script_security\n}\n\
                    vrrp_script splitter {\n\
                    script \"/usr/bin/curl -sf -o /dev/null -m 1 http://127.0.0.1:9461/ready\"\n\
                    interval 1\nfall 2\nrise 2\nweight -60\n}\n"
        .to_owned();
    text += &instance("lan4", 51, "10.3.0.254/24");
    if ipv6 {
        text += &instance("lan6", 52, "fe80::fe/64");
    }
    text
}

/// A namespace that forwards, and takes answers by another way than it would ask.
fn router(name: &str, ipv6: bool) -> Namespace {
    let namespace = Namespace::new(name).expect("root");
    let set = |key: &str, value: &str| namespace.sysctl(key, value).expect("a setting");
    set("net.ipv4.conf.all.rp_filter", "0");
    set("net.ipv4.conf.default.rp_filter", "0");
    set("net.ipv4.ip_forward", "1");
    if ipv6 {
        set("net.ipv6.conf.all.forwarding", "1");
        set("net.ipv6.conf.default.accept_dad", "0");
    }
    namespace
}

/// Connects somebody to the switch.
fn plug(
    switch: &Namespace,
    port: &str,
    namespace: &Namespace,
    device: &str,
    number: u8,
    ipv6: bool,
) {
    switch.connect(port, namespace, device).expect("root");
    run(switch, &format!("ip link set {port} master lan up"));
    run(namespace, &format!("ip link set {device} up"));
    let v4 = format!("10.3.0.{number}/24");
    run(namespace, &format!("ip address add {v4} dev {device}"));
    if ipv6 {
        let v6 = format!("fd00:3::{number:x}/64");
        let line = format!("ip address add {v6} dev {device} nodad");
        run(namespace, &line);
    }
}

fn run(namespace: &Namespace, line: &str) {
    namespace.run(line).expect(line);
}
