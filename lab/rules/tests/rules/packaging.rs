//! Rule: what packages install is what systemd and Prometheus take, and names metrics that exist.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use flow_testbed::require::Requirement::Program;

use crate::{WORKSPACE, assert_none};

#[track_caller]
pub(crate) fn succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{command:?}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

#[test]
fn systemd_takes_the_units() {
    flow_testbed::require!(Program("systemd-analyze"));
    let units = WORKSPACE.root.join("packaging/systemd");
    for unit in fs::read_dir(units).unwrap() {
        let unit = unit.unwrap();
        if unit.path().extension().is_none_or(|it| it != "service") {
            continue;
        }
        let text = fs::read_to_string(unit.path()).unwrap();
        let is_of_a_fabric = unit.file_name() == "splitter-fabric.service";
        let command = if is_of_a_fabric { "fabric run" } else { "run" };
        assert!(text.contains(&format!("ExecStart=/usr/local/bin/splitter {command}\n")));
        // What a role goes by is read at its start alone.
        let reload = "ExecReload=/usr/local/bin/splitter reload\n";
        assert_eq!(text.contains(reload), !is_of_a_fabric);
        assert!(text.contains("Type=notify\n") && text.contains("WatchdogSec=90\n"));
        // A device that is late, or an uplink that is down, at boot is the end of nothing.
        assert!(text.contains("StartLimitIntervalSec=0\n") && text.contains("RestartSec=2\n"));
        assert!(!text.contains("After=network-online.target"));
        // It looks for the program, which is not installed here.
        let directory = tempfile::tempdir().unwrap();
        let copy = directory.path().join(unit.file_name());
        fs::write(&copy, text.replace("/usr/local/bin/splitter", "/bin/true")).unwrap();
        succeeds(
            Command::new("systemd-analyze")
                .args(["verify", "--man=no"])
                .arg(copy),
        );
    }
}

/// Programs that are watched, each with rules, their test, a dashboard and a page about its metrics.
const WATCHED: [(&str, &str); 2] = [
    ("splitter", "metrics.md"),
    ("cloudburst", "cloudburst-metrics.md"),
];

#[test]
fn prometheus_takes_the_rules_and_each_alert_is_raised_by_its_fault() {
    flow_testbed::require!(Program("promtool"));
    let directory = WORKSPACE.root.join("packaging/prometheus");
    let promtool = |arguments: &[&str]| {
        succeeds(
            Command::new("promtool")
                .args(arguments)
                .current_dir(&directory),
        );
    };
    promtool(&["check", "config", "prometheus.yml"]);
    for (program, _) in WATCHED {
        let (rules, tests) = (
            format!("{program}.rules.yml"),
            format!("{program}.rules.test.yml"),
        );
        promtool(&["check", "rules", &rules]);
        promtool(&["test", "rules", &tests]);
        let [rules, tests] =
            [rules, tests].map(|file| fs::read_to_string(directory.join(file)).unwrap());
        let alerts = rules
            .lines()
            .filter_map(|line| line.split_once("- alert: ").map(|it| it.1));
        // Once as quiet, once as raised.
        let untested: Vec<_> = alerts
            .filter(|alert| tests.matches(alert).count() < 2)
            .map(str::to_owned)
            .collect();
        assert_none("alerts that no test raises", &untested);
    }
}

#[test]
fn rules_and_dashboards_name_metrics_that_are_documented() {
    let root = &WORKSPACE.root;
    for (program, page) in WATCHED {
        let page = root.join("docs/src/reference").join(page);
        let page = fs::read_to_string(page).unwrap();
        let rules = format!("packaging/prometheus/{program}.rules.yml");
        let dashboard = format!("packaging/grafana/{program}.json");
        for file in [rules, dashboard] {
            let text = fs::read_to_string(root.join(&file)).unwrap();
            let wrong: Vec<_> = metrics(&text, &format!("{program}_"))
                .into_iter()
                .filter(|name| !is_documented(&page, name))
                .map(|name| format!("{file}: {name}"))
                .collect();
            assert_none("metrics that their page does not have", &wrong);
        }
    }
}

fn is_documented(page: &str, metric: &str) -> bool {
    let endings = ["", "_bucket", "_sum", "_count", "_info"];
    let mut families = endings
        .iter()
        .filter_map(|ending| metric.strip_suffix(ending));
    families.any(|family| {
        page.contains(&format!("| `{family}` |")) || page.contains(&format!("| `{family}_info` |"))
    })
}

/// Names of metrics in expressions.
fn metrics(text: &str, prefix: &str) -> BTreeSet<String> {
    let names = flow_testbed::prometheus::metrics_in(text, prefix);
    names.into_iter().map(str::to_owned).collect()
}

/// Panels that Grafana has without a plugin.
const PANELS: [&str; 2] = ["timeseries", "stat"];

#[test]
fn dashboards_need_no_plugin_and_take_any_prometheus() {
    for (program, _) in WATCHED {
        let file = WORKSPACE
            .root
            .join(format!("packaging/grafana/{program}.json"));
        let text = fs::read_to_string(file).unwrap();
        let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        assert!(panels.len() > 8, "{program}");
        let mut ids = BTreeSet::new();
        for panel in panels {
            let title = panel["title"].as_str().unwrap();
            let kind = panel["type"].as_str().unwrap();
            assert!(PANELS.contains(&kind), "{program}: {title} is a {kind}");
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}");
            let source = &panel["datasource"]["uid"];
            assert_eq!(source, "${datasource}", "{program}: {title}");
            for target in panel["targets"].as_array().unwrap() {
                let expression = target["expr"].as_str().unwrap();
                assert!(
                    expression.contains("instance=~\"$instance\""),
                    "{program}: {title} shows instances that nobody chose"
                );
            }
        }
    }
}

#[test]
fn workflows_pin_actions_by_commit() {
    let directory = WORKSPACE.root.join(".github/workflows");
    let (mut wrong, mut count) = (Vec::new(), 0);
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        for line in text.lines() {
            let Some((_, action)) = line.split_once("uses: ") else {
                continue;
            };
            count += 1;
            let (commit, version) = action
                .split_once('@')
                .and_then(|(_, rest)| rest.split_once(" # v"))
                .unwrap_or_default();
            let is_commit = commit.len() == 40 && commit.chars().all(|it| it.is_ascii_hexdigit());
            if !is_commit || version.is_empty() {
                wrong.push(format!("{}: {action}", path.display()));
            }
        }
    }
    assert!(count > 5, "workflows use actions");
    assert_none("actions that may become others under the same name", &wrong);
}

#[test]
fn nix_and_makepkg_read_their_files() {
    flow_testbed::require!(Program("nix-instantiate"), Program("makepkg"));
    let root = &WORKSPACE.root;
    let flake = root.join("flake.nix");
    // Without users that it would build as, which it does not do here.
    let parse = ["--option", "build-users-group", "", "--parse"];
    succeeds(Command::new("nix-instantiate").args(parse).arg(flake));
    let place = tempfile::tempdir().unwrap();
    let recipe = fs::read_to_string(root.join("packaging/arch/PKGBUILD")).unwrap();
    fs::write(place.path().join("PKGBUILD"), &recipe).unwrap();
    let script = root.join("packaging/arch/splitter.install");
    fs::copy(script, place.path().join("splitter.install")).unwrap();
    // It refuses to be root, and asks pacman for what it does not need here.
    let mut makepkg = Command::new("makepkg");
    makepkg
        .arg("--printsrcinfo")
        .current_dir(&place)
        .env("PACMAN", "true")
        .env("CARCH", "x86_64");
    if is_root() {
        use std::os::unix::{fs::PermissionsExt, process::CommandExt};
        let open = fs::Permissions::from_mode(0o777);
        fs::set_permissions(place.path(), open).unwrap();
        makepkg.uid(65534).gid(65534);
    }
    let output = makepkg.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    for line in [
        "pkgname = splitter",
        "pkgname = cloudburst-tools",
        "\tinstall = splitter.install",
        "\tpkgver = 0.1.0",
    ] {
        assert!(text.lines().any(|it| it == line), "no {line:?} in {text}");
    }
    let version = format!("pkgver={}", env!("CARGO_PKG_VERSION"));
    assert!(recipe.contains(&version), "PKGBUILD is of another version");
}

/// Each package takes back what is in the kernel before its program goes, in this order.
const TAKEN_BACK: [&str; 4] = [
    "splitter.service splitter-fabric.service",
    "splitter down --all",
    "splitter fabric down --all",
    "rmdir /sys/fs/bpf/splitter /sys/fs/bpf/splitter-fabric",
];

#[test]
fn every_package_takes_back_what_is_in_the_kernel_before_it_goes() {
    let root = &WORKSPACE.root;
    for file in [
        "packaging/arch/splitter.install",
        "lab/packager/src/deb.rs",
        "lab/packager/src/rpm.rs",
    ] {
        let text = fs::read_to_string(root.join(file)).unwrap();
        let removal = text
            .split("disable --now ")
            .nth(1)
            .or(text.split("invoke stop ").nth(1));
        let mut rest = removal.unwrap_or_else(|| panic!("{file} stops no service"));
        for step in TAKEN_BACK {
            let found = rest.split_once(step);
            (_, rest) = found.unwrap_or_else(|| panic!("{file}: no {step:?} in its place"));
        }
    }
}

/// With programs of another kind in the path, which note what they are told.
#[test]
fn arch_takes_back_what_is_in_the_kernel_where_systemd_runs() {
    let script = WORKSPACE.root.join("packaging/arch/splitter.install");
    let place = tempfile::tempdir().unwrap();
    let noted = place.path().join("noted");
    for program in [
        "systemctl",
        "systemd-sysusers",
        "systemd-tmpfiles",
        "splitter",
        "rmdir",
    ] {
        use std::os::unix::fs::PermissionsExt;
        let path = place.path().join(program);
        // Each of them fails, which keeps none of the others from being asked.
        let text = format!(
            "#!/bin/sh\necho {program} \"$@\" >> {}\nexit 1\n",
            noted.display()
        );
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let runs = |directory: &str, step: &str| -> String {
        fs::write(&noted, "").unwrap();
        let text = fs::read_to_string(&script)
            .unwrap()
            .replace("/run/systemd/system", directory);
        let mut shell = Command::new("/bin/sh");
        shell.args(["-ec", &format!("{text}\n{step}")]);
        succeeds(shell.env("PATH", place.path()));
        fs::read_to_string(&noted).unwrap()
    };
    let here = place.path().to_str().unwrap();
    assert_eq!(
        runs(here, "pre_remove"),
        "systemctl --no-reload disable --now splitter.service splitter-fabric.service\n\
         splitter down --all\nsplitter fabric down --all\n\
         rmdir /sys/fs/bpf/splitter /sys/fs/bpf/splitter-fabric\n"
    );
    let upgraded = runs(here, "post_upgrade");
    assert_eq!(
        upgraded,
        "systemd-sysusers splitter.conf\nsystemd-tmpfiles --create splitter.conf\n\
         systemctl daemon-reload\n\
         systemctl try-restart splitter.service splitter-fabric.service\n"
    );
    for step in ["pre_remove", "post_upgrade"] {
        assert_eq!(runs("/nowhere", step), "", "{step}");
    }
}

/// The owner of /proc/self is who runs this.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").unwrap().uid() == 0
}

#[test]
fn the_book_includes_files_that_exist() {
    let root = &WORKSPACE.root;
    let mut wrong = Vec::new();
    let mut count = 0;
    each_page(&root.join("docs/src"), &mut |page, text| {
        // What is put into a list without its indent ends it, in the middle of the block.
        let is_fence = |line: &str| line.starts_with(' ') && line.trim_start().starts_with("```");
        let mut lines = text.lines().zip(text.lines().skip(1));
        if lines.any(|(fence, line)| is_fence(fence) && line.contains("{{#include ")) {
            wrong.push(format!("{}: a file in a list", page.display()));
        }
        for rest in text.split("{{#include ").skip(1) {
            let path = rest.split("}}").next().unwrap_or_default();
            count += 1;
            if !page.with_file_name(path).is_file() {
                wrong.push(format!("{}: no file {path}", page.display()));
            }
        }
    });
    assert!(
        count >= 4,
        "the book includes units, rules and a configuration"
    );
    assert_none("files that the book includes", &wrong);
}

fn each_page(directory: &Path, found: &mut impl FnMut(&Path, &str)) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            each_page(&path, found);
        } else {
            found(&path, &fs::read_to_string(&path).unwrap());
        }
    }
}
