//! Commands that run inside a namespace and cannot outlive the thread that started them.

use std::{
    ffi::CString,
    io::{self, Write as _},
    os::{fd::AsFd, unix::ffi::OsStrExt, unix::process::CommandExt},
    path::Path,
    process::{Command, ExitStatus, Stdio},
    sync::Arc,
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, setns, unshare},
    sys::{prctl, signal::Signal},
    unistd::{getpid, getppid},
};

use super::Namespace;

/// A mount namespace of its own for a command: `/sys` shows the devices of its network namespace,
/// and a fresh BPF file system is mounted at a directory, so that what it pins there vanishes with
/// the last process of that mount namespace.
#[derive(Clone, Debug)]
pub struct Isolation {
    bpffs: CString,
}

/// Why a command line did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// The program could not be started.
    #[error("cannot start `{line}` in network namespace {namespace}: {source}")]
    Start {
        /// The command line.
        line: String,
        /// Where it was to run.
        namespace: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The program ran and failed.
    #[error("`{line}` in network namespace {namespace} ended with {status}: {stderr}")]
    Failed {
        /// The command line.
        line: String,
        /// Where it ran.
        namespace: String,
        /// How it ended.
        status: ExitStatus,
        /// What it said on standard error.
        stderr: String,
    },
}

impl Isolation {
    /// Mounts the BPF file system at `bpffs`, a directory that must exist.
    ///
    /// # Errors
    /// `InvalidInput` when the path holds a NUL byte.
    pub fn with_bpffs(bpffs: &Path) -> io::Result<Self> {
        Ok(Self {
            bpffs: CString::new(bpffs.as_os_str().as_bytes())?,
        })
    }

    /// Async-signal-safe: it makes system calls alone.
    fn apply(&self) -> nix::Result<()> {
        const NONE: Option<&[u8]> = None;
        unshare(CloneFlags::CLONE_NEWNS)?;
        // Without this the mounts below would appear outside as well.
        mount(
            NONE,
            c"/",
            NONE,
            MsFlags::MS_REC | MsFlags::MS_PRIVATE,
            NONE,
        )?;
        mount(
            Some(c"sysfs"),
            c"/sys",
            Some(c"sysfs"),
            MsFlags::empty(),
            NONE,
        )?;
        mount(
            Some(c"bpf"),
            self.bpffs.as_c_str(),
            Some(c"bpf"),
            MsFlags::empty(),
            NONE,
        )
    }
}

/// A command to be started inside `namespace`.
pub(super) fn inside(
    namespace: &Namespace,
    program: &str,
    isolation: Option<&Isolation>,
) -> Command {
    let handle = Arc::clone(&namespace.handle);
    let isolation = isolation.cloned();
    let parent = getpid();
    let mut command = Command::new(program);
    let prepare = move || {
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        // The parent may have died before the line above, when no signal would come any more.
        if getppid() != parent {
            return Err(io::Error::from_raw_os_error(nix::libc::ESRCH));
        }
        setns(handle.as_fd(), CloneFlags::CLONE_NEWNET)?;
        if let Some(isolation) = &isolation {
            isolation.apply()?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec `prepare` makes system calls alone. It allocates nothing,
    // takes no lock, and all it uses (descriptor, paths) was made before the fork.
    unsafe { command.pre_exec(prepare) };
    command
}

/// Runs a command line to its end.
pub(super) fn run(
    namespace: &Namespace,
    line: &str,
    input: Option<&str>,
) -> Result<String, CommandError> {
    let start_error = |source| CommandError::Start {
        line: line.to_owned(),
        namespace: namespace.name().to_owned(),
        source,
    };
    let mut words = line.split_whitespace();
    let program = words.next().unwrap_or_default();
    let mut child = inside(namespace, program, None)
        .args(words)
        .stdin(if input.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(start_error)?;
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        // A program that ends without reading everything says why on standard error.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(start_error)?;
    if !output.status.success() {
        return Err(CommandError::Failed {
            line: line.to_owned(),
            namespace: namespace.name().to_owned(),
            status: output.status,
            stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use std::{error::Error, fs};

    use super::*;
    use crate::{require, require::Requirement::*};

    type TestResult = Result<(), Box<dyn Error>>;

    #[test]
    fn failure_names_command_status_and_reason() -> TestResult {
        require!(Root, Program("ip") => Ok(()));
        let namespace = Namespace::new("failure")?;
        let error = namespace
            .run("ip link set nowhere up")
            .expect_err("there is no such device");
        let text = error.to_string();
        for part in [
            "ip link set nowhere up",
            "failure",
            "exit status: 1",
            "nowhere",
        ] {
            assert!(text.contains(part), "{part:?} is missing in {text:?}");
        }
        let error = namespace
            .run("no-such-program")
            .expect_err("there is no such program");
        assert!(error.to_string().contains("no-such-program"), "{error}");
        Ok(())
    }

    #[test]
    fn input_reaches_the_command() -> TestResult {
        require!(Root, Program("ip"), Program("cat") => Ok(()));
        let namespace = Namespace::new("input")?;
        assert_eq!(namespace.run_with_input("cat", "a b\nc")?, "a b\nc");
        Ok(())
    }

    #[test]
    fn isolated_command_has_its_own_bpffs_and_devices() -> TestResult {
        require!(Root, Program("ip"), Program("cat"), Program("ls"), FileSystem("bpf") => Ok(()));
        let namespace = Namespace::new("isolated")?;
        namespace.run("ip link add only-here type veth peer name other")?;
        let directory = tempfile::tempdir()?;
        let isolation = Isolation::with_bpffs(directory.path())?;

        let mounts = namespace
            .command_isolated("cat", &isolation)
            .arg("/proc/mounts")
            .output()?;
        let expected = format!("bpf {} bpf ", directory.path().display());
        assert!(String::from_utf8(mounts.stdout)?.contains(&expected));
        assert!(
            !fs::read_to_string("/proc/mounts")?.contains(&expected),
            "mounted outside too"
        );

        let devices = namespace
            .command_isolated("ls", &isolation)
            .arg("/sys/class/net")
            .output()?;
        assert!(String::from_utf8(devices.stdout)?.contains("only-here"));
        Ok(())
    }

    #[test]
    fn child_does_not_outlive_the_thread_that_started_it() -> TestResult {
        require!(Root, Program("ip"), Program("sleep") => Ok(()));
        let namespace = Namespace::new("orphan")?;
        let starter = std::thread::spawn(move || namespace.command("sleep").arg("60").spawn());
        let mut child = starter.join().expect("no panic")?;
        let status = child.wait()?;
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(status.signal(), Some(nix::libc::SIGKILL));
        Ok(())
    }
}
