//! A border whose devices and addresses are those of the book's pages, with an agent and the other site.
//!
//! ```text
//! host 10.1.0.2 ── eth0 border ── wan0 192.0.2.2/24 ────── 192.0.2.1 ── other border ── 10.2.0.5
//!                              ── wan1 198.51.100.2/24 ─ 198.51.100.1
//! ```
//!
//! Commands run in a mount namespace of their own: what they write to `/etc`, `/run` and where completions and
//! manual pages lie is gone with it.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, Result, bail};
use flow_testbed::namespace::{Isolation, Namespace};
use tempfile::TempDir;

use crate::blocks::configuration_of;

/// The page whose configuration the border has.
const PAGE: &str = "docs/src/how-to/border-router.md";

/// Prepares the mount namespace, starts the agent, and runs scripts by their numbers.
const DRIVER: &str = r#"
work=$1 count=$2
mount -t tmpfs none /run
cp -a /etc /run/etc
mount --bind /run/etc /etc
for directory in /usr/local/share/man /usr/share/bash-completion/completions; do
    mkdir -p "$directory" && mount -t tmpfs none "$directory"
done
mkdir -p /run/work /etc/splitter /usr/local/share/man/man1
cp "$work/splitter.toml" /etc/splitter/splitter.toml
# On a terminal it has no meter of progress.
printf 'silent\nshow-error\n' > "$work/.curlrc"
export CURL_HOME=$work
cd /run/work
splitter run > "$work/agent.log" 2>&1 &
agent=$!
tries=0
until curl -sf http://127.0.0.1:9461/ready > /dev/null; do
    tries=$((tries + 1))
    if [ $tries -gt 200 ]; then echo "the agent is not ready" >&2; cat "$work/agent.log" >&2; exit 1; fi
    sleep 0.1
done
number=0
while [ $number -lt $count ]; do
    # What a page tells to write elsewhere is a copy of what is in force.
    cp /etc/splitter/splitter.toml new.toml
    status=0
    timeout 60 sh -eu "$work/$number.sh" > "$work/$number.out" 2>&1 < /dev/null || status=$?
    echo $status > "$work/$number.status"
    number=$((number + 1))
done
kill $agent
wait $agent
"#;

/// Takes off its options and runs the rest: who runs this is root.
const SUDO: &str = "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nexec \"$@\"\n";

/// Records how a script ended, and what it printed.
pub struct Outcome {
    /// Its exit status.
    pub status: i32,
    /// All that it printed.
    pub output: String,
}

/// The border with all that is around it, alive as long as this value.
pub struct Rig {
    border: Namespace,
    _others: [Namespace; 3],
    directory: TempDir,
    programs: PathBuf,
}

impl Rig {
    /// Builds the network and the border's files.
    ///
    /// # Errors
    /// The first command that failed, or a page without a configuration.
    pub fn build(root: &Path, programs: &Path) -> Result<Self> {
        let new = |name| Namespace::new(name);
        let [border, host, other, far] = [new("border")?, new("host")?, new("other")?, new("far")?];
        border.connect("eth0", &host, "eth0")?;
        border.connect("wan0", &other, "wan0")?;
        border.connect("wan1", &other, "wan1")?;
        other.connect("eth0", &far, "eth0")?;
        for (namespace, device, address) in [
            (&border, "eth0", "10.1.0.1/24"),
            (&border, "wan0", "192.0.2.2/24"),
            (&border, "wan1", "198.51.100.2/24"),
            (&host, "eth0", "10.1.0.2/24"),
            (&other, "wan0", "192.0.2.1/24"),
            (&other, "wan1", "198.51.100.1/24"),
            (&other, "eth0", "10.2.0.1/24"),
            (&far, "eth0", "10.2.0.5/24"),
        ] {
            namespace.run(&format!("ip address add {address} dev {device}"))?;
            namespace.run(&format!("ip link set {device} up"))?;
        }
        for router in [&border, &other] {
            router.sysctl("net.ipv4.ip_forward", "1")?;
            for which in ["all", "default", "wan0", "wan1", "eth0"] {
                router.sysctl(&format!("net.ipv4.conf.{which}.rp_filter"), "0")?;
            }
        }
        border.run("ip route add default via 192.0.2.1")?;
        host.run("ip route add default via 10.1.0.1")?;
        other.run("ip route add 10.1.0.0/24 via 192.0.2.2")?;
        far.run("ip route add default via 10.2.0.1")?;

        let directory = tempfile::tempdir().context("cannot make a directory")?;
        let write = |name: &str, text: &str| {
            fs::write(directory.path().join(name), text)
                .with_context(|| format!("cannot write {name}"))
        };
        write("splitter.toml", &configuration_of(root, PAGE)?)?;
        write("driver", DRIVER)?;
        fs::create_dir(directory.path().join("bin"))?;
        write("bin/sudo", SUDO)?;
        let sudo = directory.path().join("bin/sudo");
        fs::set_permissions(sudo, fs::Permissions::from_mode(0o755))?;
        Ok(Self {
            border,
            _others: [host, other, far],
            directory,
            // Commands run in a directory of their own.
            programs: fs::canonicalize(programs)
                .with_context(|| format!("there is no {}", programs.display()))?,
        })
    }

    /// Runs scripts one after the other, each for a minute at the most, next to one agent.
    ///
    /// # Errors
    /// When the agent is not ready or does not end well, with what it said.
    pub fn run(&self, scripts: &[String]) -> Result<Vec<Outcome>> {
        let path = |name: &str| self.directory.path().join(name);
        for (number, script) in scripts.iter().enumerate() {
            fs::write(path(&format!("{number}.sh")), script)?;
        }
        let isolation = Isolation::with_bpffs(Path::new("/sys/fs/bpf"))?;
        let inherited = std::env::var("PATH").unwrap_or_default();
        let (own, built) = (path("bin"), &self.programs);
        let output = self
            .border
            .command_isolated("sh", &isolation)
            .arg("-eu")
            .arg(path("driver"))
            .arg(self.directory.path())
            .arg(scripts.len().to_string())
            .env(
                "PATH",
                format!("{}:{}:{inherited}", own.display(), built.display()),
            )
            .stdin(Stdio::null())
            .output()
            .context("cannot start a shell at the border")?;
        if !output.status.success() {
            bail!(
                "the border of the book's commands: {}: {}{}",
                output.status,
                String::from_utf8_lossy(&output.stderr),
                fs::read_to_string(path("agent.log")).unwrap_or_default()
            );
        }
        let read = |number: usize, ending: &str| {
            let bytes = fs::read(path(&format!("{number}.{ending}")))?;
            Ok::<_, std::io::Error>(String::from_utf8_lossy(&bytes).into_owned())
        };
        let each = (0..scripts.len()).map(|number| {
            let status = read(number, "status")?;
            Ok(Outcome {
                status: status.trim().parse().context("no exit status")?,
                output: read(number, "out")?,
            })
        });
        each.collect()
    }
}

#[cfg(test)]
mod tests {
    use flow_testbed::{require, require::Requirement::*};

    use super::*;

    /// An agent that is ready at once and ends when it is told to.
    const AGENT: &str = "#!/usr/bin/env python3\n\
        import http.server, sys\n\
        if sys.argv[1:] != ['run']: sys.exit(7)\n\
        class Ready(http.server.BaseHTTPRequestHandler):\n\
        \x20   def do_GET(self): self.send_response(200); self.end_headers()\n\
        import os, signal; signal.signal(signal.SIGTERM, lambda *_: os._exit(0))\n\
        http.server.HTTPServer(('127.0.0.1', 9461), Ready).serve_forever()\n";

    #[test]
    fn scripts_run_at_the_border_and_leave_nothing_behind() {
        require!(Root, Program("ip"), Program("ethtool"), Program("curl"));
        require!(Program("python3"), FileSystem("bpf"));
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let programs = tempfile::tempdir().unwrap();
        let agent = programs.path().join("splitter");
        fs::write(&agent, AGENT).unwrap();
        fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
        let rig = Rig::build(&root, programs.path()).unwrap();
        let scripts = [
            "grep -q wan0 /etc/splitter/splitter.toml\nping -c1 -W1 10.2.0.5 || ip route get 10.2.0.5\n",
            "sudo -E splitter status\necho never\n",
            "touch /etc/only-there /run/only-there",
        ];
        let outcomes = rig.run(&scripts.map(str::to_owned)).unwrap();
        let statuses: Vec<i32> = outcomes.iter().map(|it| it.status).collect();
        assert_eq!(statuses, [0, 7, 0], "{}", outcomes[0].output);
        assert_eq!(outcomes[1].output, "");
        for place in ["/etc/only-there", "/run/only-there"] {
            assert!(!Path::new(place).exists(), "{place}");
        }
    }
}
