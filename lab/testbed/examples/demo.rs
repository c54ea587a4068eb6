//! Runs the comparison without the command line of the agent:
//! `cargo run --example demo -- SECONDS PAGE.html [SPLITTER]`.

use std::{env, error::Error, fs, time::Duration};

use flow_testbed::demo::{self, Options};
use tokio_util::sync::CancellationToken;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [seconds, page, splitter @ ..] = &arguments[..] else {
        return Err("usage: demo SECONDS PAGE.html [SPLITTER]".into());
    };
    let options = Options {
        total: Duration::from_secs(seconds.parse()?),
        splitter: splitter.first().map(Into::into),
        ..Options::default()
    };
    let comparison = demo::run(&options, &mut (), &CancellationToken::new())?;
    fs::write(page, demo::render_html(&comparison))?;
    println!("{}", demo::render_text(&comparison));
    Ok(())
}
