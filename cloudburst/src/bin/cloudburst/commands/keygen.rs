//! `cloudburst keygen`: a new key in a file of its own.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    path::PathBuf,
};

use anyhow::Context as _;
use cloudburst::protocol::packet::{Key, SECRET_BYTES};
use serde_json::json;

use super::{print, print_json};
use crate::cli::{ExitCode, KeygenArgs};

/// A file is in the way.
#[derive(Debug, thiserror::Error)]
#[error("{} exists and may be somebody's key; choose another name, or --force to overwrite it", .0.display())]
pub(crate) struct FileExists(PathBuf);

pub(crate) fn run(args: &KeygenArgs, as_json: bool) -> anyhow::Result<ExitCode> {
    let mut secret = [0; SECRET_BYTES];
    getrandom::fill(&mut secret)
        .map_err(io::Error::other)
        .context("cannot draw random numbers")?;
    let key = Key::new(args.id, secret);
    write(args, &key)?;
    let file = args.file.display();
    if as_json {
        print_json(&json!({ "file": args.file, "id": args.id }))?;
    } else {
        print(format_args!(
            "Wrote key {} to {file}, readable by you alone.\n\
             Copy it to the other machine by a safe way (scp), and give it to both ends:\n\n  \
             cloudburst serve --key-file {file}\n  \
             cloudburst ping --key-file {file} HOST:4433\n\n\
             To change keys without a gap, add the new key as a further line on both ends, then\n\
             make it the first line on both, then take the old one out.",
            args.id
        ))?;
    }
    Ok(ExitCode::Ok)
}

/// A file that is there is replaced as a whole: the new one never has the old one's permissions.
fn write(args: &KeygenArgs, key: &Key) -> anyhow::Result<()> {
    let file = args.file.display();
    if args.force
        && let Err(error) = std::fs::remove_file(&args.file)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error).with_context(|| format!("cannot overwrite {file}"));
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut opened = match options.open(&args.file) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(FileExists(args.file.clone()).into());
        }
        opened => opened.with_context(|| format!("cannot create {file}"))?,
    };
    writeln!(opened, "{key}")
        .and_then(|()| opened.sync_all())
        .with_context(|| format!("cannot write {file}"))
}
