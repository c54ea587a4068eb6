//! A real Prometheus, asked every question of dashboards and rules.
//!
//! [`Server`] says with what it is started; the tests of products start it, next to what it scrapes.

use std::{
    collections::BTreeMap,
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::Value;

/// One expression that a dashboard or a rule has Prometheus evaluate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    /// Title of the panel or name of the rule that it stands in.
    pub place: String,
    /// The expression, with a dashboard's variables filled in.
    pub text: String,
    /// Whether it is an alert's, which has no result while nothing is wrong.
    pub is_alert: bool,
}

/// Lists the expressions of a Grafana dashboard, for all instances and sites.
///
/// # Errors
/// What is no JSON.
pub fn of_dashboard(json: &str) -> Result<Vec<Expression>, serde_json::Error> {
    let dashboard: Value = serde_json::from_str(json)?;
    let panels = dashboard["panels"].as_array().into_iter().flatten();
    let each = panels.flat_map(|panel| {
        let targets = panel["targets"].as_array().into_iter().flatten();
        targets.map(|target| Expression {
            place: text(&panel["title"]),
            text: filled(&text(&target["expr"])),
            is_alert: false,
        })
    });
    Ok(each.collect())
}

/// Fills a dashboard's variables in, for all instances and sites.
#[must_use]
pub fn filled(expression: &str) -> String {
    expression
        .replace("$__rate_interval", RATE_INTERVAL)
        .replace("$instance", ".*")
        .replace("$site", ".*")
}

/// Long enough for the traffic of a test to be within.
const RATE_INTERVAL: &str = "1m";

/// Names of the metrics in an expression that begin with `prefix`.
#[must_use]
pub fn metrics_in<'e>(expression: &'e str, prefix: &str) -> Vec<&'e str> {
    let is_of_name = |letter: char| letter.is_alphanumeric() || "_:".contains(letter);
    expression
        .split(|letter| !is_of_name(letter))
        .filter(|word| word.starts_with(prefix))
        .collect()
}

/// A configuration that scrapes targets twice a second and loads rules from files.
#[must_use]
pub fn configuration(targets: &[&str], rules: &[&Path]) -> String {
    let rules: Vec<String> = rules.iter().map(|it| it.display().to_string()).collect();
    let (files, targets) = (serde_json::json!(rules), serde_json::json!(targets));
    format!(
        "global: {{scrape_interval: 500ms, evaluation_interval: 500ms}}\n\
         rule_files: {files}\n\
         scrape_configs:\n\
         - job_name: test\n\
         \x20 static_configs: [{{targets: {targets}}}]\n"
    )
}

/// One result of a query over a time: its labels, and values by time.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Labels by name.
    pub labels: BTreeMap<String, String>,
    /// Times, in seconds of Unix, with values.
    pub values: Vec<(f64, f64)>,
}

/// The address that a Prometheus answers at.
#[derive(Clone, Copy, Debug)]
pub struct Server(pub SocketAddr);

impl Server {
    /// Values of a query's results, none where there are no results (yet).
    ///
    /// # Errors
    /// When it does not answer, or refuses the query.
    pub fn query(self, query: &str) -> io::Result<Vec<f64>> {
        let escaped: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let answer = self.get(&format!("/api/v1/query?query={escaped}"))?;
        if answer["status"] != "success" {
            return Err(io::Error::other(format!("{query}: {answer}")));
        }
        let results = answer["data"]["result"].as_array().into_iter().flatten();
        let values = results.filter_map(|it| it["value"][1].as_str()?.parse().ok());
        Ok(values.collect())
    }

    /// Labels of the exemplars of the last hour that it has stored for a metric.
    ///
    /// # Errors
    /// When it does not answer, or refuses the query.
    pub fn exemplars(self, metric: &str) -> io::Result<Vec<BTreeMap<String, String>>> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let end = now.map_err(io::Error::other)?.as_secs();
        let start = end.saturating_sub(3600);
        let path = format!(
            "/api/v1/query_exemplars?query={metric}&start={start}&end={}",
            end + 1
        );
        let answer = self.get(&path)?;
        if answer["status"] != "success" {
            return Err(io::Error::other(format!("{metric}: {answer}")));
        }
        let series = answer["data"].as_array().into_iter().flatten();
        let each = series.flat_map(|it| it["exemplars"].as_array().into_iter().flatten());
        let labels = each.map(|it| it["labels"].as_object().into_iter().flatten());
        Ok(labels
            .map(|it| {
                it.map(|(name, value)| (name.clone(), text(value)))
                    .collect()
            })
            .collect())
    }

    /// Results of a query over the time from `start` to `end`, in seconds of Unix, one value each `step` seconds.
    ///
    /// # Errors
    /// When it does not answer, or refuses the query.
    pub fn query_range(
        self,
        query: &str,
        (start, end): (f64, f64),
        step: f64,
    ) -> io::Result<Vec<Series>> {
        let escaped: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let path =
            format!("/api/v1/query_range?query={escaped}&start={start}&end={end}&step={step}");
        let answer = self.get(&path)?;
        if answer["status"] != "success" {
            return Err(io::Error::other(format!("{query}: {answer}")));
        }
        let results = answer["data"]["result"].as_array().into_iter().flatten();
        let each = results.map(|result| {
            let labels = result["metric"].as_object().into_iter().flatten();
            let values = result["values"].as_array().into_iter().flatten();
            Series {
                labels: labels
                    .map(|(name, value)| (name.clone(), text(value)))
                    .collect(),
                values: values
                    .filter_map(|pair| Some((pair[0].as_f64()?, pair[1].as_str()?.parse().ok()?)))
                    .collect(),
            }
        });
        Ok(each.collect())
    }

    /// Expressions of all rules that it has loaded.
    ///
    /// # Errors
    /// When it does not answer, or a rule failed.
    pub fn rules(self) -> io::Result<Vec<Expression>> {
        let answer = self.get("/api/v1/rules")?;
        let groups = answer["data"]["groups"].as_array().into_iter().flatten();
        let rules = groups.flat_map(|group| group["rules"].as_array().into_iter().flatten());
        let each = rules.map(|rule| match rule["lastError"].as_str() {
            Some(error) if !error.is_empty() => Err(io::Error::other(error.to_owned())),
            _ => Ok(Expression {
                place: text(&rule["name"]),
                text: text(&rule["query"]),
                is_alert: rule["type"] == "alerting",
            }),
        });
        each.collect()
    }

    fn get(self, path: &str) -> io::Result<Value> {
        let mut stream = TcpStream::connect(self.0)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: x\r\n\r\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        Ok(serde_json::from_str(body)?)
    }
}

const PATIENCE: Duration = Duration::from_secs(20);

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_dashboards_are_filled_in() {
        let json = r#"{"panels": [{"title": "A", "targets": [
            {"expr": "rate(x_total{instance=~\"$instance\"}[$__rate_interval])"}]}]}"#;
        let found = of_dashboard(json).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].place, "A");
        assert_eq!(found[0].text, "rate(x_total{instance=~\".*\"}[1m])");
    }

    #[test]
    fn metrics_are_found_in_expressions() {
        let text = "sum by (le) (rate(a_b_bucket{x=\"y\"}[5m])) / a_b_count";
        assert_eq!(metrics_in(text, "a_"), ["a_b_bucket", "a_b_count"]);
    }
}
