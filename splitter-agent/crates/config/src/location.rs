//! Where an instance is to be found, also while its file is wrong elsewhere.

use std::path::{Path, PathBuf};

use super::{Config, InstanceName};

/// The keys that say where an agent's lock, state and control socket are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// Name of the instance.
    pub name: InstanceName,
    /// Directory of its lock, state and control socket.
    pub directory: PathBuf,
}

impl Location {
    /// Reads what `text` says of it, whatever else is wrong there; defaults where it says nothing that
    /// can be used. An agent judges the rest.
    #[must_use]
    pub fn in_text(text: &str) -> Self {
        let (table, _) = toml::de::DeTable::parse_recoverable(text);
        let string = |key: &str| Some(table.get_ref().get(key)?.get_ref().as_str()?.to_owned());
        let name: InstanceName = string("name")
            .and_then(|name| name.try_into().ok())
            .unwrap_or_default();
        let runtime_dir = string("runtime_dir")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
            .unwrap_or_else(|| Config::DEFAULT_RUNTIME_DIR.into());
        Self {
            directory: runtime_dir.join(name.as_str()),
            name,
        }
    }

    /// Reads what the file at `path` says of it; of one that cannot be read, the defaults.
    #[must_use]
    pub fn in_file(path: &Path) -> Self {
        Self::in_text(&std::fs::read_to_string(path).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn found_in_a_text_that_is_wrong_elsewhere() {
        let place = |text| Location::in_text(text).directory;
        assert_eq!(place(""), Path::new("/run/splitter/default"));
        assert_eq!(
            place("name = 'b'\nruntime_dir = '/x'\nzebra = [1,\n"),
            Path::new("/x/b")
        );
        assert_eq!(
            place("name = '../b'\nruntime_dir = 'x'"),
            Path::new("/run/splitter/default")
        );
    }
}
