//! Rows of a campaign in files, so that one of hours goes on where it was.
//!
//! Each cell (a point of the comparison, by its name) has a file of its own: what its runs have in
//! common, and a row or more for each run that has ended.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The directory in which a campaign keeps the rows of its cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedCells {
    directory: PathBuf,
    resume: bool,
}

/// Why rows could not be kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeepError {
    /// The directory could not be made.
    #[error("cannot make the directory {path}: {source}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The rows have no JSON.
    #[error("cannot write the rows of {cell} as JSON: {source}")]
    Encode {
        /// The cell.
        cell: String,
        /// What is wrong with them.
        source: serde_json::Error,
    },
    /// The file could not be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// A file's contents.
#[derive(Debug, Serialize, Deserialize)]
struct Finished<C, R> {
    cell: String,
    /// Runs are comparable with each other only if these are equal.
    #[serde(flatten)]
    conditions: C,
    rows: Vec<R>,
}

impl FinishedCells {
    /// Keeps rows in `directory`, which is made if it is not there. With `resume` those of a campaign before are
    /// taken over; without, a cell's are replaced when it is kept.
    ///
    /// # Errors
    /// When the directory could not be made.
    pub fn open(directory: &Path, resume: bool) -> Result<Self, KeepError> {
        let path = directory.to_owned();
        match fs::create_dir_all(&path) {
            Ok(()) => Ok(Self {
                directory: path,
                resume,
            }),
            Err(source) => Err(KeepError::Directory { path, source }),
        }
    }

    /// Returns the rows of a cell that are to be taken over: none without `resume`, without a file that can be
    /// read, or where the runs were made under other conditions.
    pub fn take_over<C, R>(&self, cell: &str, conditions: &C) -> Vec<R>
    where
        C: DeserializeOwned + PartialEq,
        R: DeserializeOwned,
    {
        let read = || -> Option<Finished<C, R>> {
            serde_json::from_str(&fs::read_to_string(self.file(cell)).ok()?).ok()
        };
        let finished = self.resume.then(read).flatten();
        let alike = finished.filter(|it| it.cell == cell && it.conditions == *conditions);
        alike.map(|it| it.rows).unwrap_or_default()
    }

    /// Writes the rows of a cell down. A reader never sees half of a file.
    ///
    /// # Errors
    /// When something could not be written; what was there before is still there then.
    pub fn keep<C, R>(&self, cell: &str, conditions: &C, rows: &[R]) -> Result<(), KeepError>
    where
        C: Serialize,
        R: Serialize,
    {
        let finished = Finished {
            cell: cell.to_owned(),
            conditions,
            rows: rows.iter().collect(),
        };
        let text = serde_json::to_string(&finished).map_err(|source| KeepError::Encode {
            cell: cell.to_owned(),
            source,
        })?;
        let path = self.file(cell);
        let unfinished = path.with_extension("unfinished");
        fs::write(&unfinished, text)
            .and_then(|()| fs::rename(&unfinished, &path))
            .map_err(|source| KeepError::Write { path, source })
    }

    fn file(&self, cell: &str) -> PathBuf {
        self.directory.join(format!("{cell}.json"))
    }
}

/// Lists which scheme runs when: each once with every seed, and each seed begins with another one, so that what
/// drifts on the machine falls on all alike.
pub fn turns<T: Clone>(schemes: &[T], seeds: impl IntoIterator<Item = u64>) -> Vec<(u64, T)> {
    let mut turns = Vec::new();
    for (number, seed) in seeds.into_iter().enumerate() {
        let rotation = schemes.iter().cycle().skip(number % schemes.len().max(1));
        turns.extend(rotation.take(schemes.len()).map(|it| (seed, it.clone())));
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
    struct Conditions {
        seconds: u64,
    }

    const SHORT: Conditions = Conditions { seconds: 3 };
    const CELL: &str = "bulk4-0.2ms";

    #[test]
    fn rows_are_taken_over_if_the_runs_were_alike() -> Result<(), Box<dyn std::error::Error>> {
        let directory = tempfile::tempdir()?;
        let below = directory.path().join("out");
        let resumed = FinishedCells::open(&below, true)?;
        assert_eq!(resumed.take_over::<_, u32>(CELL, &SHORT), [0_u32; 0]);
        resumed.keep(CELL, &SHORT, &[1, 2])?;
        assert_eq!(resumed.take_over::<_, u32>(CELL, &SHORT), [1, 2]);

        let longer = Conditions { seconds: 4 };
        assert_eq!(resumed.take_over::<_, u32>(CELL, &longer), [0_u32; 0]);
        let afresh = FinishedCells::open(&below, false)?;
        assert_eq!(afresh.take_over::<_, u32>(CELL, &SHORT), [0_u32; 0]);
        // Another cell's file under this one's name.
        fs::copy(resumed.file(CELL), resumed.file("idle-0.2ms"))?;
        assert_eq!(
            resumed.take_over::<_, u32>("idle-0.2ms", &SHORT),
            [0_u32; 0]
        );
        Ok(())
    }

    #[test]
    fn file_that_is_cut_off_is_none() -> Result<(), Box<dyn std::error::Error>> {
        let directory = tempfile::tempdir()?;
        let cells = FinishedCells::open(directory.path(), true)?;
        cells.keep(CELL, &SHORT, &[1, 2])?;
        let text = fs::read_to_string(cells.file(CELL))?;
        fs::write(cells.file(CELL), &text[..text.len() - 2])?;
        assert_eq!(cells.take_over::<_, u32>(CELL, &SHORT), [0_u32; 0]);
        Ok(())
    }

    #[test]
    fn directory_that_cannot_be_made_is_named() -> Result<(), Box<dyn std::error::Error>> {
        let file = tempfile::NamedTempFile::new()?;
        let error = FinishedCells::open(&file.path().join("out"), true);
        let error = error.expect_err("it lies in a file");
        assert!(
            error.to_string().contains("cannot make the directory"),
            "{error}"
        );
        Ok(())
    }

    #[test]
    fn schemes_take_turns_and_each_seed_begins_with_another_one() {
        let expected = [(7, 'a'), (7, 'b'), (8, 'b'), (8, 'a')];
        assert_eq!(turns(&['a', 'b'], [7, 8]), expected);
        assert!(turns::<char>(&[], [1]).is_empty());
    }
}
