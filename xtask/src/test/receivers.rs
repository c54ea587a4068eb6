//! The receivers among the examples of Cloudburst's code: built as their users build them, and each given the
//! same datagrams, of which a third is lost, in a browser, in Node and on a board without an operating system.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use super::libtest::Tally;
use crate::{
    command::{self, Run},
    project::{Project, find_program},
    setup::MinimumToolchain,
};

/// Where the examples lie.
const EXAMPLES: &str = "cloudburst/crates/code/examples";
const BROWSER: &str = "chromium-headless-shell";
const EMULATOR: &str = "qemu-system-arm";
/// How long each may take, beside tests that leave it little of a processor; a second is what they take of one.
const SECONDS: &str = "600";
/// Looks at the page, at most: beside tests the browser's threads get to compile the module late.
const ATTEMPTS: u32 = 20;

/// Builds and runs each; those are skipped whose compiler, browser, Node or emulator is not there.
pub(super) fn check(project: &Project) -> Result<Tally> {
    let mut tally = Tally::default();
    let toolchain = match MinimumToolchain::find() {
        Ok(toolchain) => toolchain,
        Err(reason) => {
            let reason = format!("{reason:#}");
            for name in ["the receiver in a browser", "the receiver on a bare board"] {
                tally.add(Tally::skip(name, &reason));
            }
            return Ok(tally);
        }
    };
    let trial = Trial::new(project, toolchain)?;
    let module = trial.build("browser", "wasm32-unknown-unknown")?;
    let module = module.join("browser_receiver.wasm");
    for (name, program, run) in [
        ("browser", BROWSER, Trial::browse as Runner),
        ("node", "node", Trial::call_node),
    ] {
        tally.add(trial.judge(name, program, run, &module));
    }
    let image = trial.build("bare-metal", "thumbv7em-none-eabihf")?;
    let image = image.join("bare-metal-receiver");
    tally.add(trial.judge("bare board", EMULATOR, Trial::emulate, &image));
    Ok(tally)
}

/// Runs a receiver by a program, and returns what it has put together.
type Runner = fn(&Trial, &Path, &Path) -> Result<String>;

struct Trial {
    examples: PathBuf,
    target: PathBuf,
    /// A directory of its own, made anew.
    place: PathBuf,
    toolchain: MinimumToolchain,
    messages: [String; 3],
}

impl Trial {
    /// Makes messages, and the datagrams of them that arrive.
    fn new(project: &Project, toolchain: MinimumToolchain) -> Result<Self> {
        let target = project.target.join("receivers");
        let place = target.join("trial");
        if place.exists() {
            fs::remove_dir_all(&place)?;
        }
        fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
        let trial = Self {
            examples: project.root.join(EXAMPLES),
            target,
            place,
            toolchain,
            // A symbol, some, and as many as the board has memory for.
            messages: [40, 5_000, 12_000].map(text),
        };
        let mut files = Vec::new();
        for (number, message) in trial.messages.iter().enumerate() {
            let file = trial.place.join(format!("message-{number}"));
            fs::write(&file, message)?;
            files.push(file);
        }
        let build = [
            "build",
            "--locked",
            // With the features of the tests, so that the code is not compiled again for it.
            "--workspace",
            "--example=sender",
        ];
        command::cargo()
            .args(build)
            .current_dir(&project.root)
            .run()?;
        Run::new(project.target.join("debug/examples/sender"))
            .arg(trial.datagrams())
            .arg("33")
            .args(files)
            .run()?;
        Ok(trial)
    }

    fn datagrams(&self) -> PathBuf {
        self.place.join("datagrams")
    }

    /// Builds one as it says at its head, and returns the directory of what comes of it.
    fn build(&self, example: &str, target: &str) -> Result<PathBuf> {
        self.toolchain
            .cargo()
            .args(["build", "--release", "--locked", "--target", target])
            .env("CARGO_TARGET_DIR", &self.target)
            .env_remove("RUSTFLAGS")
            .current_dir(self.examples.join(example))
            .run()?;
        Ok(self.target.join(target).join("release"))
    }

    /// Holds what a receiver has put together against the messages; skips it without the program.
    fn judge(&self, name: &str, program: &str, run: Runner, built: &Path) -> Tally {
        let name = format!("receiver: {name}");
        let Some(program) = find_program(program) else {
            return Tally::skip(&name, &format!("{program} is not there"));
        };
        let expected = self.messages.join("\n");
        match run(self, &program, built) {
            Ok(received) if received.trim_end() == expected => Tally::success(),
            Ok(received) => Tally::failure_for(&name, &format!("it has put together: {received}")),
            Err(error) => Tally::failure_for(&name, &format!("{error:#}")),
        }
    }

    /// The page as it is, with what it is to show next to it.
    fn browse(&self, browser: &Path, module: &Path) -> Result<String> {
        for file in ["page.html", "receiver.js"] {
            fs::copy(
                self.examples.join("browser").join(file),
                self.place.join(file),
            )?;
        }
        let (module, datagrams) = (fs::read(module)?, fs::read(self.datagrams())?);
        let received = format!(
            "const received = {{ module: new Uint8Array([{}]), datagrams: new Uint8Array([{}]) }};\n",
            numbers(&module),
            numbers(&datagrams)
        );
        fs::write(self.place.join("received.js"), received)?;
        // The module is compiled beside the page, whose time may be over before.
        let mut state = String::new();
        for _ in 0..ATTEMPTS {
            let page = self.dump(browser)?;
            state = between(&page, "<span id=\"state\">", "</span>")?.to_owned();
            if state == "done" {
                return Ok(between(&page, "<pre id=\"messages\">", "</pre>")?.to_owned());
            }
            if state != "loading" {
                break;
            }
        }
        bail!("the page says: {state}");
    }

    /// What the browser has made of the page.
    fn dump(&self, browser: &Path) -> Result<String> {
        timed(browser)
            .args(["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .arg(format!(
                "--user-data-dir={}",
                self.place.join("profile").display()
            ))
            // Until nothing is left to do, and time is only counted.
            .args(["--virtual-time-budget=20000", "--dump-dom"])
            .arg(format!("file://{}", self.place.join("page.html").display()))
            .env("HOME", &self.place)
            .read()
    }

    fn call_node(&self, node: &Path, module: &Path) -> Result<String> {
        timed(node)
            .arg(self.examples.join("browser/node.js"))
            .arg(module)
            .arg(self.datagrams())
            .read()
    }

    /// With the serial line as standard input and output.
    fn emulate(&self, emulator: &Path, image: &Path) -> Result<String> {
        timed(emulator)
            .args([
                "-machine",
                "mps2-an386",
                "-display",
                "none",
                "-monitor",
                "none",
            ])
            .args([
                "-semihosting-config",
                "enable=on,target=native",
                "-serial",
                "stdio",
            ])
            .arg("-kernel")
            .arg(image)
            .read_with_input(fs::File::open(self.datagrams())?)
    }
}

/// Ends a program that does not end by itself.
fn timed(program: &Path) -> Run {
    Run::new("timeout").arg(SECONDS).arg(program)
}

/// Text of so many letters, without what HTML has another way to write.
fn text(letters: usize) -> String {
    let numbers = (0..).flat_map(|number: u32| format!("{number} ").into_bytes());
    let mut text: Vec<u8> = numbers.take(letters - 1).collect();
    text.push(b'.');
    String::from_utf8(text).expect("they are digits")
}

fn numbers(bytes: &[u8]) -> String {
    let numbers: Vec<_> = bytes.iter().map(u8::to_string).collect();
    numbers.join(",")
}

fn between<'a>(page: &'a str, begin: &str, end: &str) -> Result<&'a str> {
    let inner = page
        .split_once(begin)
        .and_then(|(_, rest)| rest.split_once(end));
    match inner {
        Some((inner, _)) => Ok(inner),
        None => bail!("the page has no {begin}: {page}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_text_is_found_or_the_page_is_shown() {
        assert_eq!(between("<p>a</p>", "<p>", "</p>").unwrap(), "a");
        let error = between("<p>a", "<p>", "</p>").unwrap_err();
        assert!(error.to_string().contains("<p>a"), "{error}");
    }
}
