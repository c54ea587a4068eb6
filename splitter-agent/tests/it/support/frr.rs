//! FRR at a border: zebra and bgpd with files and sockets of their own, in the border's namespace.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use flow_testbed::namespace::Namespace;
use tempfile::TempDir;

use super::daemon::Daemon;
use super::site::{PATIENCE, output, stderr, stdout, within};

/// Where Debian has the daemons; they are in nobody's `PATH`.
const DAEMONS: &str = "/usr/lib/frr";

/// A router that speaks BGP; it ends with the test.
pub(crate) struct Frr {
    border: Namespace,
    directory: TempDir,
    bgpd: Daemon,
    zebra: Daemon,
}

impl Frr {
    /// Starts both daemons at a border, with this configuration of bgpd.
    pub(crate) fn start(border: &Namespace, bgp: &str) -> Self {
        let home = home(bgp);
        let directory = home.path().to_owned();
        let start = |name: &str, more: &[&str]| {
            let mut command = border.command(&format!("{DAEMONS}/{name}"));
            let path = |end: &str| directory.join(format!("{name}.{end}"));
            command
                .args(["-P", "0", "--log", "stdout"])
                .arg("-f")
                .arg(path("conf"))
                .arg("-i")
                .arg(path("pid"))
                .arg("-z")
                .arg(directory.join("zserv.api"))
                .arg("--vty_socket")
                .arg(&directory)
                .args(more);
            Daemon::start(command, &path("log"))
        };
        let zebra = start("zebra", &[]);
        within(PATIENCE, "zebra to listen", || {
            assert!(zebra.is_running(), "it ended:\n{}", zebra.log());
            directory.join("zserv.api").exists().then_some(())
        });
        let bgpd = start("bgpd", &["-p", "179"]);
        let frr = Self {
            border: border.clone(),
            directory: home,
            bgpd,
            zebra,
        };
        within(PATIENCE, "bgpd to take commands", || {
            assert!(frr.bgpd.is_running(), "it ended:\n{}", frr.bgpd.log());
            frr.try_tell(&["show bgp summary"]).ok()
        });
        frr
    }

    /// Has it carry out commands as at its terminal; its answer.
    #[track_caller]
    pub(crate) fn tell(&self, commands: &[&str]) -> String {
        self.try_tell(commands)
            .unwrap_or_else(|error| panic!("{commands:?}: {error}\n{}", self.log()))
    }

    /// What both have logged.
    pub(crate) fn log(&self) -> String {
        format!("{}\n{}", self.zebra.log(), self.bgpd.log())
    }

    fn try_tell(&self, commands: &[&str]) -> Result<String, String> {
        let mut command: Command = self.border.command("vtysh");
        command.arg("--vty_socket").arg(self.directory.path());
        for line in commands {
            command.args(["-c", line]);
        }
        let output = output(command);
        let said = stdout(&output) + &stderr(&output);
        match output.status.success() && !said.contains("% ") {
            true => Ok(said),
            false => Err(said),
        }
    }
}

/// A directory with the daemons' files, which they read as the user that the package has made for
/// them.
fn home(bgp: &str) -> TempDir {
    let home = TempDir::with_prefix("splitter-frr-").expect("a directory");
    let path = home.path();
    fs::write(path.join("bgpd.conf"), bgp).expect("a file");
    fs::write(path.join("zebra.conf"), "").expect("a file");
    fs::set_permissions(path, Permissions::from_mode(0o755)).expect("it is ours");
    let mut chown = Command::new("chown");
    chown.args(["-R", "frr:frr"]).arg(path);
    let done = output(chown);
    assert!(done.status.success(), "{}", stderr(&done));
    home
}
