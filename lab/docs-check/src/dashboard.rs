//! A picture of a Grafana dashboard without Grafana: its panels and queries, and what a Prometheus answered.
//!
//! The answers are kept in `docs/figures`, so that the picture is drawn again without a Prometheus.

use std::{
    fmt::Write as _,
    net::SocketAddr,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, ensure};
use flow_testbed::prometheus::{self, Server};
use serde::{Deserialize, Serialize};

use crate::plot;

/// Panels that begin above this line of Grafana's grid are drawn: what a screen shows first.
const ROWS: u64 = 28;
/// Values of each line.
const POINTS: u32 = 60;

/// Answers to a dashboard's queries over a time.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    /// What the picture is of, for those who do not see it.
    pub title: String,
    /// The command that ran meanwhile.
    pub command: String,
    /// The time that it covers, in seconds.
    pub seconds: u32,
    /// Panels in the dashboard's order.
    pub panels: Vec<Panel>,
}

/// One panel of a dashboard.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Panel {
    /// Its title.
    pub title: String,
    /// Its unit, as Grafana names it.
    pub unit: String,
    /// True where the newest value alone is shown.
    pub is_stat: bool,
    /// What its queries were answered with.
    pub series: Vec<Series>,
}

/// One line of a panel.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Its legend.
    pub name: String,
    /// Values from the beginning to the end, at equal distances; not a number where there was none.
    pub values: Vec<f64>,
}

/// The parts of a dashboard's file that matter here.
#[derive(Deserialize)]
struct Dashboard {
    panels: Vec<DashboardPanel>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DashboardPanel {
    title: String,
    r#type: String,
    grid_pos: Place,
    field_config: FieldConfig,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Place {
    x: u64,
    y: u64,
}

#[derive(Deserialize)]
struct FieldConfig {
    defaults: Defaults,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Defaults {
    unit: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Target {
    expr: String,
    legend_format: String,
}

impl Recording {
    /// Asks a Prometheus the queries of a dashboard's first rows, over the last `seconds`.
    ///
    /// # Errors
    /// When the dashboard cannot be read, Prometheus does not answer, or a panel has no data.
    pub fn ask(server: SocketAddr, dashboard: &str, command: &str, seconds: u32) -> Result<Self> {
        let dashboard: Dashboard =
            serde_json::from_str(dashboard).context("cannot read the dashboard")?;
        let mut panels = dashboard.panels;
        panels.retain(|panel| panel.grid_pos.y < ROWS);
        panels.sort_by_key(|panel| (panel.grid_pos.y, panel.grid_pos.x));
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
        let span = (now - f64::from(seconds), now);
        let panels = panels.iter().map(|panel| panel.ask(Server(server), span));
        Ok(Self {
            title: format!(
                "The dashboard of the splitter, over {} minutes",
                seconds / 60
            ),
            command: command.to_owned(),
            seconds,
            panels: panels.collect::<Result<_>>()?,
        })
    }

    /// Reads a recording from a file's text.
    ///
    /// # Errors
    /// When a key is missing or unknown.
    pub fn parse(text: &str) -> Result<Self> {
        Ok(toml::from_str(text)?)
    }

    /// Describes the picture in Pikchr: single values in a row, then plots in two columns.
    ///
    /// # Errors
    /// None so far but those of formatting.
    pub fn description(&self) -> Result<String> {
        let mut text = String::new();
        let (stats, plots): (Vec<&Panel>, Vec<&Panel>) =
            self.panels.iter().partition(|panel| panel.is_stat);
        let mut y = 0.0;
        for row in stats.chunks(2) {
            for (column, panel) in row.iter().enumerate() {
                plot::stat(&mut text, panel, (plot::COLUMN * column as f64, y))?;
            }
            y -= plot::STAT;
        }
        for row in plots.chunks(2) {
            for (column, panel) in row.iter().enumerate() {
                let corner = (plot::COLUMN * column as f64, y);
                plot::lines(&mut text, panel, self.seconds, corner)?;
            }
            let most = row.iter().map(|panel| panel.series.len()).max();
            y -= plot::height(most.unwrap_or(0));
        }
        writeln!(text, "# {}", self.command)?;
        Ok(text)
    }
}

impl DashboardPanel {
    fn ask(&self, server: Server, span: (f64, f64)) -> Result<Panel> {
        let step = (span.1 - span.0) / f64::from(POINTS);
        let mut series = Vec::new();
        for target in &self.targets {
            let query = prometheus::filled(&target.expr);
            let answers = server
                .query_range(&query, span, step)
                .with_context(|| format!("in the panel {:?}", self.title))?;
            series.extend(answers.iter().map(|answer| {
                Series {
                    name: legend(&target.legend_format, &answer.labels),
                    values: (0..=POINTS)
                        .map(|point| value_at(answer, span.0 + step * f64::from(point), step))
                        .collect(),
                }
            }));
        }
        ensure!(!series.is_empty(), "the panel {:?} has no data", self.title);
        Ok(Panel {
            title: self.title.clone(),
            unit: self.field_config.defaults.unit.clone(),
            is_stat: self.r#type == "stat",
            series,
        })
    }
}

/// Puts labels into a legend's `{{name}}`.
fn legend(format: &str, labels: &std::collections::BTreeMap<String, String>) -> String {
    let mut name = format.to_owned();
    for (label, value) in labels {
        name = name.replace(&format!("{{{{{label}}}}}"), value);
    }
    name
}

/// With four digits, which is more than a picture shows.
fn value_at(series: &prometheus::Series, time: f64, step: f64) -> f64 {
    let found = series
        .values
        .iter()
        .find(|(at, _)| (at - time).abs() < step / 2.0);
    let Some((_, value)) = found.filter(|(_, value)| value.is_finite()) else {
        return f64::NAN;
    };
    format!("{value:.3e}").parse().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::TcpListener,
    };

    use super::*;

    const DASHBOARD: &str = r#"{"panels": [
        {"title": "Below", "type": "timeseries", "gridPos": {"x": 0, "y": 30}, "fieldConfig": {"defaults": {}}, "targets": []},
        {"title": "Rate", "type": "timeseries", "gridPos": {"x": 0, "y": 4}, "fieldConfig": {"defaults": {"unit": "bps"}},
         "targets": [{"expr": "rate(x[$__rate_interval])", "legendFormat": "{{class}} by {{device}}"}]}]}"#;

    /// Answers one question with a line that grows.
    fn prometheus() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 4_096];
            let length = stream.read(&mut asked).unwrap();
            let asked = String::from_utf8_lossy(&asked[..length]).into_owned();
            let number = |name: &str| {
                let (_, rest) = asked.split_once(&format!("{name}=")).unwrap();
                let end = rest.find(['&', ' ']).unwrap();
                rest[..end].parse::<f64>().unwrap()
            };
            let (start, step) = (number("start"), number("step"));
            let values: Vec<_> = (0..=POINTS)
                .filter(|point| *point != 3)
                .map(|point| format!("[{}, \"{point}e6\"]", start + step * f64::from(point)))
                .collect();
            let body = format!(
                r#"{{"status": "success", "data": {{"result": [{{"metric": {{"class": "long", "device": "wan1"}}, "values": [{}]}}]}}}}"#,
                values.join(",")
            );
            write!(stream, "HTTP/1.0 200 OK\r\n\r\n{body}").unwrap();
        });
        address
    }

    #[test]
    fn the_first_rows_of_a_dashboard_are_asked_kept_and_drawn() {
        let asked = Recording::ask(prometheus(), DASHBOARD, "a command", 120).unwrap();
        let [panel] = &asked.panels[..] else {
            panic!("{asked:?}");
        };
        assert_eq!(panel.series[0].name, "long by wan1");
        let values = &panel.series[0].values;
        assert_eq!((values.len(), values[60]), (61, 60e6));
        assert!(values[3].is_nan() && values[4] == 4e6, "{values:?}");
        let kept = Recording::parse(&toml::to_string(&asked).unwrap()).unwrap();
        let svg = crate::drawing::draw(&kept.title, &kept.description().unwrap()).unwrap();
        assert_eq!(crate::drawing::faults(&svg).unwrap(), [""; 0]);
        let svg = svg.replace('\u{a0}', " ");
        assert!(
            svg.contains("60 Mbit/s") && svg.contains("2 min ago"),
            "{svg}"
        );
    }

    #[test]
    fn a_panel_without_data_is_an_error() {
        let nothing = DASHBOARD.replace("[{\"expr\"", "[], \"other\": [{\"expr\"");
        let address = "127.0.0.1:9".parse().unwrap();
        let error = Recording::ask(address, &nothing, "", 60).unwrap_err();
        assert_eq!(error.to_string(), "the panel \"Rate\" has no data");
    }
}
