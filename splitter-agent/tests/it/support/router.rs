//! A router between a site and two tunnels, and what it does with packets.

use flow_testbed::namespace::Namespace;
use splitter_config::Config;
use splitter_netlink::Netlink;
use splitter_steering::routes::{Applied, Verification, plan};

pub(crate) const TUNNELS: &str = "
lan = ['lan']
[short]
device = 'wan0'
gateway = ['192.0.2.1', '2001:db8:1::1']
[long]
device = 'wan1'
gateway = ['198.51.100.1', '2001:db8:2::1']
";

pub(crate) const DESTINATIONS: &str =
    "[routes]\ndestinations = ['10.2.0.0/16', '2001:db8:b::/48']\n";

/// A router between a site and two tunnels, with a default route elsewhere.
pub(crate) fn router() -> Namespace {
    let router = Namespace::new("router").unwrap();
    for (device, v4, v6) in [
        ("lan", "10.1.0.1/24", "2001:db8:a::1/64"),
        ("wan0", "192.0.2.2/30", "2001:db8:1::2/64"),
        ("wan1", "198.51.100.2/30", "2001:db8:2::2/64"),
        ("isp", "203.0.113.2/30", "2001:db8:3::2/64"),
    ] {
        router
            .run(&format!("ip link add {device} type veth peer far-{device}"))
            .unwrap();
        for end in [device, &format!("far-{device}")] {
            router.run(&format!("ip link set {end} up")).unwrap();
        }
        router
            .run(&format!("ip addr add {v4} dev {device}"))
            .unwrap();
        router
            .run(&format!("ip addr add {v6} dev {device} nodad"))
            .unwrap();
    }
    router.run("ip route add default via 203.0.113.1").unwrap();
    router
        .run("ip -6 route add default via 2001:db8:3::1")
        .unwrap();
    router.sysctl("net.ipv4.ip_forward", "1").unwrap();
    router.sysctl("net.ipv6.conf.all.forwarding", "1").unwrap();
    router
}

pub(crate) fn config(more: &str) -> Config {
    Config::parse(&format!("{TUNNELS}{more}"), "test.toml").unwrap()
}

/// Runs an asynchronous block on a thread inside the namespace, with a conversation open.
pub(crate) fn inside<T: Send>(
    namespace: &Namespace,
    work: impl AsyncFnOnce(&Netlink) -> T + Send,
) -> T {
    namespace
        .enter(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime
                .unwrap()
                .block_on(async { work(&Netlink::connect().unwrap()).await })
        })
        .unwrap()
}

pub(crate) async fn up(netlink: &Netlink, config: &Config) -> Applied {
    plan(netlink, config, None)
        .await
        .unwrap()
        .apply(netlink)
        .await
        .unwrap()
}

/// The same, and looks whether packets go where they should.
pub(crate) async fn up_and_verified(netlink: &Netlink, config: &Config) -> Verification {
    let applied = up(netlink, config).await;
    applied.verify(netlink, config).await.unwrap()
}

/// All rules and routes, but for those that the kernel makes itself, some of them late.
pub(crate) fn everything(namespace: &Namespace) -> String {
    let commands = [
        "ip rule",
        "ip -6 rule",
        "ip route show table all",
        "ip -6 route show table all",
    ];
    let shown = commands
        .map(|command| namespace.run(command).unwrap())
        .join("--\n");
    let lines = shown.lines().filter(|line| !line.contains("proto kernel"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The device that a packet of a flow would leave by.
pub(crate) fn device(namespace: &Namespace, destination: &str, tos: u8) -> String {
    let (option, source) = if destination.contains(':') {
        ("-6 ", "2001:db8:a::77")
    } else {
        ("", "10.1.0.77")
    };
    let line = format!("ip {option}route get {destination} from {source} iif lan tos {tos:#x}");
    let answer = namespace.run(&line).unwrap();
    let mut words = answer.split_whitespace().skip_while(|word| *word != "dev");
    words.nth(1).unwrap_or_default().to_owned()
}
