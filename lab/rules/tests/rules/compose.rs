//! Rule: what `docker compose up` starts is what is there: files, programs, flags, ports and names.

use std::{collections::BTreeMap, fs, path::PathBuf, process::Command};

use flow_testbed::require::Requirement::Program;

use crate::{WORKSPACE, assert_none, packaging::succeeds};

/// Help of the playground as its own test holds it.
const PLAYGROUND: &str = include_str!("../../../demo/tests/it/snapshots/splitter-demo.snap");

fn directory() -> PathBuf {
    WORKSPACE.root.join("packaging/compose")
}

fn read(file: &str) -> String {
    fs::read_to_string(directory().join(file)).unwrap()
}

/// Services by name, each with its lines.
fn services(compose: &str) -> BTreeMap<&str, Vec<&str>> {
    let (_, text) = compose.split_once("\nservices:\n").unwrap();
    let (mut services, mut current) = (BTreeMap::new(), "");
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        match line.strip_prefix("  ").filter(|it| !it.starts_with(' ')) {
            Some(name) => current = name.trim_end_matches(':'),
            None => services
                .entry(current)
                .or_insert_with(Vec::new)
                .push(line.trim()),
        }
    }
    services
}

/// The words of a list in brackets, behind the one line that begins so.
fn listed(text: &str, begin: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim);
    let mut lists = lines.filter_map(|line| line.strip_prefix(begin));
    let list = lists.next().unwrap_or_else(|| panic!("no {begin}"));
    assert!(lists.next().is_none(), "{begin} is there twice");
    let words = list.trim().strip_prefix('[').unwrap();
    let words = words.strip_suffix(']').unwrap().split(',');
    words
        .map(|word| word.trim().trim_matches('"').to_owned())
        .collect()
}

/// What stands behind `key: `, of which there is one.
fn valued<'t>(text: &'t str, key: &str) -> &'t str {
    let lines = text
        .lines()
        .map(|line| line.trim().trim_start_matches("- "));
    let mut values = lines.filter_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
    let value = values.next().unwrap_or_else(|| panic!("no {key}"));
    assert!(values.next().is_none(), "{key} is there twice");
    value
}

/// Files and directories from here, and where a container has them.
fn mounts(compose: &str) -> Vec<(PathBuf, &str)> {
    let lines = compose.lines().map(str::trim);
    let mounts = lines.filter_map(|line| {
        line.strip_prefix("- .")?
            .strip_suffix(":ro")?
            .split_once(':')
    });
    let mounts: Vec<_> = mounts
        .map(|(from, to)| (directory().join(format!(".{from}")), to))
        .collect();
    assert!(mounts.len() > 4, "{mounts:?}");
    mounts
}

#[test]
fn playground_of_the_container_takes_its_flags_and_serves_the_ports_that_are_published() {
    let compose = read("compose.yaml");
    let (_, help) = PLAYGROUND
        .split_once("\n## help of the playground\n")
        .unwrap();
    let help = help.split("\n## ").next().unwrap();
    let mut command = listed(&compose, "command:").into_iter().peekable();
    while let Some(flag) = command.next() {
        let line = help.lines().find(|line| {
            let rest = line.trim().strip_prefix(flag.as_str());
            rest.is_some_and(|it| it.is_empty() || it.starts_with(' '))
        });
        let line = line.unwrap_or_else(|| panic!("the playground has no {flag}: {help}"));
        let takes_value = line.trim()[flag.len()..].trim_start().starts_with('<');
        let value = command.next_if(|word| !word.starts_with("--"));
        assert_eq!(value.is_some(), takes_value, "{flag}");
    }
    // Both borders' pages, where the playground serves them and its own machine reaches them.
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("[default: 9461,9462,9090]"), "{words}");
    let published = services(&compose)["playground"].join("\n");
    for port in ["9461", "9462"] {
        let here = format!("- \"127.0.0.1:{port}:{port}\"");
        assert!(published.contains(&here), "{published}");
    }
    assert_eq!(valued(&published, "stop_signal"), "SIGINT", "Ctrl-C");
}

#[test]
fn image_is_built_from_packages_that_exist_and_starts_what_it_was_given() {
    let recipe = read("Containerfile");
    let build = recipe
        .lines()
        .find(|it| it.contains("cargo build"))
        .unwrap();
    let words: Vec<&str> = build.split_whitespace().collect();
    let behind = |flag: &str| {
        let pairs = words.windows(2).filter(|two| two[0] == flag);
        pairs.map(|two| two[1]).collect::<Vec<_>>()
    };
    let manifest = fs::read_to_string(WORKSPACE.root.join("Cargo.toml")).unwrap();
    let [profile] = behind("--profile")[..] else {
        panic!("{build}");
    };
    assert!(manifest.contains(&format!("\n[profile.{profile}]\n")));
    let packages = behind("--package");
    assert!(packages.len() > 1, "{build}");
    for package in packages {
        let is_known = WORKSPACE.packages.contains_key(package);
        assert!(is_known, "no package {package}");
    }
    let copied = recipe
        .lines()
        .find_map(|it| it.strip_prefix("COPY --from=build "));
    let mut copied: Vec<&str> = copied.unwrap().split_whitespace().collect();
    let to = copied.pop().unwrap();
    assert_eq!(to, "/usr/local/bin/", "it is in PATH");
    let built = format!("/src/target/{profile}/");
    let programs: Vec<_> = copied
        .iter()
        .filter_map(|it| it.strip_prefix(&built))
        .collect();
    assert_eq!(programs, ["splitter", "splitter-demo"]);
    assert_eq!(
        listed(&recipe, "ENTRYPOINT"),
        ["splitter-demo", "playground"]
    );
    // The whole tree is sent to the engine, without what is large and not needed.
    assert_eq!(
        fs::read_to_string(WORKSPACE.root.join(".dockerignore")).unwrap(),
        "target\n.git\n"
    );
    let context = valued(&read("compose.yaml"), "context").to_owned();
    let context = directory().join(context).canonicalize().unwrap();
    assert_eq!(context, WORKSPACE.root.canonicalize().unwrap());
    let path = valued(&read("compose.yaml"), "dockerfile").to_owned();
    assert!(context.join(&path).is_file(), "no {path}");
}

#[test]
fn mounted_files_are_there_and_prometheus_takes_its_own() {
    let compose = read("compose.yaml");
    // As the container of Prometheus has it.
    let inside = tempfile::tempdir().unwrap();
    let (mut wrong, mut configuration) = (Vec::new(), None);
    for (from, to) in mounts(&compose) {
        if !from.exists() {
            wrong.push(from.display().to_string());
        } else if to.starts_with("/etc/prometheus/") {
            let copy = inside.path().join(to.rsplit('/').next().unwrap());
            fs::copy(&from, &copy).unwrap();
            configuration = configuration.or(to.ends_with("/prometheus.yml").then_some(copy));
        }
    }
    assert_none("files that nobody has", &wrong);
    flow_testbed::require!(Program("promtool"));
    let mut check = Command::new("promtool");
    succeeds(check.args(["check", "config"]).arg(configuration.unwrap()));
}

#[test]
fn services_find_each_other_by_name_and_port() {
    let compose = read("compose.yaml");
    let services = services(&compose);
    let names: Vec<&str> = services.keys().copied().collect();
    assert_eq!(names, ["grafana", "playground", "prometheus"]);
    let targets = listed(&read("prometheus.yml"), "- targets:");
    assert_eq!(targets, ["playground:9461", "playground:9462"]);
    let source = read("grafana/datasource.yml");
    let source = valued(&source, "url")
        .trim_start_matches("http://")
        .to_owned();
    let (service, port) = source.split_once(':').unwrap();
    let published = format!("- \"127.0.0.1:{port}:{port}\"");
    assert!(services[service].contains(&published.as_str()), "{source}");
    for lines in services.values() {
        let needed = lines.iter().find(|it| it.starts_with("depends_on: "));
        for name in needed
            .map(|it| listed(it, "depends_on:"))
            .into_iter()
            .flatten()
        {
            assert!(names.contains(&name.as_str()), "{name}");
        }
        // Pages ask for no password: none but this machine reaches them.
        let ports = lines.iter().filter(|it| it.starts_with("- \""));
        for port in ports {
            assert!(port.starts_with("- \"127.0.0.1:"), "{port}");
        }
    }
}

#[test]
fn grafana_is_given_its_source_and_both_dashboards() {
    let compose = read("compose.yaml");
    let mounts = mounts(&compose);
    let dashboards = read("grafana/dashboards.yml");
    let dashboards = valued(&dashboards, "path");
    let (from, _) = mounts.iter().find(|(_, to)| *to == dashboards).unwrap();
    for name in ["splitter.json", "cloudburst.json"] {
        assert!(from.join(name).is_file(), "{name}");
    }
    let home = valued(&compose, "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH");
    let home = home
        .strip_prefix(dashboards)
        .unwrap()
        .trim_start_matches('/');
    assert!(from.join(home).is_file(), "{home}");
    // Where Grafana looks for what is provisioned.
    for file in ["datasources/prometheus.yml", "dashboards/dashboards.yml"] {
        let to = format!("/etc/grafana/provisioning/{file}");
        assert!(mounts.iter().any(|(_, it)| *it == to), "{to}");
    }
}
