//! What `top` shows and what keys change about it.

use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use splitter_agent::overview::{Filter, Flow, Overview, Selection};

/// Intervals that `+` and `-` step through, in milliseconds.
const INTERVALS_MS: [u64; 8] = [100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000];
/// A filter longer than this was pasted by mistake.
const LONGEST_FILTER: usize = 200;

/// What `top` shows.
#[derive(Debug)]
pub(super) struct App {
    overview: Option<Overview>,
    /// The flows of the overview in the order chosen; a new choice holds at once.
    flows: Vec<Flow>,
    selection: Selection,
    filter: String,
    interval: Duration,
    paused: bool,
    /// Flows above the first one shown.
    scrolled: usize,
    /// Flows that fitted when it was drawn last.
    page: usize,
    mode: Mode,
    /// Why there is no newer overview.
    problem: Option<String>,
}

/// What keys are for.
#[derive(Debug, PartialEq, Eq)]
enum Mode {
    Watch,
    /// A filter is being written; what it was before.
    Filter {
        before: String,
    },
    Help,
}

/// What to do after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Stay,
    Quit,
}

impl App {
    pub(super) fn new(selection: Selection, interval: Duration, filter: &str) -> Self {
        Self {
            overview: None,
            flows: Vec::new(),
            selection,
            filter: filter.to_owned(),
            interval,
            paused: false,
            scrolled: 0,
            page: 1,
            mode: Mode::Watch,
            problem: None,
        }
    }

    pub(super) fn overview(&self) -> Option<&Overview> {
        self.overview.as_ref()
    }

    pub(super) fn selection(&self) -> &Selection {
        &self.selection
    }

    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// The filter as it is written, and whether it is being written now.
    pub(super) fn filter(&self) -> (&str, bool) {
        (&self.filter, matches!(self.mode, Mode::Filter { .. }))
    }

    pub(super) fn shows_help(&self) -> bool {
        self.mode == Mode::Help
    }

    /// The flows in their order, those above the first one shown left out, and how many these
    /// are. `page` is how many fit.
    pub(super) fn visible(&mut self, page: usize) -> (&[Flow], usize) {
        self.page = page.max(1);
        self.scrolled = self.scrolled.min(self.flows.len().saturating_sub(page));
        (&self.flows[self.scrolled..], self.scrolled)
    }

    /// Takes what a look has found. One that was begun before a pause comes too late.
    pub(super) fn seen(&mut self, result: Result<Overview, String>) {
        if self.paused {
            return;
        }
        match result {
            Ok(overview) => {
                self.overview = Some(overview);
                self.problem = None;
                self.select();
            }
            Err(problem) => self.problem = Some(problem),
        }
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> Outcome {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            if key.code == KeyCode::Char('c') {
                return Outcome::Quit;
            }
            if matches!(self.mode, Mode::Filter { .. }) {
                return Outcome::Stay;
            }
        }
        match &self.mode {
            Mode::Help => {
                self.mode = Mode::Watch;
                Outcome::Stay
            }
            Mode::Filter { before } => {
                let before = before.clone();
                self.write_filter(key.code, before);
                Outcome::Stay
            }
            Mode::Watch => self.watch_key(key.code),
        }
    }

    fn watch_key(&mut self, code: KeyCode) -> Outcome {
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return Outcome::Quit,
            KeyCode::Up | KeyCode::Char('k') => self.scroll(-1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll(1),
            KeyCode::PageUp => self.scroll(-(self.page as isize)),
            KeyCode::PageDown => self.scroll(self.page as isize),
            KeyCode::Home | KeyCode::Char('g') => self.scrolled = 0,
            KeyCode::End | KeyCode::Char('G') => self.scrolled = self.flows.len(),
            KeyCode::Char('s') => self.sort(1),
            KeyCode::Char('S') => self.sort(-1),
            KeyCode::Char('r') => {
                self.selection.reversed = !self.selection.reversed;
                self.select();
            }
            KeyCode::Char('/') => {
                self.mode = Mode::Filter {
                    before: self.filter.clone(),
                };
            }
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('+' | '=') => self.change_interval(true),
            KeyCode::Char('-' | '_') => self.change_interval(false),
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.mode = Mode::Help,
            _ => {}
        }
        Outcome::Stay
    }

    fn write_filter(&mut self, code: KeyCode, before: String) {
        match code {
            KeyCode::Enter => self.mode = Mode::Watch,
            KeyCode::Esc => {
                self.filter = before;
                self.mode = Mode::Watch;
            }
            KeyCode::Backspace => _ = self.filter.pop(),
            KeyCode::Char(letter) if self.filter.len() < LONGEST_FILTER => self.filter.push(letter),
            _ => {}
        }
        self.selection.filter = Filter::new(&self.filter);
        self.scrolled = 0;
        self.select();
    }

    /// Orders and filters what is known already: a new choice is seen at once, also in a pause.
    fn select(&mut self) {
        let flows = self.overview.as_ref().map(|it| it.flows.clone());
        self.flows = flows.unwrap_or_default();
        self.selection.apply(&mut self.flows);
    }

    fn sort(&mut self, steps: isize) {
        self.selection.sort = self.selection.sort.step(steps);
        self.select();
    }

    fn scroll(&mut self, by: isize) {
        let most = self.flows.len().saturating_sub(self.page);
        self.scrolled = self.scrolled.saturating_add_signed(by).min(most);
    }

    fn change_interval(&mut self, longer: bool) {
        let now_ms = self.interval.as_millis() as u64;
        let next = if longer {
            INTERVALS_MS.into_iter().find(|it| *it > now_ms)
        } else {
            INTERVALS_MS.into_iter().rev().find(|it| *it < now_ms)
        };
        if let Some(next_ms) = next {
            self.interval = Duration::from_millis(next_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use splitter_agent::overview::SortBy;

    use super::super::draw::tests::{app as seen, overview};
    use super::*;

    fn app(flows: u16) -> App {
        let mut app = seen(flows);
        app.visible(10);
        app
    }

    fn press(app: &mut App, keys: &str) -> Outcome {
        let mut outcome = Outcome::Stay;
        for key in keys.chars() {
            outcome = app.key(KeyCode::Char(key).into());
        }
        outcome
    }

    fn first_port(app: &mut App) -> u16 {
        app.visible(10).0[0].row.source_port.unwrap()
    }

    #[test]
    fn ends_at_the_keys_that_a_person_expects() {
        assert_eq!(press(&mut app(1), "q"), Outcome::Quit);
        assert_eq!(app(1).key(KeyCode::Esc.into()), Outcome::Quit);
        let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        let mut app = app(1);
        press(&mut app, "/ab");
        assert_eq!(
            app.key(ctrl_c),
            Outcome::Quit,
            "also while a filter is written"
        );
    }

    #[test]
    fn scrolls_within_what_there_is() {
        let mut app = app(25);
        let top = |app: &mut App| app.visible(10).1;
        press(&mut app, "k");
        assert_eq!(top(&mut app), 0);
        press(&mut app, "jjj");
        app.key(KeyCode::PageDown.into());
        assert_eq!(top(&mut app), 13);
        press(&mut app, "G");
        assert_eq!((top(&mut app), app.visible(10).0.len()), (15, 10));
        press(&mut app, "j");
        assert_eq!(top(&mut app), 15);
        app.key(KeyCode::PageUp.into());
        assert_eq!(top(&mut app), 5);
        press(&mut app, "g");
        assert_eq!(top(&mut app), 0);
        // Fewer flows than before: no empty page is left.
        press(&mut app, "G");
        app.seen(Ok(overview(3)));
        assert_eq!((top(&mut app), app.visible(10).0.len()), (0, 3));
    }

    #[test]
    fn orders_at_once_and_in_a_pause() {
        let mut app = app(9);
        assert_eq!(first_port(&mut app), 1_008, "most packets first");
        press(&mut app, "pr");
        assert_eq!(first_port(&mut app), 1_000);
        press(&mut app, "s");
        assert_eq!(app.selection().sort, SortBy::Bytes);
        press(&mut app, "SSS");
        assert_eq!(app.selection().sort, SortBy::Flow);
        app.seen(Ok(overview(2)));
        assert_eq!(app.visible(10).0.len(), 9, "nothing new in a pause");
        press(&mut app, "p");
        app.seen(Ok(overview(2)));
        assert_eq!(app.visible(10).0.len(), 2);
    }

    #[test]
    fn a_filter_holds_while_it_is_written_and_escape_takes_it_back() {
        let mut app = app(20);
        press(&mut app, "/:1007");
        assert_eq!(app.filter(), (":1007", true));
        assert_eq!(app.visible(10).0.len(), 1);
        app.key(KeyCode::Backspace.into());
        assert_eq!(app.visible(10).0.len(), 10, "1000 to 1009");
        app.key(KeyCode::Enter.into());
        assert_eq!(app.filter(), (":100", false));
        press(&mut app, "/q");
        assert_eq!(app.key(KeyCode::Esc.into()), Outcome::Stay);
        assert_eq!(app.filter().0, ":100");
        assert_eq!(app.visible(10).0.len(), 10);
    }

    #[test]
    fn the_interval_steps_and_stops_at_the_ends() {
        let mut app = app(1);
        press(&mut app, "+");
        assert_eq!(app.interval(), Duration::from_secs(2));
        press(&mut app, "---------");
        assert_eq!(app.interval(), Duration::from_millis(100));
        press(&mut app, "++++++++++++++");
        assert_eq!(app.interval(), Duration::from_secs(60));
    }

    #[test]
    fn help_is_left_by_any_key_and_problems_by_the_next_look() {
        let mut app = app(1);
        press(&mut app, "?");
        assert!(app.shows_help());
        assert_eq!(app.key(KeyCode::Esc.into()), Outcome::Stay);
        assert!(!app.shows_help());
        app.seen(Err("it is down".to_owned()));
        assert_eq!(app.problem(), Some("it is down"));
        assert!(app.overview().is_some(), "what was seen last stays");
        app.seen(Ok(overview(1)));
        assert_eq!(app.problem(), None);
    }
}
