//! How far a measurement is: a bar on a terminal, and elsewhere a line now and then, for who has it run for hours.

use std::{
    borrow::Cow,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};

/// Pause between two lines.
const PAUSE: Duration = Duration::from_secs(60);

/// A bar, or lines, on standard error. What takes less than a minute has none.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    what: Cow<'static, str>,
    began: Instant,
    said: Mutex<Instant>,
}

/// Begins with none of so many steps done.
pub fn progress(steps: usize, what: impl Into<Cow<'static, str>>) -> Progress {
    let (what, now) = (what.into(), Instant::now());
    let bar = ProgressBar::new(steps as u64).with_message(what.clone());
    let bar = match ProgressStyle::with_template("{msg} {bar:40} {pos}/{len}, {eta} left") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    };
    Progress {
        bar,
        what,
        began: now,
        said: Mutex::new(now),
    }
}

impl Progress {
    /// Notes that so many steps more are done.
    pub fn inc(&self, steps: u64) {
        self.bar.inc(steps);
        if self.bar.is_hidden()
            && let Some(line) = self.line(Instant::now())
        {
            eprintln!("{line}");
        }
    }

    /// Takes the bar away.
    pub fn finish_and_clear(&self) {
        self.bar.finish_and_clear();
    }

    /// The line that is due, if one is.
    fn line(&self, now: Instant) -> Option<String> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(*said) < PAUSE {
            return None;
        }
        *said = now;
        let (done, all) = (self.bar.position(), self.bar.length().unwrap_or(0));
        let took = now.saturating_duration_since(self.began).as_secs_f64();
        let left_s = took / done.max(1) as f64 * all.saturating_sub(done) as f64;
        let left_min = (left_s / 60.0).ceil();
        Some(format!(
            "{}: {done} of {all}, {left_min} min left",
            self.what
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_comes_once_a_minute_and_says_what_is_left() {
        let progress = progress(12, "tr-large");
        let at = |seconds| progress.began + Duration::from_secs(seconds);
        progress.bar.inc(1);
        assert_eq!(progress.line(at(59)), None);
        progress.bar.inc(2);
        // Three took 90 s, so nine take 270 s.
        let line = progress.line(at(90));
        assert_eq!(line.as_deref(), Some("tr-large: 3 of 12, 5 min left"));
        assert_eq!(progress.line(at(149)), None);
        assert!(progress.line(at(150)).is_some());
    }
}
