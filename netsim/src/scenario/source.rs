//! Sources of scenarios, and what is laid over their files before a run.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use cloudburst_proto::{Machine, Time, TransportConfig};
use flow_workload::{FlowList, SizeDistribution};

use super::{
    BalancingPolicy, Graph, Scenario, ScenarioError, SizeFile, Sizes, Traffic, embedded,
    fingerprint::fingerprint, topology::TopologyProblem,
};

/// Values that go before the keys of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Overrides {
    /// One of the file's schemes, or a balancing policy.
    pub scheme: Option<String>,
    /// Seed instead of the file's.
    pub seed: Option<u64>,
    /// Another load of all traffic that has one.
    pub load: Option<f64>,
    /// Another number of messages of all Poisson traffic.
    pub messages: Option<u32>,
}

/// Starts a host's state machine: with settings that were checked, from a seed, at a time.
pub type StartMachine = fn(TransportConfig, [u8; 32], Time) -> Box<dyn Machine>;

/// The text of a scenario and where it comes from.
#[derive(Clone, Debug)]
pub struct Source {
    pub(crate) name: String,
    /// File name, for messages.
    pub(crate) file: String,
    /// Directory in which other files are looked for.
    directory: PathBuf,
    text: String,
    /// Machine of hosts in mode `paper`, if there is one.
    pub(crate) paper_machine: Option<StartMachine>,
}

impl Source {
    /// The file of that path; without one, the scenario of that name that is built in.
    ///
    /// # Errors
    /// When there is neither.
    pub fn find(name_or_path: &str) -> Result<Self, ScenarioError> {
        let path = Path::new(name_or_path);
        let known = embedded().iter().find(|it| it.name == name_or_path);
        if let (Some(known), false) = (known, path.is_file()) {
            return Ok(Self {
                name: known.name.to_owned(),
                file: format!("{}.toml (built in)", known.name),
                directory: PathBuf::from("."),
                text: known.text.to_owned(),
                paper_machine: None,
            });
        }
        let text = fs::read_to_string(path).map_err(|error| ScenarioError::Unreadable {
            file: name_or_path.to_owned(),
            reason: error.to_string(),
        })?;
        let name = path.file_stem().unwrap_or(path.as_os_str());
        Ok(Self {
            name: name.to_string_lossy().into_owned(),
            file: name_or_path.to_owned(),
            directory: path.parent().unwrap_or(Path::new(".")).to_owned(),
            text,
            paper_machine: None,
        })
    }

    /// A scenario that is no file; distributions are looked for in the current directory.
    pub fn from_text(name: &str, text: &str) -> Self {
        Self {
            name: name.to_owned(),
            file: name.to_owned(),
            directory: PathBuf::from("."),
            text: text.to_owned(),
            paper_machine: None,
        }
    }

    /// Runs hosts whose `cloudburst.mode` is `paper` with this machine: the simulator has none,
    /// for it is there for the paper's figures alone.
    #[must_use]
    pub fn with_paper_machine(mut self, start: StartMachine) -> Self {
        self.paper_machine = Some(start);
        self
    }

    /// Returns the name of the scenario.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text as it was read.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Reads the file without a scheme.
    ///
    /// # Errors
    /// When the file is not a scenario.
    pub fn scenario(&self) -> Result<Scenario, ScenarioError> {
        toml::from_str(&self.text).map_err(|error| ScenarioError::Shape {
            file: self.file.clone(),
            reason: error.to_string().trim_end().to_owned(),
        })
    }

    /// All settings of a run, defaults included, as far as the file tells them.
    pub(crate) fn settings(&self, overrides: &Overrides) -> Result<Scenario, ScenarioError> {
        Ok(self.with_overrides(overrides)?.settings())
    }

    /// Lays a scheme and other values over the file.
    pub(crate) fn with_overrides(&self, overrides: &Overrides) -> Result<Scenario, ScenarioError> {
        let mut scenario = self.scenario()?;
        // All schemes are checked whichever is asked for: a mistake should not wait for its turn.
        let schemes: Vec<String> = scenario.schemes.keys().cloned().collect();
        for name in &schemes {
            self.with_scheme(&scenario, name)?;
        }
        if let Some(name) = &overrides.scheme {
            scenario = self.with_scheme(&scenario, name)?;
        }
        overrides.apply(&mut scenario);
        Ok(scenario)
    }

    /// Lays a scheme over the file.
    pub(crate) fn with_scheme(
        &self,
        scenario: &Scenario,
        name: &str,
    ) -> Result<Scenario, ScenarioError> {
        let Some(changes) = scenario.schemes.get(name) else {
            let policy = toml::Value::String(name.to_owned()).try_into::<BalancingPolicy>();
            let Ok(policy) = policy else {
                let known: Vec<&str> = scenario.schemes.keys().map(String::as_str).collect();
                return Err(ScenarioError::UnknownScheme {
                    file: self.file.clone(),
                    scheme: name.to_owned(),
                    known: known.join(", "),
                });
            };
            let mut scenario = scenario.clone();
            scenario.balance.policy = policy;
            return Ok(scenario);
        };
        let shape = |reason: String| ScenarioError::Shape {
            file: self.file.clone(),
            reason: format!("schemes.{name}: {}", reason.trim_end()),
        };
        let mut table: toml::Table =
            toml::from_str(&self.text).map_err(|error| shape(error.to_string()))?;
        lay_over(&mut table, changes);
        table
            .try_into()
            .map_err(|error: toml::de::Error| shape(error.to_string()))
    }

    /// Reads or makes the topology, if the scenario has one.
    pub(crate) fn graph(&self, scenario: &Scenario) -> Result<Option<Arc<Graph>>, ScenarioError> {
        let Some(topology) = &scenario.topology else {
            return Ok(None);
        };
        let graph = topology.graph(&self.directory).map_err(|problem| {
            let (key, problem) = match problem {
                TopologyProblem::NotOne => (
                    "topology".to_owned(),
                    "say either `fat_tree` or `file`".to_owned(),
                ),
                TopologyProblem::Wrong(error) => (topology.key(), error.to_string()),
            };
            ScenarioError::Value {
                file: self.file.clone(),
                key,
                problem,
            }
        })?;
        Ok(Some(Arc::new(graph)))
    }

    /// Fingerprints of the files that the scenario names.
    pub(crate) fn fingerprints(&self, scenario: &Scenario) -> BTreeMap<String, String> {
        let files = scenario.files().into_iter();
        let known =
            files.filter_map(|it| Some((it.to_owned(), fingerprint(&self.directory.join(it))?)));
        known.collect()
    }

    /// Reads the lists of flows that the scenario names.
    pub(crate) fn lists(
        &self,
        scenario: &Scenario,
    ) -> Result<BTreeMap<usize, Arc<FlowList>>, ScenarioError> {
        let mut lists = BTreeMap::new();
        for (index, traffic) in scenario.traffic.iter().enumerate() {
            let Traffic::List {
                file,
                format,
                start_unit,
                ..
            } = traffic
            else {
                continue;
            };
            let list = FlowList::read(&self.directory.join(file), *format, *start_unit);
            let list = list.map_err(|error| ScenarioError::Value {
                file: self.file.clone(),
                key: format!("traffic[{index}].file = {file:?}"),
                problem: error.to_string(),
            })?;
            lists.insert(index, Arc::new(list));
        }
        Ok(lists)
    }

    pub(crate) fn distributions(
        &self,
        scenario: &Scenario,
    ) -> Result<Vec<Option<SizeDistribution>>, ScenarioError> {
        let load = |(index, traffic): (usize, &Traffic)| {
            let Traffic::Poisson { sizes, .. } = traffic else {
                return Ok(None);
            };
            let (name, loaded) = match sizes {
                Sizes::Fixed(_) | Sizes::OneOf(_) => return Ok(None),
                Sizes::Distribution(name) => (name, SizeDistribution::load(name, &self.directory)),
                Sizes::File(SizeFile {
                    file,
                    format,
                    unit_bytes,
                }) => {
                    let path = self.directory.join(file);
                    let loaded = SizeDistribution::load_as(*format, *unit_bytes, &path);
                    (file, loaded)
                }
            };
            loaded.map(Some).map_err(|error| ScenarioError::Value {
                file: self.file.clone(),
                key: format!("traffic[{index}].sizes = {name:?}"),
                problem: error.to_string(),
            })
        };
        scenario.traffic.iter().enumerate().map(load).collect()
    }
}

/// Tables are merged, and elements of lists that are named by their number; everything else is
/// replaced.
fn lay_over(table: &mut toml::Table, changes: &toml::Table) {
    for (key, change) in changes {
        match (table.get_mut(key), change) {
            (Some(toml::Value::Table(inner)), toml::Value::Table(change)) => {
                lay_over(inner, change);
            }
            (Some(toml::Value::Array(elements)), toml::Value::Table(changes))
                if changes
                    .keys()
                    .all(|it| number(it, elements.len()).is_some()) =>
            {
                for (key, change) in changes {
                    let element = number(key, elements.len()).map(|it| &mut elements[it]);
                    match (element, change) {
                        (Some(toml::Value::Table(inner)), toml::Value::Table(change)) => {
                            lay_over(inner, change);
                        }
                        (Some(element), change) => *element = change.clone(),
                        (None, _) => (),
                    }
                }
            }
            _ => {
                table.insert(key.clone(), change.clone());
            }
        }
    }
}

/// A key that numbers one of so many elements.
fn number(key: &str, elements: usize) -> Option<usize> {
    key.parse().ok().filter(|it| *it < elements)
}

impl Overrides {
    /// All but the scheme.
    pub(crate) fn apply(&self, scenario: &mut Scenario) {
        scenario.seed = self.seed.unwrap_or(scenario.seed);
        for traffic in &mut scenario.traffic {
            if let Traffic::Poisson { load, messages, .. } = traffic {
                *messages = self.messages.unwrap_or(*messages);
                if load.is_some() {
                    *load = self.load.or(*load);
                }
            }
        }
    }
}
