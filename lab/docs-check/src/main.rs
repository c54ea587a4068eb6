//! `docs-check`: draws the book's figures, and holds the book against what there is.
//! `cargo xtask docs` builds the book and runs it.

use std::{fs, net::SocketAddr, path::PathBuf, process::ExitCode, time::Instant};

use anyhow::Result;
use clap::{Parser, Subcommand};
use docs_check::{
    Faults, blocks, commands, dashboard::Recording, figures, links, narrow, pages, results, rows,
    widths,
};

/// Draw the book's figures, and hold the book against what there is.
#[derive(Parser)]
#[command(name = "docs-check")]
struct Arguments {
    /// The root of the source tree.
    #[arg(long)]
    root: PathBuf,
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Draw all figures from their descriptions, and write the blocks that pages have of results.
    Figures,
    /// Ask a Prometheus what the dashboard of the splitter asks, and keep the answers for its picture.
    Dashboard {
        /// Where Prometheus answers.
        #[arg(long, default_value = "127.0.0.1:9090")]
        prometheus: SocketAddr,
        /// The time that is asked about.
        #[arg(long, value_name = "SECONDS", default_value_t = 180)]
        seconds: u32,
        /// What ran meanwhile.
        #[arg(long, value_name = "COMMAND", default_value = "cargo xtask playground")]
        command: String,
    },
    /// Check pages, commands, figures, and the links of a book that has been built.
    Check {
        /// Directory that mdBook has built the book in.
        #[arg(long)]
        book: PathBuf,
        /// Directory of the programs whose command lines the book shows.
        #[arg(long)]
        programs: PathBuf,
    },
}

fn main() -> Result<ExitCode> {
    let Arguments { root, task } = Arguments::parse();
    let (book, programs) = match task {
        Task::Figures => {
            for line in figures::draw(&root)? {
                println!("{line}");
            }
            let written = [results::write, rows::write];
            for write in written {
                for line in write(&root, &pages::read(&root)?)? {
                    println!("{line}");
                }
            }
            return Ok(ExitCode::SUCCESS);
        }
        Task::Dashboard {
            prometheus,
            seconds,
            command,
        } => {
            let dashboard = fs::read_to_string(root.join("packaging/grafana/splitter.json"))?;
            let recording = Recording::ask(prometheus, &dashboard, &command, seconds)?;
            let text = toml::to_string(&recording)?;
            fs::write(root.join("docs/figures/dashboard.recording"), text)?;
            return Ok(ExitCode::SUCCESS);
        }
        Task::Check { book, programs } => (book, programs),
    };
    let pages = pages::read(&root)?;
    let mut is_good = true;
    let mut report = |what: &str, check: &dyn Fn() -> Result<(String, Faults)>| -> Result<()> {
        let start = Instant::now();
        let (summary, faults) = check()?;
        println!("{what}: {summary} ({:.1} s)", start.elapsed().as_secs_f64());
        for fault in &faults {
            println!("  error: {fault}");
        }
        is_good &= faults.is_empty();
        Ok(())
    };
    report("figures", &|| figures::check(&root, &pages))?;
    report("results", &|| results::check(&root, &pages))?;
    report("rows", &|| rows::check(&root, &pages))?;
    report("links of the book", &|| links::check_html(&book))?;
    report("widths of the book", &|| widths::check(&book))?;
    report("links of other pages", &|| {
        links::check_markdown(&root, &pages)
    })?;
    report("commands", &|| commands::check(&root, &pages, &programs))?;
    report("help", &|| narrow::check(&programs))?;
    report("blocks of shell", &|| {
        blocks::check(&root, &pages, &programs)
    })?;
    Ok(match is_good {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
