//! The Python package: a wheel with the library of this build, installed and tried in a virtual environment
//! of its own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use flow_testbed::{
    require,
    require::{Requirement::Program, skip},
};

use super::c_program::{built, ends, succeeds};

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("python")
        .join(path)
}

#[test]
fn the_wheel_is_built_installed_and_works() {
    require!(Program("python3"));
    let directory = tempfile::tempdir().unwrap();
    let [builder, user] = ["builder", "user"].map(|it| directory.path().join(it));
    let python = || Command::new("python3");
    // Debian has it in a package of its own.
    let (found, _) = ends(python().args(["-c", "import ensurepip, venv"]));
    if !found.success() {
        fn here() {}
        let reason = "python3 makes no virtual environment; install python3-venv";
        return skip(std::any::type_name_of_val(&here), reason);
    }
    for environment in [&builder, &user] {
        succeeds(python().args(["-m", "venv"]).arg(environment));
    }
    let pip = |environment: &Path| {
        let mut pip = Command::new(environment.join("bin/python"));
        pip.args(["-m", "pip", "--quiet", "--disable-pip-version-check"]);
        pip.env("CLOUDBURST_LIBRARY", built("libcloudburst_ffi.so"));
        pip
    };
    let mut fetching = pip(&builder);
    fetching.args(["install", "--retries=0", "--timeout=10", "setuptools>=77"]);
    let (fetched, told) = ends(&mut fetching);
    if !fetched.success() {
        fn here() {}
        assert!(lacks_network(&told), "{fetching:?}: {told}");
        let reason = "pip cannot fetch setuptools, which builds the wheel, without a network";
        return skip(std::any::type_name_of_val(&here), reason);
    }
    let copied = directory.path().join("source");
    copy(&source(""), &copied);
    succeeds(
        pip(&builder)
            .args(["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir"])
            .arg(directory.path())
            .arg(&copied),
    );
    let wheels = fs::read_dir(directory.path()).unwrap();
    let mut wheels = wheels.map(|entry| entry.unwrap().path());
    let wheel = wheels.find(|it| it.extension().is_some_and(|it| it == "whl"));
    let wheel = wheel.expect("pip has built a wheel");
    let name = wheel.file_name().unwrap().to_str().unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert!(
        name.starts_with(&format!("cloudburst_fec-{version}-py3-none-linux_")),
        "{name}"
    );

    succeeds(pip(&user).args(["install", "--no-index"]).arg(&wheel));
    let python = user.join("bin/python");
    let told = succeeds(
        Command::new(&python)
            .arg(source("tests/try_out.py"))
            .current_dir(directory.path()),
    );
    assert!(
        told.contains(&format!("cloudburst {version}: all of it works")),
        "{told}"
    );

    let readme = fs::read_to_string(source("README.md")).unwrap();
    let example = readme.split("```python\n").nth(1).unwrap();
    let example = example.split("```").next().unwrap();
    let told = succeeds(Command::new(&python).args(["-c", example]));
    assert!(told.contains("b'ARE YOU THERE?'"), "{told}");
}

/// Tells by pip's words whether it has reached no registry, or lost it on the way.
fn lacks_network(told: &str) -> bool {
    // A registry that has answered has some version.
    ["(from versions: none)", "ConnectionPool"]
        .iter()
        .any(|words| told.contains(words))
}

#[test]
fn a_missing_network_is_told_from_what_is_wrong() {
    assert!(lacks_network(
        "ERROR: Could not find a version that satisfies the requirement setuptools>=77 (from versions: none)"
    ));
    assert!(lacks_network(
        "pip._vendor.urllib3.exceptions.ReadTimeoutError: HTTPSConnectionPool(host='registry', port=443)"
    ));
    assert!(!lacks_network(
        "ERROR: Could not find a version that satisfies the requirement setuptools>=770 (from versions: 80.9.0)"
    ));
    assert!(!lacks_network("ERROR: No space left on device"));
}

/// Copies the Python package: its build leaves files next to the source, which is not to change.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap().path();
        let target = to.join(entry.file_name().unwrap());
        if entry.is_dir() {
            copy(&entry, &target);
        } else {
            fs::copy(&entry, target).unwrap();
        }
    }
}

/// The numbers of Python are written by hand.
#[test]
fn python_and_c_have_the_same_statuses_and_functions() {
    let python = fs::read_to_string(source("cloudburst/_library.py")).unwrap();
    let statuses = python.split("class Status").nth(1).unwrap();
    let statuses = statuses.split("\nclass ").next().unwrap();
    let header = source("../include/cloudburst.h");
    let header = fs::read_to_string(header).unwrap();
    let mut count = 0;
    for line in header.lines().map(str::trim) {
        let Some(status) = line.strip_prefix("CLOUDBURST_STATUS_") else {
            continue;
        };
        count += 1;
        let status = format!("    {}\n", status.trim_end_matches(','));
        assert!(statuses.contains(&status), "Python lacks{status}");
    }
    assert_eq!(statuses.matches(" = ").count(), count, "statuses of Python");
    let declared = python.split("def _load").nth(1).unwrap();
    let declared = declared.split("        (\"").skip(1);
    let declared = declared.map(|it| it.split('"').next().unwrap());
    for function in declared {
        assert!(
            header.contains(&format!("cloudburst_{function}(")),
            "C lacks {function}"
        );
    }
}
