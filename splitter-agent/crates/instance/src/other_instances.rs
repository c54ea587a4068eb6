//! Other instances on this machine.

use std::path::PathBuf;

use splitter_config::{Config, Location};
use splitter_steering::routes::Footprint;

use crate::found::Search;
use crate::state::{State, current_network};
use crate::{InstanceError, pin_owner};

/// Refuses a configuration whose tables or rule priorities another instance has: one with its state
/// under the same `runtime_dir`, where instances are by default or where an agent listens, or with
/// pins in the same BPF file system. One in another network namespace is not in the way.
///
/// Of an instance that is up only the first are asked: the others have asked, when they came.
pub(crate) fn check(config: &Config, is_up: bool) -> Result<(), InstanceError> {
    let footprint = Footprint::of(config);
    let network = current_network();
    let own = config.instance_dir();
    let mut directories = directories(config, is_up)?;
    directories.retain(|directory| *directory != own);
    for directory in directories {
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

/// The directories in which states of instances may be.
pub(crate) fn directories(config: &Config, is_up: bool) -> Result<Vec<PathBuf>, InstanceError> {
    let search = match is_up {
        true => Search::under(&config.runtime_dir),
        false => Search::everywhere(&Location {
            name: config.name.clone(),
            directory: config.instance_dir(),
        }),
    };
    let mut directories: Vec<_> = search
        .instances()?
        .into_iter()
        .map(|it| it.directory)
        .collect();
    if !is_up {
        directories.extend(pin_owner::beside(config));
    }
    directories.sort();
    directories.dedup();
    Ok(directories)
}
