//! The compiled kernel programs, embedded.

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

use aya::include_bytes_aligned;
use splitter_config::{Balancers, Config, PacketLog, SteeringMode};

use super::names::{BALANCED, BALANCED_BY_DSCP, BALANCED_PAST_STACK};
use super::program::program_name;

/// Name of the program that splits unless something else is asked for.
pub const PROGRAM: &str = program_name(SteeringMode::Dscp);

/// A directory whose objects take the place of the embedded ones; how a freshly
/// built object is tested before it is committed.
pub(super) const OVERRIDE_VARIABLE: &str = "SPLITTER_EBPF_OBJECT_DIR";

/// One build of the kernel programs.
#[derive(Clone, Debug)]
pub struct Object {
    bytes: Cow<'static, [u8]>,
    level: PacketLog,
    balancers: Option<Balancers>,
    /// The program that chooses marks the class by the DSCP.
    by_dscp: bool,
}

impl Object {
    /// The build that logs as much as `level` asks for: without any logging
    /// code when it is off.
    ///
    /// # Errors
    /// Only when `SPLITTER_EBPF_OBJECT_DIR` names a directory without the object.
    pub fn for_level(level: PacketLog) -> io::Result<Self> {
        let (name, embedded): (_, &'static [u8]) = match level {
            PacketLog::Off => ("splitter.o", include_bytes_aligned!("../bpf/splitter.o")),
            _ => (
                "splitter-log.o",
                include_bytes_aligned!("../bpf/splitter-log.o"),
            ),
        };
        let bytes = match std::env::var_os(OVERRIDE_VARIABLE) {
            Some(directory) => std::fs::read(PathBuf::from(directory).join(name))?.into(),
            None => embedded.into(),
        };
        Ok(Self {
            bytes,
            level,
            balancers: None,
            by_dscp: false,
        })
    }

    /// Has the program of this build choose among tunnels as a configuration says, if it does.
    #[must_use]
    pub fn balancing(self, config: &Config) -> Self {
        Self {
            balancers: config.balancers(),
            by_dscp: config.mark_bits().is_none(),
            ..self
        }
    }

    /// The name of the program for a way of steering.
    pub(super) fn program(&self, steering: SteeringMode) -> &'static str {
        match (steering, self.balancers) {
            (SteeringMode::Mark, Some(_)) if self.by_dscp => BALANCED_BY_DSCP,
            (SteeringMode::Mark, Some(_)) => BALANCED,
            (SteeringMode::Redirect, Some(_)) => BALANCED_PAST_STACK,
            (steering, _) => program_name(steering),
        }
    }

    /// How its program chooses among tunnels for each class, if it does.
    pub(super) fn balancers(&self) -> Option<Balancers> {
        self.balancers
    }

    /// Returns the ELF file's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// BLAKE3 hash of the file, the log level and the balancers, which are fixed when it is loaded;
    /// by it a running instance is recognised as being of this build.
    pub fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.bytes);
        hasher.update(self.level.as_str().as_bytes());
        if let Some(Balancers { short, long }) = self.balancers {
            hasher.update(format!("{short} {long} {}", self.by_dscp).as_bytes());
        }
        hasher.finalize().to_string()
    }
}
