//! `splitter top`: what goes on, live in the terminal.
//!
//! What keys do is in `app`, what is drawn in `draw`: neither touches a terminal or the kernel.

mod app;
mod draw;
mod once;
mod terminal;

use std::future::{Future, pending};
use std::io::IsTerminal as _;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use flow_cli::{Signals, describe};
use splitter_agent::overview::{Filter, Observer, Overview, Selection, WrittenReport};
use splitter_config::Config;
use splitter_instance::Instance;
use tokio::time::{Instant, sleep, sleep_until};

use self::app::{App, Outcome};
use self::terminal::{Event, Screen};
use super::flows;
use crate::cli::TopArgs;

/// Flows that are kept to be scrolled through.
const LIMIT: u16 = 1_000;
/// Flows that are printed once.
const LIMIT_ONCE: u16 = 50;

/// Watches until asked to stop, or prints one sample.
pub(crate) async fn run(config: Config, args: &TopArgs, json: bool) -> Result<()> {
    let once = args.once || json;
    if !once {
        check_terminal()?;
    }
    let instance = Instance::new(config)?;
    let config = instance.config();
    let health = WrittenReport::of(config.instance_dir());
    let mut observer = Observer::new(config, basis(args.interval))?.with_health(Arc::new(health));
    let selection = Selection {
        sort: args.sort,
        reversed: args.reverse,
        filter: Filter::new(&args.filter),
        limit: args
            .limit
            .unwrap_or(if once { LIMIT_ONCE } else { LIMIT })
            .into(),
    };
    // What keeps it from being seen at all is reported before the screen is taken.
    let first = look(&instance, &mut observer, &selection).await?;
    if once {
        sleep(args.interval).await;
        let overview = look(&instance, &mut observer, &selection).await?;
        return once::show(&overview, json);
    }
    let mut app = App::new(selection, args.interval, &args.filter);
    app.seen(Ok(first));
    watch(&instance, observer, app).await
}

/// Rates are taken from one look to the next; a little less, for looks that come early.
fn basis(interval: Duration) -> Duration {
    interval * 4 / 5
}

fn check_terminal() -> Result<()> {
    let lacking = if !std::io::stdout().is_terminal() {
        "standard output is none"
    } else if !std::io::stdin().is_terminal() {
        "standard input is none"
    } else if std::env::var_os("TERM").is_none_or(|it| it.is_empty() || it == "dumb") {
        "TERM names none that can be drawn on"
    } else {
        return Ok(());
    };
    bail!(
        "`splitter top` needs a terminal, and {lacking}; `splitter top --once` prints one sample \
         as text, and `splitter top --json` as JSON"
    )
}

async fn look(
    instance: &Instance,
    observer: &mut Observer,
    selection: &Selection,
) -> Result<Overview> {
    // Opened again each time: somebody may have taken it down and brought it up again.
    let Some(dataplane) = instance.open()? else {
        return Err(flows::down(instance));
    };
    Ok(observer.look(Arc::new(dataplane), selection).await?)
}

/// A look under way, which has the observer until it ends.
type Look<'i> = Pin<Box<dyn Future<Output = (Observer, Result<Overview>)> + 'i>>;

fn begin_look<'i>(instance: &'i Instance, mut observer: Observer, app: &App) -> Look<'i> {
    let selection = app.selection().clone();
    observer.set_at_least(basis(app.interval()));
    Box::pin(async move {
        let result = look(instance, &mut observer, &selection).await;
        (observer, result)
    })
}

async fn watch(instance: &Instance, observer: Observer, mut app: App) -> Result<()> {
    let mut signals = Signals::listen()?;
    let mut screen = Screen::take().context("cannot draw on this terminal")?;
    let mut events = terminal::events();
    let mut at_rest = Some(observer);
    let mut looking: Option<Look<'_>> = None;
    let mut last_look = Instant::now();
    loop {
        screen
            .draw(&mut app)
            .context("cannot draw on this terminal")?;
        let under_way = async {
            match &mut looking {
                Some(look) => look.await,
                None => pending().await,
            }
        };
        tokio::select! {
            event = events.recv() => match event {
                Some(Event::Key(key)) => match app.key(key) {
                    Outcome::Quit => return Ok(()),
                    Outcome::Stay => {}
                },
                Some(Event::Resized) => {}
                Some(Event::Failed(error)) => return Err(error).context("cannot read keys"),
                None => bail!("cannot read keys: their thread has ended"),
            },
            (observer, result) = under_way => {
                looking = None;
                at_rest = Some(observer);
                app.seen(result.map_err(|error| describe(&error)));
            }
            () = sleep_until(last_look + app.interval()), if at_rest.is_some() && !app.is_paused() => {
                if let Some(observer) = at_rest.take() {
                    last_look = Instant::now();
                    looking = Some(begin_look(instance, observer, &app));
                }
            }
            _ = signals.next() => return Ok(()),
        }
    }
}
