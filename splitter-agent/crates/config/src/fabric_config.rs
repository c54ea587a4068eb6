//! The configuration of a leaf or a spine: a file of its own, for a spine has neither a site nor tunnels.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::config::{Config, Given};
use crate::declaration::key;
use crate::declare::{Section as _, section};
use crate::diagnostic::ConfigError;
use crate::key::Change::Restart;
use crate::kind::{instance_name, path, socket_address};
use crate::sections::{Fabric, read_fabric_lists, role_is_possible};
use crate::source::Source;
use crate::values::InstanceName;

/// Path at which the configuration of a leaf or a spine is looked for when no `--config` is given.
pub const FABRIC_PATH: &str = "/etc/splitter/fabric.toml";

const MOVES: &str = "`splitter fabric down` under the old value, then start it under the new one";
const AGAIN: &str = "end `splitter fabric run` and start it again";
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9463);

section! {
    /// Everything that a leaf or a spine is configured with.
    pub struct FabricConfig, GivenFabricConfig {
        /// Programs and maps are pinned under `<bpffs>/splitter-fabric/<name>`.
        name: InstanceName = key("name", Restart(MOVES), instance_name())
            .default(InstanceName::default())
            .trade_off("Another one is for another network namespace of the machine.");

        /// The lock of the role lies under `<runtime_dir>`, by the path of its pins.
        runtime_dir: PathBuf = key("runtime_dir", Restart(MOVES), path())
            .default(PathBuf::from(FabricConfig::DEFAULT_RUNTIME_DIR))
            .trade_off("One process at a time may `run`, `up` or `down` what is pinned at a place.");

        /// The BPF file system is mounted here.
        bpffs: PathBuf = key("bpffs", Restart(MOVES), path())
            .default(PathBuf::from(Config::DEFAULT_BPFFS))
            .trade_off("");
    }
    sections {
        /// Says what the machine is in the fabric.
        fabric: Fabric;
        /// Says where metrics are served.
        metrics: FabricMetrics;
    }
}

section! {
    /// Says where the metrics of a leaf or a spine are served.
    pub struct FabricMetrics, GivenFabricMetrics {
        /// Sets where /metrics, /live and /ready are served.
        address: SocketAddr = key("address", Restart(AGAIN), socket_address())
            .default(ADDRESS)
            .trade_off("There is no authentication: everybody who reaches it can read it.");
    }
}

impl FabricConfig {
    /// The directory of locks where the file names none.
    pub const DEFAULT_RUNTIME_DIR: &str = "/run/splitter-fabric";

    /// Reads and parses the file at `path`.
    ///
    /// # Errors
    /// When the file cannot be read, and with every mistake in it when it is wrong.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text, &path.display().to_string())
    }

    /// Parses `text`; messages call it `name`.
    ///
    /// # Errors
    /// With every mistake in the text.
    ///
    /// ```
    /// use splitter_config::FabricConfig;
    ///
    /// let text = "[fabric]\nrole = 'spine'\ndscp = 0\n[[fabric.ports]]\ndevice = 'eth1'\nrate_mbit = 100";
    /// let error = FabricConfig::parse(text, "fabric.toml").unwrap_err();
    /// assert!(error.to_string().starts_with("fabric.toml:3: fabric.dscp = 0: "));
    /// ```
    pub fn parse(text: &str, name: &str) -> Result<Self, ConfigError> {
        let source = Source::new(text, name);
        let config = source.is_toml().then(|| parsed(&source)).flatten();
        let diagnostics = source.finish();
        match config {
            Some(config) if diagnostics.is_empty() => Ok(config),
            _ => Err(ConfigError::Wrong(diagnostics)),
        }
    }

    /// Tells if Linux's `pfifo_fast` and `prio` have the fabric's ACKs wait among best effort. They sort by
    /// three bits of the former TOS, two of which are the DSCP's.
    #[must_use]
    pub fn is_best_effort(&self) -> bool {
        self.fabric.dscp.get() & 0b110 == 0
    }

    /// Returns the directory of its lock: another one for each BPF file system.
    #[must_use]
    pub fn instance_dir(&self) -> PathBuf {
        let pins = self.pin_dir();
        self.runtime_dir
            .join(pins.strip_prefix("/").unwrap_or(&pins))
    }

    /// Returns the directory of its pinned programs, maps and links: apart from those of instances that
    /// split.
    #[must_use]
    pub fn pin_dir(&self) -> PathBuf {
        pin_dir(&self.bpffs, &self.name)
    }
}

impl Config {
    /// Returns where the programs of the leaf are pinned whose spines packets choose by; none where they do not.
    #[must_use]
    pub fn heard_fabric(&self) -> Option<PathBuf> {
        let name = self.fabric.as_ref()?;
        Some(pin_dir(&self.bpffs, name))
    }
}

fn pin_dir(bpffs: &Path, name: &InstanceName) -> PathBuf {
    bpffs.join("splitter-fabric").join(name.as_str())
}

/// `None` only where something required is missing or wrong, which the source has noted.
fn parsed(source: &Source<'_>) -> Option<FabricConfig> {
    let mut given = FabricConfig::read(&source.top());
    let section = source.section("fabric");
    read_fabric_lists(&section, &mut given.fabric);
    let config = FabricConfig::complete(&given, &Given::default())?;
    role_is_possible(&section, &config.fabric);
    Some(config)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sections::FabricRole;

    const LEAF: &str = "[fabric]\nrole = 'leaf'\ndscp = 41\n\
        [[fabric.ports]]\ndevice = 'up0'\n[[fabric.ports]]\ndevice = 'up1'\n\
        [[fabric.leaves]]\nnumber = 0\nprefixes = ['10.1.0.0/16']\n\
        [[fabric.leaves]]\nnumber = 1\nprefixes = ['10.2.0.0/16', '2001:db8:2::/48']\n";
    const SPINE: &str = "[fabric]\nrole = 'spine'\ndscp = 41\nhops = 4\nqueue_ms = 10\n\
        [[fabric.ports]]\ndevice = 'leaf0'\nrate_mbit = 100\n[metrics]\naddress = '[::1]:9000'\n";

    fn parse(text: &str) -> Result<FabricConfig, String> {
        FabricConfig::parse(text, "f").map_err(|error| error.to_string())
    }

    #[test]
    fn leaf_and_spine_are_read_with_their_defaults() {
        let leaf = parse(LEAF).unwrap();
        assert_eq!(leaf.fabric.role, FabricRole::Leaf);
        assert_eq!((leaf.fabric.hops, leaf.fabric.dscp.get()), (3, 41));
        assert_eq!(leaf.fabric.queue, Duration::from_millis(25));
        assert_eq!(leaf.fabric.ports[1].device.as_str(), "up1");
        assert_eq!(leaf.fabric.leaves[1].prefixes.len(), 2);
        assert_eq!(leaf.metrics.address, ADDRESS);
        assert_eq!(
            leaf.pin_dir(),
            Path::new("/sys/fs/bpf/splitter-fabric/default")
        );
        assert_eq!(
            leaf.instance_dir(),
            Path::new("/run/splitter-fabric/sys/fs/bpf/splitter-fabric/default")
        );
        assert!(!leaf.fabric.restore_only);
        let restores = parse(&LEAF.replace("dscp = 41", "dscp = 41\nrestore_only = true"));
        assert!(restores.unwrap().fabric.restore_only);
        assert!(leaf.is_best_effort());
        for (dscp, expected) in [(40, true), (42, false), (44, false), (49, true)] {
            let other = parse(&LEAF.replace("dscp = 41", &format!("dscp = {dscp}"))).unwrap();
            assert_eq!(other.is_best_effort(), expected, "{dscp}");
        }
        let spine = parse(SPINE).unwrap();
        assert_eq!(spine.fabric.role, FabricRole::Spine);
        assert_eq!((spine.fabric.hops, spine.fabric.queue.as_millis()), (4, 10));
        assert_eq!(spine.fabric.ports[0].rate_mbit.unwrap().get(), 100);
    }

    #[test]
    fn each_mistake_is_named_with_its_remedy_once() {
        let replaced = |text: &str, from: &str, to: &str| {
            assert!(text.contains(from), "{from}");
            text.replacen(from, to, 1)
        };
        let mut wrong = Vec::new();
        for (text, expected) in [
            (
                replaced(LEAF, "role = 'leaf'\n", ""),
                "fabric.role: this key is required",
            ),
            (
                replaced(LEAF, "'leaf'", "'host'"),
                "give one of \"leaf\", \"spine\"",
            ),
            (
                replaced(LEAF, "dscp = 41\n", ""),
                "fabric.dscp: this key is required",
            ),
            (replaced(LEAF, "dscp = 41", "dscp = 64"), "fabric.dscp = 64"),
            (replaced(SPINE, "hops = 4", "hops = 7"), "fabric.hops = 7"),
            (replaced(SPINE, "hops = 4", "hops = 2"), "fabric.hops = 2"),
            (
                replaced(SPINE, "queue_ms = 10", "queue_ms = 0"),
                "fabric.queue_ms = 0",
            ),
            (
                replaced(SPINE, "rate_mbit = 100", ""),
                "of leaf0 it is not said what it carries",
            ),
            (
                replaced(SPINE, "rate_mbit = 100", "rate_mbit = 0"),
                "would never drain",
            ),
            (
                replaced(LEAF, "'up0'\n", "'up0'\nrate_mbit = 5\n"),
                "nobody looks at what up0",
            ),
            (replaced(LEAF, "'up1'", "'up0'"), "up0 is listed twice"),
            (
                replaced(SPINE, "hops = 4", "restore_only = true"),
                "a spine restores nothing",
            ),
            (
                replaced(LEAF, "number = 1", "number = 0"),
                "two leaves have the number 0",
            ),
            (
                replaced(LEAF, "number = 1", "number = 16"),
                "fabric.leaves.number = 16",
            ),
            (
                replaced(LEAF, "10.2.0.0/16", "10.1.0.0/16"),
                "10.1.0.0/16 is listed twice",
            ),
            (
                replaced(LEAF, "10.2.0.0/16", "10.2.0.1/16"),
                "fabric.leaves.prefixes",
            ),
            (
                replaced(LEAF, "device = 'up0'", "devise = 'up0'"),
                "fabric.ports.devise",
            ),
            (
                replaced(LEAF, "number = 0", "nr = 0"),
                "fabric.leaves.number: this key is required",
            ),
            (format!("lan = 'eth0'\n{LEAF}"), "lan = 'eth0': unknown key"),
            (format!("{SPINE}[marks]\n"), "marks: unknown section"),
            (
                format!("{SPINE}[[fabric.leaves]]\nnumber = 0\nprefixes = '::/0'\n"),
                "a spine does not look at",
            ),
            (
                "[fabric]\nrole = 'spine'\ndscp = 1\n".to_owned(),
                "fabric.ports: this key is required",
            ),
            (
                "[fabric]\nrole = 'spine'\ndscp = 1\nports = []\n".to_owned(),
                "the list has 0 ports",
            ),
            (
                "[fabric]\nrole = 'spine'\ndscp = 1\nports = 5\n".to_owned(),
                "not a section",
            ),
            (
                LEAF.split("[[fabric.leaves]]").next().unwrap().to_owned(),
                "the list has 0 leaves",
            ),
            ("fabric = 5\n".to_owned(), "not a section"),
        ] {
            match parse(&text) {
                Err(reported) if reported.matches(expected).count() == 1 => {}
                other => wrong.push(format!("{expected}: {other:?}")),
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}
