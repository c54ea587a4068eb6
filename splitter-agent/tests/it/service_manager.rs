//! What the daemon says to the service manager that has started it.

use crate::support::daemon::Daemon;
use crate::support::site;
use flow_testbed::topology::TUNNELS;
use std::ffi::CString;
use std::io::Write as _;
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use site::{PATIENCE, Site, on_site};

/// What is waited for by the watchdog of these tests.
const WATCHDOG: Duration = Duration::from_secs(2);
/// Several rounds of the main loop, which comes round each second.
const ROUNDS: Duration = Duration::from_secs(4);

/// The socket of a service manager.
struct Manager(UnixDatagram);

impl Manager {
    /// Starts `splitter run` as systemd would.
    fn start(site: &Site) -> (Self, Daemon) {
        let path = site.path("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        let mut command = site.command(&["run"]);
        command.env("NOTIFY_SOCKET", &path);
        command.env("WATCHDOG_USEC", WATCHDOG.as_micros().to_string());
        let daemon = Daemon::start(command, &site.path("log"));
        (Self(socket), daemon)
    }

    /// The next message, each line of which is one assignment, if one comes within this time.
    fn next(&self, within: Duration) -> Option<String> {
        self.0.set_read_timeout(Some(within)).expect("a setting");
        let mut buffer = [0; 4096];
        let length = self.0.recv(&mut buffer).ok()?;
        Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
    }

    /// Takes messages until one has this assignment; that message.
    #[track_caller]
    fn wait_for(&self, assignment: &str) -> String {
        let end = Instant::now() + PATIENCE;
        let mut seen = Vec::new();
        while Instant::now() < end {
            let Some(message) = self.next(Duration::from_millis(100)) else {
                continue;
            };
            if message.lines().any(|line| line.starts_with(assignment)) {
                return message;
            }
            seen.push(message);
        }
        panic!("no {assignment} among {seen:?}");
    }

    /// How often the watchdog was fed within this time.
    fn feeds(&self, within: Duration) -> usize {
        let end = Instant::now() + within;
        let mut feeds = 0;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return feeds;
            }
            let message = self.next(left).unwrap_or_default();
            feeds += message.lines().filter(|it| *it == "WATCHDOG=1").count();
        }
    }
}

#[test]
fn manager_is_told_when_the_rules_stand_when_they_change_and_when_it_ends() {
    on_site(|site| {
        let (manager, daemon) = Manager::start(site);
        manager.wait_for("READY=1");
        assert_eq!(site.json(&["plan"])["changed"], false);
        assert!(manager.feeds(ROUNDS) > 0);

        site.configure("[flows]\nthreshold = 41\ntable_size = 4096\n");
        site.json(&["reload", "--dry-run"]);
        site.json(&["reload"]);
        let reloading = manager.wait_for("RELOADING=1");
        let monotonic = reloading
            .lines()
            .find_map(|it| it.strip_prefix("MONOTONIC_USEC="));
        let monotonic: u64 = monotonic.expect("a time").parse().expect("a number");
        assert!(monotonic > 0);
        manager.wait_for("READY=1");
        // SIGHUP is one, too.
        let id = nix::unistd::Pid::from_raw(daemon.id().cast_signed());
        nix::sys::signal::kill(id, Signal::SIGHUP).expect("it is ours");
        manager.wait_for("RELOADING=1");
        manager.wait_for("READY=1");

        for device in TUNNELS {
            let down = format!("ip link set {device} down");
            site.border().run(&down).expect("it is there");
        }
        let status = manager.wait_for("STATUS=not ready");
        assert!(status.contains("no tunnel is alive"), "{status}");

        assert!(daemon.end(Signal::SIGTERM).success());
        manager.wait_for("STOPPING=1");
    });
}

#[test]
fn watchdog_is_not_fed_while_the_main_loop_is_stuck() {
    on_site(|site| {
        let (manager, daemon) = Manager::start(site);
        manager.wait_for("READY=1");
        assert!(manager.feeds(ROUNDS) > 0);
        // Whoever opens this file waits until somebody writes.
        let text = std::fs::read(site.config()).expect("it is there");
        std::fs::remove_file(site.config()).expect("it is ours");
        let path = site.config().display().to_string();
        let path = CString::new(path).expect("without a zero");
        mkfifo(path.as_c_str(), Mode::S_IRUSR | Mode::S_IWUSR).expect("a FIFO");
        let id = nix::unistd::Pid::from_raw(daemon.id().cast_signed());
        nix::sys::signal::kill(id, Signal::SIGHUP).expect("it is ours");
        manager.wait_for("RELOADING=1");
        assert_eq!(manager.feeds(ROUNDS), 0, "it is stuck");
        let file = std::fs::File::options().write(true).open(site.config());
        let mut file = file.expect("somebody reads");
        file.write_all(&text).expect("it reads");
        drop(file);
        std::fs::remove_file(site.config()).expect("it is ours");
        std::fs::write(site.config(), &text).expect("a file");
        assert!(manager.feeds(ROUNDS) > 0);
        assert!(daemon.end(Signal::SIGTERM).success());
    });
}
