//! A Prometheus that scrapes both borders, with the rules that packages install.

use std::{
    fs::{self, File},
    net::SocketAddr,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use flow_testbed::{
    prometheus::{Server, configuration},
    require::find_program,
    wait::poll,
};

const RULES: &str = include_str!("../../../../packaging/prometheus/splitter.rules.yml");
/// How long it may take until it has scraped both.
const READY_BOUND: Duration = Duration::from_secs(20);
const LOG_LINES: usize = 8;

/// A running Prometheus, which ends when this is dropped.
pub(super) struct Prometheus(Child);

impl Prometheus {
    /// Starts it with its data below `directory`, and waits until it has scraped all targets; nothing where it is not
    /// installed.
    pub(super) fn start(
        listen: SocketAddr,
        targets: &[String],
        directory: &Path,
    ) -> Result<Option<Self>> {
        let Some(program) = find_program("prometheus") else {
            return Ok(None);
        };
        let path = |name: &str| directory.join(name);
        let write = |name: &str, text: &str| {
            fs::write(path(name), text).with_context(|| format!("cannot write {name}"))
        };
        write("splitter.rules.yml", RULES)?;
        let rules = path("splitter.rules.yml");
        let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
        write("prometheus.yml", &configuration(&targets, &[&rules]))?;
        let log = File::create(path("prometheus.log")).context("cannot write its log")?;
        // It ends with this process, however that ends.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(program)
            .arg(format!(
                "--config.file={}",
                path("prometheus.yml").display()
            ))
            .arg(format!("--storage.tsdb.path={}", path("data").display()))
            .arg(format!("--web.listen-address={listen}"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("cannot write its log")?)
            .stderr(log)
            // Ctrl-C at the terminal is for us, who then end it in order.
            .process_group(0)
            .spawn()
            .context("cannot start Prometheus by `setpriv`")?;
        let mut running = Self(child);
        match running.wait_until_ready(listen, targets.len()) {
            true => Ok(Some(running)),
            false => {
                let log = fs::read_to_string(path("prometheus.log")).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                let end = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
                bail!(
                    "Prometheus at {listen} was not ready within {READY_BOUND:?}; its last lines:\n{end}"
                )
            }
        }
    }

    fn wait_until_ready(&mut self, listen: SocketAddr, targets: usize) -> bool {
        let server = Server(super::reachable(listen));
        let is_ready = || {
            if let Ok(Some(_)) = self.0.try_wait() {
                return Some(false);
            }
            let up = server.query("count(up == 1)").ok()?;
            (up == [targets as f64]).then_some(true)
        };
        poll(READY_BOUND, is_ready).unwrap_or(false)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // Both fail only when it has ended and been waited for already; its data goes with its directory.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
