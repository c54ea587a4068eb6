//! `cloudburst keygen`: a new key in a file of its own.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use cloudburst::{Key, SECRET_BYTES, SecretKey};
use flow_cli::ExitCode;
use flow_cli::{print, print_json};
use serde_json::json;

use crate::cli::KeygenArgs;

/// Something is in the way of a new key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InTheWay {
    #[error("{} exists and may be somebody's key; choose another name, or --force to overwrite it", .0.display())]
    File(PathBuf),
    #[error("{} is a directory; name a file in it", .0.display())]
    Directory(PathBuf),
}

pub(crate) fn run(args: &KeygenArgs, as_json: bool) -> anyhow::Result<ExitCode> {
    let mut secret = [0; SECRET_BYTES];
    getrandom::fill(&mut secret)
        .map_err(io::Error::other)
        .context("cannot draw random numbers")?;
    if args.shared {
        shared(args, &Key::new(args.id, secret), as_json)
    } else {
        pair(args, &SecretKey::new(secret), as_json)
    }
}

/// A key pair of this machine: the secret half stays, the public one is printed.
fn pair(args: &KeygenArgs, key: &SecretKey, as_json: bool) -> anyhow::Result<ExitCode> {
    write(args, key)?;
    let public = key.public().to_string();
    if as_json {
        print_json(&json!({ "file": args.file, "public": public }))?;
    } else {
        // For pipes: nothing but the key.
        print(public)?;
        tracing::info!(
            event = "key_written",
            "wrote the secret key to {}, readable by you alone; the line on standard output is the public key: give it to the other end, as a line of its --allow file or as its --peer-key",
            args.file.display()
        );
    }
    Ok(ExitCode::Ok)
}

fn shared(args: &KeygenArgs, key: &Key, as_json: bool) -> anyhow::Result<ExitCode> {
    write(args, key)?;
    let file = args.file.display();
    if as_json {
        print_json(&json!({ "file": args.file, "id": args.id }))?;
    } else {
        print(format_args!(
            "Wrote key {} to {file}, readable by you alone.\n\
             Copy it to the other machine by a safe way (scp), and give it to both ends:\n\n  \
             cloudburst serve --key-file {file}\n  \
             cloudburst ping --key-file {file} HOST:4433\n\n\
             Whoever has it can take the place of any end; with a key pair each\n\
             (`cloudburst keygen` without --shared) nobody can.\n\n\
             To change keys without a gap, add the new key as a further line on both ends, then\n\
             make it the first line on both, then take the old one out.",
            args.id
        ))?;
    }
    Ok(ExitCode::Ok)
}

fn write(args: &KeygenArgs, key: &impl std::fmt::Display) -> anyhow::Result<()> {
    if args.file.is_dir() {
        return Err(InTheWay::Directory(args.file.clone()).into());
    }
    if args.force {
        return replace(&args.file, key);
    }
    match create(&args.file, key) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(InTheWay::File(args.file.clone()).into())
        }
        created => created.with_context(|| format!("cannot write {}", args.file.display())),
    }
}

/// The caller that reads the file meanwhile sees the old key or the new one, and never the new one with
/// the old one's permissions.
fn replace(file: &Path, key: &impl std::fmt::Display) -> anyhow::Result<()> {
    let cannot = || format!("cannot overwrite {}", file.display());
    let name = file.file_name().with_context(cannot)?.to_string_lossy();
    let temporary = file.with_file_name(format!(".{name}.{}", std::process::id()));
    create(&temporary, key).with_context(cannot)?;
    let renamed = std::fs::rename(&temporary, file);
    if renamed.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    renamed.with_context(cannot)
}

/// A new file that its owner alone can read, whole or not at all.
fn create(file: &Path, key: &impl std::fmt::Display) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut opened = options.open(file)?;
    let written = writeln!(opened, "{key}").and_then(|()| opened.sync_all());
    if written.is_err() {
        let _ = std::fs::remove_file(file);
    }
    written
}
