//! Real programs of a run: nginx and mgen, which end with the value that stands for them.

use std::{
    fs,
    net::{Ipv4Addr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use flow_testbed::{
    namespace::Namespace,
    topology::{Host, Topology},
    wait::poll,
};

use super::{browser, schedule::Kind};

/// How long a program may take until it works.
const READY_BOUND: Duration = Duration::from_secs(10);
/// Flows of the background in each direction. With sixteen or more, both of two paths get about
/// half of them by their hash.
pub(crate) const BACKGROUND_FLOWS: u32 = 16;
const BACKGROUND_PORT: u32 = 6000;
/// Bytes of a message, as in the paper, and of the frame that carries it.
const MESSAGE_BYTES: u32 = 1472;
pub(crate) const FRAME_BYTES: f64 = 1514.0;

/// A running program; dropping it ends it.
#[derive(Debug)]
pub struct Running(Child);

impl Running {
    /// Starts a program without input and output.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn start(command: &mut Command) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        child
            .map(Self)
            .with_context(|| format!("cannot start {:?}", command.get_program()))
    }

    /// Asks it to end and waits until it has.
    pub fn end(mut self) {
        let id = nix::unistd::Pid::from_raw(self.0.id().cast_signed());
        // It has not been waited for, so the id is still its own.
        if nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).is_ok() {
            poll(READY_BOUND, || self.0.try_wait().transpose());
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only when it has ended and been waited for already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts nginx on `host` with a file for each kind of request and a page, in `directory`.
///
/// # Errors
///
/// If it does not listen soon.
pub fn serve(host: &Host, directory: &Path) -> Result<Running> {
    let www = directory.join("www");
    fs::create_dir_all(www.join("upload"))?;
    for kind in Kind::ALL {
        fs::write(www.join(kind.port().to_string()), vec![b'x'; kind.bytes()])?;
    }
    browser::write(&www)?;
    let configuration = directory.join("nginx.conf");
    fs::write(&configuration, nginx(host.ipv4, directory))?;
    let mut command = host.namespace.command("nginx");
    command.arg("-e").arg(directory.join("nginx.log"));
    let server = Running::start(command.arg("-c").arg(&configuration))?;
    let address = (host.ipv4, Kind::Upload.port());
    let is_there = || host.namespace.enter(|| TcpStream::connect(address).is_ok());
    let ready = poll(READY_BOUND, || is_there().is_ok_and(|it| it).then_some(()));
    let log = || fs::read_to_string(directory.join("nginx.log")).unwrap_or_default();
    ensure!(ready.is_some(), "nginx does not listen: {}", log());
    Ok(server)
}

fn nginx(address: Ipv4Addr, directory: &Path) -> String {
    let page = browser::nginx(address, &directory.join("www"));
    let directory = directory.display();
    let listen: String = Kind::ALL
        .map(|kind| format!("listen {address}:{}; ", kind.port()))
        .concat();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|it| format!("{it}_temp_path {directory}/{it}; "))
        .concat();
    format!(
        "daemon off; master_process off; pid {directory}/pid;
         events {{ worker_connections 1024; }}
         http {{
           access_log off; keepalive_timeout 0; client_max_body_size 0; {temporary}
           server {{
             {listen} root {directory}/www;
             location /upload/ {{ dav_methods PUT; }}
           }}
           {page}
         }}"
    )
}

/// Starts MGEN on both generators: Poisson messages that fill `load_percent` of the sum of the
/// tunnels' rates in each direction.
///
/// # Errors
///
/// If a command fails.
pub fn background(
    topology: &Topology,
    load_percent: u32,
    directory: &Path,
) -> Result<Vec<Running>> {
    let [one, other] = &topology.generators;
    let bits: f64 = topology
        .options
        .rates_mbit
        .map(f64::from)
        .iter()
        .sum::<f64>()
        * 1e6;
    let messages = bits * f64::from(load_percent) / 100.0 / 8.0 / FRAME_BYTES;
    let each = messages / f64::from(BACKGROUND_FLOWS);
    let mut running = Vec::new();
    for (number, (from, to)) in [(one, other), (other, one)].into_iter().enumerate() {
        discard_messages(&from.namespace)?;
        let events = (1..=BACKGROUND_FLOWS).map(|flow| {
            let port = BACKGROUND_PORT + flow;
            format!(
                "0.0 ON {flow} UDP SRC {port} DST {}/{port} POISSON [{each:.3} {MESSAGE_BYTES}]\n",
                to.ipv4
            )
        });
        let script = directory.join(format!("background-{number}.mgn"));
        fs::write(&script, events.collect::<String>())?;
        let mut command = from.namespace.command("mgen");
        running.push(Running::start(
            command.args(["nolog", "input"]).arg(script),
        )?);
    }
    Ok(running)
}

/// Nobody listens for the background, and nobody is to complain.
fn discard_messages(namespace: &Namespace) -> Result<()> {
    let rule = "table inet background {
        chain input {
            type filter hook input priority 0;
            meta l4proto udp drop
        }
    }";
    namespace.run_with_input("nft -f -", rule)?;
    Ok(())
}
