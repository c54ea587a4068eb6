//! The keys of several files, where sites have keys of their own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{KeyError, KeyRing};

/// The keys by the file that they are from. All clones share them.
#[derive(Clone, Debug, Default)]
pub struct KeyRings(Arc<Mutex<BTreeMap<PathBuf, KeyRing>>>);

impl KeyRings {
    /// Reads the keys in each of these files.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn load<'p>(files: impl IntoIterator<Item = &'p Path>) -> Result<Self, KeyError> {
        let rings = files
            .into_iter()
            .map(|file| Ok((file.to_owned(), KeyRing::load(file)?)));
        let rings = rings.collect::<Result<BTreeMap<_, _>, _>>()?;
        Ok(Self(Arc::new(Mutex::new(rings))))
    }

    /// Returns the keys from a file, which is read if it has not been.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn of(&self, file: &Path) -> Result<KeyRing, KeyError> {
        if let Some(ring) = self.rings().get(file) {
            return Ok(ring.clone());
        }
        let ring = KeyRing::load(file)?;
        Ok(self.rings().entry(file.to_owned()).or_insert(ring).clone())
    }

    /// Goes by the keys of `other` from now on, wherever those of the same file are in use.
    pub fn replace(&self, other: &Self) {
        // Not both locked at a time.
        let others = other.rings().clone();
        let mut own = self.rings();
        for (file, ring) in others {
            match own.get(&file) {
                Some(known) => known.replace(&ring),
                None => drop(own.insert(file, ring)),
            }
        }
    }

    /// Returns what tells the keys of each file from others, and nothing else about them.
    #[must_use]
    pub fn fingerprints(&self) -> BTreeMap<PathBuf, Vec<String>> {
        let rings = self.rings();
        let fingerprints = rings.iter();
        fingerprints
            .map(|(file, ring)| (file.clone(), ring.fingerprints()))
            .collect()
    }

    fn rings(&self) -> MutexGuard<'_, BTreeMap<PathBuf, KeyRing>> {
        // A panic elsewhere does not make plain values wrong.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn write(path: &Path, digit: char) {
        std::fs::write(path, digit.to_string().repeat(64)).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    #[test]
    fn keys_in_use_are_replaced_by_those_of_the_same_file_alone() {
        let directory = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| directory.path().join(name));
        write(&one, '1');
        write(&two, '2');
        let rings = KeyRings::load([&*one]).unwrap();
        let [first, second] = [&one, &two].map(|file| rings.of(file).unwrap());
        let before = [&first, &second].map(KeyRing::fingerprints);
        assert_ne!(before[0], before[1]);
        write(&one, '3');
        // What has been read stays until somebody asks for it to be read again.
        assert_eq!(rings.of(&one).unwrap().fingerprints(), before[0]);
        rings.replace(&KeyRings::load([&*one, &*two]).unwrap());
        assert_ne!(first.fingerprints(), before[0]);
        assert_eq!(second.fingerprints(), before[1]);
        assert_eq!(rings.fingerprints()[&one], first.fingerprints());
    }
}
