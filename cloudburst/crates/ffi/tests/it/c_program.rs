//! The example in C: compiled without a warning, run, and without a leak.

use std::{
    fs::File,
    io::{Read as _, Seek as _},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use flow_testbed::{require, require::Requirement::Program};

/// The library that this test was built with, next to it.
pub(crate) fn built(file: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.parent().unwrap().join(file);
    assert!(library.is_file(), "no {}", library.display());
    library
}

fn source(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Longer than any program here takes, on a busy machine and under valgrind.
const PATIENCE: Duration = Duration::from_secs(300);

/// Runs a program that has to succeed, and to end. Returns what it has told.
pub(crate) fn succeeds(command: &mut Command) -> String {
    let (status, told) = ends(command);
    assert!(status.success(), "{command:?}: {told}");
    told
}

/// Runs a program that has to end. Returns what it has told.
pub(crate) fn ends(command: &mut Command) -> (ExitStatus, String) {
    ends_within(PATIENCE, command)
}

fn ends_within(patience: Duration, command: &mut Command) -> (ExitStatus, String) {
    // Pipes would fill up while nobody reads them, or be held by what the program has started.
    let mut told = tempfile::tempfile().unwrap();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(told.try_clone().unwrap())
        .stderr(told.try_clone().unwrap())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return (status, whole(&mut told));
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{command:?} does not end: {}", whole(&mut told));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn whole(file: &mut File) -> String {
    let mut text = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut text).unwrap();
    String::from_utf8_lossy(&text).into_owned()
}

/// Compiles the example, so that it finds the library by `link`.
fn compile(directory: &Path, link: &[&str]) -> PathBuf {
    let program = directory.join("request_reply");
    let mut cc = Command::new("cc");
    cc.args([
        "-std=c11",
        "-g",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
    ])
    .arg("-I")
    .arg(source("include"))
    .arg(source("examples/request_reply.c"))
    .arg("-o")
    .arg(&program)
    .args(link);
    succeeds(&mut cc);
    program
}

fn with_shared_library(directory: &Path) -> PathBuf {
    let place = built("libcloudburst_ffi.so");
    let place = place.parent().unwrap().to_str().unwrap();
    let rpath = format!("-Wl,-rpath,{place}");
    let link = ["-L", place, &rpath, "-lcloudburst_ffi", "-lpthread"];
    compile(directory, &link)
}

fn is_what_it_should_say(told: &str) {
    let version = concat!("Cloudburst ", env!("CARGO_PKG_VERSION"));
    for line in [
        version,
        "reply: are you there?",
        "delivered after ",
        "the server has 100000 bytes",
    ] {
        assert!(told.contains(line), "no `{line}` in {told}");
    }
}

#[test]
#[should_panic(expected = "does not end: begun")]
fn a_program_that_hangs_is_ended() {
    let mut hanging = Command::new("sh");
    hanging.args(["-c", "echo begun; exec sleep 600"]);
    ends_within(Duration::from_secs(1), &mut hanging);
}

#[test]
fn the_example_in_c_runs_with_the_shared_library() {
    require!(Program("cc"));
    let directory = tempfile::tempdir().unwrap();
    let program = with_shared_library(directory.path());
    is_what_it_should_say(&succeeds(&mut Command::new(program)));
}

#[test]
fn the_example_in_c_runs_with_the_static_library() {
    require!(Program("cc"));
    let directory = tempfile::tempdir().unwrap();
    let library = built("libcloudburst_ffi.a");
    let link = [library.to_str().unwrap(), "-lpthread", "-ldl", "-lm"];
    let program = compile(directory.path(), &link);
    is_what_it_should_say(&succeeds(&mut Command::new(program)));
}

#[test]
fn the_example_in_c_leaks_nothing() {
    require!(Program("cc"), Program("valgrind"));
    let directory = tempfile::tempdir().unwrap();
    let program = with_shared_library(directory.path());
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--leak-check=full", "--errors-for-leak-kinds=definite"])
        .args(["--error-exitcode=9", "--fair-sched=yes"])
        // The optimiser lets safe code compare what is not there, and drops the result: valgrind cannot
        // know that. Accesses to memory that is freed or nobody's are found all the same.
        .arg("--undef-value-errors=no")
        .arg(program);
    let told = succeeds(&mut valgrind);
    is_what_it_should_say(&told);
    let nothing = ["definitely lost: 0 bytes", "no leaks are possible"];
    assert!(nothing.iter().any(|it| told.contains(it)), "{told}");
}

#[test]
fn the_header_is_one_of_cpp_too() {
    require!(Program("c++"));
    let directory = tempfile::tempdir().unwrap();
    let main = directory.path().join("main.cpp");
    std::fs::write(
        &main,
        "#include \"cloudburst.h\"\nint main() { return cloudburst_version() == nullptr; }\n",
    )
    .unwrap();
    let mut compiler = Command::new("c++");
    compiler
        .args([
            "-fsyntax-only",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-I",
        ])
        .arg(source("include"))
        .arg(main);
    succeeds(&mut compiler);
}
