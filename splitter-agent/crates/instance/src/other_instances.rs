//! Other instances on this machine.

use std::io;

use splitter_config::Config;
use splitter_steering::routes::Footprint;

use crate::InstanceError;
use crate::files::FileError;
use crate::state::{State, current_network};

/// Refuses a configuration whose tables or rule priorities another instance has, as far as its
/// state is under the same `runtime_dir`. One in another network namespace is not in the way.
pub(crate) fn check(config: &Config) -> Result<(), InstanceError> {
    let footprint = Footprint::of(config);
    let network = current_network();
    let failed = |source| FileError::new("list", &config.runtime_dir, source);
    let entries = match std::fs::read_dir(&config.runtime_dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        let directory = entry.map_err(failed)?.path();
        if !directory.is_dir() || directory == config.instance_dir() {
            continue;
        }
        let Some(state) = State::read(&directory)? else {
            continue;
        };
        let elsewhere = state.network.is_some() && state.network != network;
        let footprints = state.footprints().into_iter();
        let mut shared = footprints.filter_map(|it| footprint.shared_with(it));
        if let Some(shared) = shared.next()
            && !elsewhere
        {
            let name = directory.file_name().unwrap_or_default();
            return Err(InstanceError::OtherInstance {
                name: name.to_string_lossy().into_owned(),
                shared,
                directory,
            });
        }
    }
    Ok(())
}
