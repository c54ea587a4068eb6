//! What `top` looks like. Sections and columns are left out where there is no room.

use flow_telemetry::page::Format;
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Clear, Paragraph, Row, Table};
use splitter_agent::overview::{Direction, Flow, Health, LinkState, Overview, Period, SortBy};

use super::app::App;
use super::once::{attached, egress, known};

/// On less than this nothing can be distinguished.
const SMALLEST: (u16, u16) = (24, 4);
/// Lines below the flows' heading that the sections above must leave.
const FLOW_LINES: u16 = 4;

/// What a name is cut to where there is no room.
const CUT_SHORT: u16 = 24;

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const HEADING: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Draws all of it.
pub(super) fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let area = frame.area();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        frame.render_widget(Paragraph::new("too small"), area);
        return;
    }
    let mut rest = area;
    frame.render_widget(Paragraph::new(title(app)), take(&mut rest, 1));
    let bottom = Rect::new(area.x, area.bottom() - 1, area.width, 1);
    frame.render_widget(Paragraph::new(bottom_line(app)), bottom);
    rest.height -= 1;
    if let Some(overview) = app.overview() {
        let sections = [classes(overview), tunnels(overview), choices(overview)];
        for section in sections.into_iter().filter(|it| !it.rows.is_empty()) {
            let height = section.rows.len() as u16 + 1;
            if rest.height >= height + 1 + FLOW_LINES {
                section.draw(frame, take(&mut rest, height));
                take(&mut rest, 1);
            }
        }
    }
    let page = rest.height.saturating_sub(1);
    let selection = app.selection();
    let order = (selection.sort, selection.reversed);
    let (flows, _) = app.visible(page.into());
    flow_section(flows, page, order).draw(frame, rest);
    if app.shows_help() {
        draw_help(frame, area);
    }
}

fn take(rest: &mut Rect, height: u16) -> Rect {
    let height = height.min(rest.height);
    let taken = Rect { height, ..*rest };
    rest.y += height;
    rest.height -= height;
    taken
}

fn title(app: &App) -> Line<'static> {
    let mut spans = vec![Span::styled("splitter ", BOLD)];
    if let Some(overview) = app.overview() {
        let full = overview
            .table
            .iter()
            .filter_map(|it| it.share_used)
            .fold(0.0, f64::max);
        spans.push(Span::raw(format!(
            "{}; {} flow{}, table {} full",
            attached(overview),
            Format::Count.number(overview.flows_matching as f64),
            if overview.flows_matching == 1 {
                ""
            } else {
                "s"
            },
            Format::Share.number(full)
        )));
    }
    let pace = match app.is_paused() {
        true => "  PAUSED".to_owned(),
        false => format!(
            "  every {}",
            Format::Seconds.number(app.interval().as_secs_f64())
        ),
    };
    spans.push(Span::styled(pace, DIM));
    Line::from(spans)
}

fn bottom_line(app: &App) -> Line<'static> {
    let (filter, writing) = app.filter();
    if writing {
        return Line::from(vec![
            Span::styled("filter: ", BOLD),
            Span::raw(filter.to_owned()),
            Span::styled(" ", HEADING),
            Span::styled("  Enter keeps it, Esc takes it back", DIM),
        ]);
    }
    if let Some(problem) = app.problem() {
        let bad = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
        return Line::styled(problem.to_owned(), bad);
    }
    let keys = "q quit  s sort  r reverse  / filter  p pause  +/- interval  ? help";
    match filter {
        "" => Line::styled(keys, DIM),
        filter => Line::from(vec![
            Span::styled(format!("filter: {filter}  "), BOLD),
            Span::styled(keys, DIM),
        ]),
    }
}

/// A column: its heading, what it takes at least, and whether it goes to the right.
struct Column {
    name: &'static str,
    width: u16,
    number: bool,
    /// The smallest ones are left out last.
    rank: u8,
}

const fn column(name: &'static str, width: u16, number: bool, rank: u8) -> Column {
    Column {
        name,
        width,
        number,
        rank,
    }
}

/// Headings, and rows of cells with their styles. The first column takes what is left over.
struct Section {
    columns: Vec<Column>,
    sorted: Option<(&'static str, bool)>,
    rows: Vec<Vec<(String, Style)>>,
}

impl Section {
    fn draw(self, frame: &mut Frame<'_>, area: Rect) {
        let kept = fitting(&self.columns, area.width);
        let heading = kept.iter().map(|&index| self.heading(index));
        let heading = Row::new(heading).style(HEADING);
        let rows = self.rows.iter().map(|row| {
            let cells = kept.iter().filter_map(|&index| {
                let (text, style) = row.get(index)?;
                Some(self.cell(index, text).style(*style))
            });
            Row::new(cells)
        });
        let widths = kept.iter().map(|&index| match index {
            0 => Constraint::Fill(1),
            _ => Constraint::Length(self.columns[index].width),
        });
        let table = Table::new(rows, widths).header(heading).column_spacing(1);
        frame.render_widget(table, area);
    }

    fn heading(&self, index: usize) -> Cell<'static> {
        let name = self.columns[index].name;
        match self.sorted {
            Some((sorted, reversed)) if sorted == name => {
                let mark = if reversed { '^' } else { 'v' };
                self.cell(index, &format!("{mark}{name}")).style(BOLD)
            }
            _ => self.cell(index, name),
        }
    }

    fn cell(&self, index: usize, text: &str) -> Cell<'static> {
        let line = Line::raw(text.to_owned());
        Cell::new(if self.columns[index].number {
            line.right_aligned()
        } else {
            line
        })
    }
}

/// The columns that there is room for, in their order. The first one is cut short before the last
/// one next to it goes.
fn fitting(columns: &[Column], width: u16) -> Vec<usize> {
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    let needed = |kept: &[usize]| {
        let all = kept.iter().map(|&it| columns[it].width + 1).sum::<u16>() - 1;
        match kept {
            [first, _] => all - columns[*first].width.saturating_sub(CUT_SHORT),
            _ => all,
        }
    };
    while kept.len() > 1 && needed(&kept) > width {
        let least = kept
            .iter()
            .enumerate()
            .max_by_key(|(_, it)| columns[**it].rank);
        let Some((position, _)) = least else { break };
        kept.remove(position);
    }
    kept
}

fn plain(text: impl Into<String>) -> (String, Style) {
    (text.into(), Style::new())
}

/// What each class does, and how long its flows took of late.
fn classes(overview: &Overview) -> Section {
    let rows = overview.classes.iter().map(|row| {
        let recent = overview
            .completion
            .iter()
            .find(|it| it.class == row.class && it.period == Period::Recent);
        let time = |of: fn(&splitter_agent::overview::Completion) -> Option<f64>| {
            plain(known(Format::Seconds, recent.and_then(of)))
        };
        let ended = recent.map(|it| it.finished as f64);
        // In another tunnel than its own: that is dead.
        let place = match row.tunnel {
            Some(egress) if egress.name() != row.class => {
                Style::new().fg(Color::Red).add_modifier(Modifier::BOLD)
            }
            _ => Style::new(),
        };
        vec![
            plain(row.class),
            (egress(row).to_owned(), place),
            plain(Format::Count.number(row.flows as f64)),
            plain(known(Format::Rate, row.packets_per_s)),
            plain(known(Format::BitsPerSecond, row.bits_per_s)),
            plain(known(Format::Count, ended)),
            time(|it| it.p50_s),
            time(|it| it.p90_s),
            time(|it| it.p99_s),
        ]
    });
    Section {
        columns: vec![
            column("CLASS", 7, false, 0),
            column("TUNNEL", 6, false, 4),
            column("FLOWS", 9, true, 1),
            column("PACKETS/S", 10, true, 3),
            column("RATE", 12, true, 2),
            // Completion times of the last minute.
            column("ENDED/MIN", 9, true, 7),
            column("FCT P50", 9, true, 5),
            column("P90", 8, true, 8),
            column("P99", 8, true, 6),
        ],
        sorted: None,
        rows: rows.collect(),
    }
}

fn tunnels(overview: &Overview) -> Section {
    let rows = overview.tunnels.iter().map(|row| {
        let state = match row.state {
            LinkState::Up => Style::new().fg(Color::Green),
            _ => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
        };
        let health = match row.health.health {
            Health::Good => Style::new().fg(Color::Green),
            Health::Suspect | Health::Unknown | Health::Returning => Style::new().fg(Color::Yellow),
            Health::Dead => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
            Health::NotProbed => DIM,
        };
        let round_trip = row
            .health
            .rtt_s
            .map_or_else(String::new, |it| format!(" {}", Format::Seconds.number(it)));
        // Where sites are listed, the tunnel's name has that of its site.
        let tunnel = match &row.site {
            Some(site) => format!("{} {site}", row.tunnel),
            None => row.tunnel.to_owned(),
        };
        vec![
            plain(tunnel),
            plain(row.device.clone()),
            (row.state.as_str().to_owned(), state),
            plain(known(Format::BitsPerSecond, row.sent_bits_per_s)),
            plain(known(Format::BitsPerSecond, row.received_bits_per_s)),
            plain(known(Format::Rate, row.sent_packets_per_s)),
            plain(known(Format::Rate, row.received_packets_per_s)),
            plain(known(Format::Share, row.share_used)),
            (
                format!("{}{round_trip}", row.health.health.as_str()),
                health,
            ),
        ]
    });
    Section {
        columns: vec![
            column("TUNNEL", 7, false, 0),
            column("DEVICE", 15, false, 4),
            column("STATE", 10, false, 1),
            column("SENT", 12, true, 2),
            column("RECEIVED", 12, true, 6),
            column("SENT/S", 9, true, 7),
            column("RECEIVED/S", 10, true, 8),
            column("USED", 6, true, 3),
            column("HEALTH", 12, false, 5),
        ],
        sorted: None,
        rows: rows.collect(),
    }
}

/// How packets choose among the tunnels; no rows where they do not.
fn choices(overview: &Overview) -> Section {
    let rows = overview.tunnels.iter().filter_map(|row| {
        let chosen = &row.chosen;
        let error_s = chosen.model_error_us.map(|it| it / 1e6);
        Some(vec![
            plain(row.device.clone()),
            plain(Format::Rate.number(chosen.chosen_packets_per_s?)),
            plain(known(Format::Share, chosen.chosen_changes_ratio)),
            plain(known(Format::Share, chosen.chosen_refusals_ratio)),
            plain(known(Format::Seconds, error_s)),
        ])
    });
    Section {
        columns: vec![
            column("CHOSEN", 15, false, 0),
            column("PACKETS/S", 10, true, 1),
            column("CHANGED", 8, true, 2),
            column("HELD", 6, true, 3),
            column("MODEL OFF BY", 12, true, 4),
        ],
        sorted: None,
        rows: rows.collect(),
    }
}

fn flow_section(flows: &[Flow], page: u16, (sort, reversed): (SortBy, bool)) -> Section {
    let rows = flows.iter().take(page.into()).map(|flow| {
        let row = &flow.row;
        let style = if row.finished { DIM } else { Style::new() };
        let back = flow.reverse.and_then(|it| it.bits_per_s);
        let both = |out: Option<f64>, back: Option<f64>| match (out, back) {
            (None, None) => None,
            _ => Some(out.unwrap_or(0.0) + back.unwrap_or(0.0)),
        };
        let packets_back = flow.reverse.and_then(|it| it.packets_per_s);
        let cells = [
            row.to_string(),
            row.class.to_owned(),
            row.tunnel.to_owned(),
            marked(flow.bits_per_s, flow.fills == Some(Direction::Out)),
            marked(back, flow.fills == Some(Direction::In)),
            known(Format::Rate, both(flow.packets_per_s, packets_back)),
            Format::Count.number(flow.packets() as f64),
            Format::Bytes.number(flow.bytes() as f64),
            Format::Seconds.number(row.age_s),
            Format::Seconds.number(row.idle_s),
        ];
        cells.map(|text| (text, style)).into()
    });
    let mut columns = vec![
        column("FLOW", 36, false, 0),
        column("CLASS", 6, false, 4),
        column("TUNNEL", 7, false, 7),
        column("RATE OUT", 12, true, 2),
        column("RATE IN", 12, true, 3),
        column("PACKETS/S", 10, true, 5),
        column("PACKETS", 10, true, 8),
        column("BYTES", 8, true, 9),
        column("AGE", 11, true, 6),
        column("IDLE", 11, true, 10),
    ];
    let sorted = heading_of(sort);
    for column in &mut columns {
        // What they are ordered by is seen as long as anything is.
        if column.name == sorted {
            column.rank = column.rank.min(1);
        }
    }
    Section {
        columns,
        sorted: Some((sorted, reversed)),
        rows: rows.collect(),
    }
}

/// A rate, with a mark where it is the larger one of the connection's two.
fn marked(bits_per_s: Option<f64>, fills: bool) -> String {
    let mark = if fills { "*" } else { "" };
    format!("{mark}{}", known(Format::BitsPerSecond, bits_per_s))
}

fn heading_of(sort: SortBy) -> &'static str {
    match sort {
        SortBy::Rate => "RATE OUT",
        SortBy::Packets => "PACKETS",
        SortBy::Bytes => "BYTES",
        SortBy::Age => "AGE",
        SortBy::Idle => "IDLE",
        SortBy::Class => "CLASS",
        SortBy::Tunnel => "TUNNEL",
        SortBy::Flow => "FLOW",
    }
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let width = HELP.iter().map(|line| line.chars().count()).max();
    let width = (width.unwrap_or(0) as u16 + 2).min(area.width);
    let height = (HELP.len() as u16 + 2).min(area.height);
    let middle = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, middle);
    let lines: Vec<Line<'_>> = std::iter::once("")
        .chain(HELP)
        .map(|line| Line::raw(format!(" {line}")))
        .collect();
    frame.render_widget(Paragraph::new(lines).style(HEADING), middle);
}

const HELP: [&str; 20] = [
    "q, Esc, Ctrl-C    end",
    "Up, Down, j, k    scroll by a line",
    "PgUp, PgDn        scroll by a page",
    "Home, End, g, G   to the begin, to the end",
    "s, S              order by the next, the previous column",
    "r                 the other way round",
    "/                 show only flows with these words",
    "p, Space          stand still, go on",
    "+, -              look less often, more often",
    "",
    "Rates are those since the last look. SENT and RECEIVED",
    "are all that the tunnel's device carries. IN is what",
    "comes back to the site, a dash where none is seen; the",
    "direction with * carries more. Packets, bytes and order",
    "are of both. FCT, of the last minute: first packet to",
    "first FIN or RST. CHANGED packets took another tunnel",
    "than the one before of their flow, HELD ones arrive",
    "later for the sake of order; what the model of a queue",
    "was off by was mended.",
    "Any key leaves this.",
];

#[cfg(test)]
pub(super) mod tests;
