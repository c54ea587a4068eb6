//! Counts what the committed kernel programs execute, and holds it against what is recorded.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use instructions::{Objects, Record, paths};

/// Count what the kernel programs execute for a packet, on named paths.
#[derive(Parser)]
struct Arguments {
    /// Accept what is counted: write it into the record beside the object.
    #[arg(long, conflicts_with = "object")]
    bless: bool,
    /// Print one JSON object, with the counts of each path.
    #[arg(long)]
    json: bool,
    /// Count another object than the committed one of its name (`fabric.o`, or else `splitter.o`).
    #[arg(long, value_name = "FILE")]
    object: Option<PathBuf>,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut objects = Objects::read(&root)?;
    if let Some(file) = &arguments.object {
        objects.replace(file)?;
    }
    let counted = Record::count(&objects)?;
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&counted)?);
    } else {
        let rows = paths::all();
        let rows = rows
            .iter()
            .map(|it| (it.name.as_str(), &counted.0[&it.name]));
        print!("{}", paths::table(rows));
    }
    let file = root.join(instructions::RECORD);
    if arguments.bless {
        counted.write(&file)?;
        eprintln!("{} has these counts now", instructions::RECORD);
        return Ok(ExitCode::SUCCESS);
    }
    let judgement = Record::read(&file)?.judge(&counted);
    for gain in &judgement.gains {
        eprintln!("less than recorded: {gain}");
    }
    if !judgement.gains.is_empty() {
        eprintln!("keep that: `{}`", instructions::ACCEPT);
    }
    let Some(complaint) = judgement.complaint() else {
        return Ok(ExitCode::SUCCESS);
    };
    eprintln!("error: {complaint}");
    Ok(ExitCode::FAILURE)
}
