//! Makes and removes anonymous network namespaces.
//!
//! A [`Namespace`] has no name in the file system: a file descriptor holds it. When the last
//! descriptor, thread and process in it are gone the kernel removes it with its devices, routes,
//! rules and attached programs, so nothing is left behind even after SIGKILL.

mod command;
mod counters;
mod delay;
mod steering;

use std::{
    fs::{self, File},
    io,
    os::fd::AsFd,
    path::PathBuf,
    process::Command,
    sync::Arc,
    thread::{self, JoinHandle},
};

use nix::sched::{CloneFlags, setns, unshare};

pub use self::{
    command::{CommandError, Isolation},
    counters::{Counters, DeviceCounters, ParseCountersError},
    delay::{DelayLine, Strand, TUN},
};

/// The network namespace of the thread that reads it.
const OWN_NETWORK: &str = "/proc/thread-self/ns/net";

/// An anonymous network namespace, alive as long as a clone of this handle or a process in it is.
#[derive(Clone, Debug)]
pub struct Namespace {
    name: Arc<str>,
    handle: Arc<File>,
}

/// Why something in a namespace could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NamespaceError {
    /// The kernel did not give a new namespace.
    #[error("cannot create network namespace {name}: {source} (this needs root)")]
    Create {
        /// What the namespace was to be called.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A thread could not be moved into the namespace.
    #[error("cannot enter network namespace {name}: {source}")]
    Enter {
        /// The namespace.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A command failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// A kernel parameter could not be set.
    #[error("cannot set {key} to {value:?} in network namespace {name}: {source}")]
    Sysctl {
        /// The namespace.
        name: String,
        /// The parameter, as `sysctl` spells it.
        key: String,
        /// The value refused.
        value: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A device's flows could not be steered.
    #[error(
        "cannot keep the flows of {device} on one CPU each in network namespace {name}: {source}"
    )]
    Steer {
        /// The namespace.
        name: String,
        /// The device.
        device: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A cable with a delay could not be made.
    #[error("cannot make the delayed device {device} in network namespace {name}: {source}")]
    Delay {
        /// The namespace.
        name: String,
        /// The device.
        device: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The protocol counters could not be read.
    #[error("cannot read the protocol counters of network namespace {name}: {source}")]
    ReadCounters {
        /// The namespace.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The protocol counters have a form that is not known.
    #[error("protocol counters of network namespace {name}: {source}")]
    ParseCounters {
        /// The namespace.
        name: String,
        /// What is wrong with them.
        source: ParseCountersError,
    },
    /// There are no counters of a device.
    #[error("cannot read the counters of {device} in network namespace {name}: {source}")]
    DeviceCounters {
        /// The namespace.
        name: String,
        /// The device.
        device: String,
        /// What the kernel said, or that there is no such device.
        source: io::Error,
    },
}

impl Namespace {
    /// Creates a namespace with its loopback device up. `name` appears in errors and thread names
    /// alone, so any number of namespaces may share one.
    ///
    /// # Errors
    /// [`NamespaceError::Create`] without CAP_SYS_ADMIN or beyond the kernel's limit on namespaces.
    pub fn new(name: &str) -> Result<Self, NamespaceError> {
        // A helper thread unshares, for a thread that has moved away cannot always come back.
        let handle = thread::scope(|scope| {
            join(thread::Builder::new().spawn_scoped(scope, || {
                unshare(CloneFlags::CLONE_NEWNET)?;
                File::open(OWN_NETWORK)
            })?)
        })
        .map_err(|source| NamespaceError::Create {
            name: name.to_owned(),
            source,
        })?;
        let namespace = Self {
            name: name.into(),
            handle: Arc::new(handle),
        };
        namespace.run("ip link set lo up")?;
        Ok(namespace)
    }

    /// Returns what the namespace was called when it was made.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A path that names this namespace to other programs (`ip link ... netns PATH`) while this
    /// process lives.
    pub fn path(&self) -> PathBuf {
        use std::os::fd::AsRawFd;
        format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            self.handle.as_raw_fd()
        )
        .into()
    }

    /// Runs `work` on a thread of its own inside the namespace and returns its result. A panic in
    /// `work` goes on in the caller.
    ///
    /// # Errors
    /// [`NamespaceError::Enter`] when the thread could not be moved; `work` has not run then.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
        thread::scope(|scope| {
            let thread = thread::Builder::new().name(self.name.to_string());
            let thread = thread.spawn_scoped(scope, || {
                self.move_this_thread()?;
                Ok(work())
            });
            join(thread.map_err(|source| self.enter_error(source))?)
        })
    }

    /// Starts a thread that lives inside the namespace.
    ///
    /// # Errors
    /// [`NamespaceError::Enter`] when the thread could not be started. When it could not be moved
    /// into the namespace, its own result is that error.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JoinHandle<Result<T, NamespaceError>>, NamespaceError> {
        let own = self.clone();
        thread::Builder::new()
            .name(self.name.to_string())
            .spawn(move || {
                own.move_this_thread()?;
                Ok(work())
            })
            .map_err(|source| self.enter_error(source))
    }

    /// A command that will run inside the namespace and be killed when the *thread* that started
    /// it ends, so start lasting ones from a thread that lasts. `tokio::process::Command::from`
    /// takes it too.
    pub fn command(&self, program: &str) -> Command {
        command::inside(self, program, None)
    }

    /// Like [`command`](Self::command), with a mount namespace of its own as `isolation` says.
    pub fn command_isolated(&self, program: &str, isolation: &Isolation) -> Command {
        command::inside(self, program, Some(isolation))
    }

    /// Runs a command line, split at white space and without a shell, and returns what it printed.
    ///
    /// # Errors
    /// [`NamespaceError::Command`] with the line, the exit status and the standard error.
    pub fn run(&self, line: &str) -> Result<String, NamespaceError> {
        Ok(command::run(self, line, None)?)
    }

    /// Like [`run`](Self::run), with `input` on standard input.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_with_input(&self, line: &str, input: &str) -> Result<String, NamespaceError> {
        Ok(command::run(self, line, Some(input))?)
    }

    /// Sets a kernel parameter of this namespace, e.g. `("net.ipv4.ip_forward", "1")`.
    ///
    /// # Errors
    /// [`NamespaceError::Sysctl`] when there is no such parameter or it refuses the value.
    pub fn sysctl(&self, key: &str, value: &str) -> Result<(), NamespaceError> {
        // A parameter that holds an interface name with a dot would need more care; none does here.
        let path = PathBuf::from("/proc/sys").join(key.replace('.', "/"));
        self.enter(|| fs::write(path, value))?
            .map_err(|source| NamespaceError::Sysctl {
                name: self.name.to_string(),
                key: key.to_owned(),
                value: value.to_owned(),
                source,
            })
    }

    /// The protocol counters of this namespace (what `nstat -a` shows).
    ///
    /// # Errors
    /// [`NamespaceError::ReadCounters`] or [`NamespaceError::ParseCounters`].
    pub fn counters(&self) -> Result<Counters, NamespaceError> {
        let name = || self.name.to_string();
        let text = self
            .enter(counters::read)?
            .map_err(|source| NamespaceError::ReadCounters {
                name: name(),
                source,
            })?;
        text.parse()
            .map_err(|source| NamespaceError::ParseCounters {
                name: name(),
                source,
            })
    }

    /// Reads what a device has sent and received.
    ///
    /// # Errors
    /// [`NamespaceError::DeviceCounters`], for a device that is not there as well.
    pub fn device_counters(&self, device: &str) -> Result<DeviceCounters, NamespaceError> {
        self.enter(|| counters::read_device(device))?
            .map_err(|source| NamespaceError::DeviceCounters {
                name: self.name.to_string(),
                device: device.to_owned(),
                source,
            })
    }

    /// Connects two namespaces with a pair of virtual Ethernet devices: `device` here, `far_device`
    /// in `far`. Both are down, without addresses, and do no segmentation or receive offload, so
    /// that what crosses them is packets as on a wire.
    ///
    /// # Errors
    /// [`NamespaceError::Command`] when a device of that name is there already, or without root.
    pub fn connect(
        &self,
        device: &str,
        far: &Namespace,
        far_device: &str,
    ) -> Result<(), NamespaceError> {
        let path = far.path();
        let path = path.display();
        self.run(&format!(
            "ip link add {device} type veth peer name {far_device} netns {path}"
        ))?;
        for (namespace, device) in [(self, device), (far, far_device)] {
            namespace.run(&format!("ethtool -K {device} tso off gso off gro off"))?;
        }
        Ok(())
    }

    fn move_this_thread(&self) -> Result<(), NamespaceError> {
        setns(self.handle.as_fd(), CloneFlags::CLONE_NEWNET)
            .map_err(|errno| self.enter_error(errno.into()))
    }

    fn enter_error(&self, source: io::Error) -> NamespaceError {
        NamespaceError::Enter {
            name: self.name.to_string(),
            source,
        }
    }
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use std::{
        error::Error,
        net::{TcpListener, TcpStream},
    };

    use super::*;
    use crate::{require, require::Requirement::*};

    type TestResult = Result<(), Box<dyn Error>>;

    #[test]
    fn is_apart_from_where_we_are() -> TestResult {
        require!(Root, Program("ip") => Ok(()));
        let one = Namespace::new("one")?;
        let two = Namespace::new("two")?;
        let listener = one.enter(|| TcpListener::bind("127.0.0.1:7"))??;
        let same_port = two.enter(|| TcpListener::bind("127.0.0.1:7"))??;
        assert_eq!(listener.local_addr()?, same_port.local_addr()?);
        Ok(())
    }

    #[test]
    fn connects_two_namespaces() -> TestResult {
        require!(Root, Program("ip"), Program("ethtool") => Ok(()));
        let one = Namespace::new("one")?;
        let two = Namespace::new("two")?;
        one.connect("left", &two, "right")?;
        for (namespace, device, address) in [(&one, "left", 1), (&two, "right", 2)] {
            namespace.run(&format!("ip address add 192.0.2.{address}/24 dev {device}"))?;
            namespace.run(&format!("ip link set {device} up"))?;
        }
        let listener = two.enter(|| TcpListener::bind("192.0.2.2:7"))??;
        one.enter(|| TcpStream::connect("192.0.2.2:7"))??;
        listener.accept()?;
        assert_eq!(two.counters()?.total("TcpPassiveOpens"), 1);
        Ok(())
    }

    #[test]
    fn sets_parameters_inside_only() -> TestResult {
        require!(Root, Program("ip") => Ok(()));
        let key = "/proc/sys/net/ipv4/tcp_no_metrics_save";
        let before = fs::read_to_string(key)?;
        let namespace = Namespace::new("parameters")?;
        namespace.sysctl("net.ipv4.tcp_no_metrics_save", "1")?;
        assert_eq!(namespace.enter(|| fs::read_to_string(key))??.trim(), "1");
        assert_eq!(fs::read_to_string(key)?, before);
        let error = namespace
            .sysctl("net.ipv4.no_such_thing", "1")
            .expect_err("no such parameter");
        assert!(
            error.to_string().contains("net.ipv4.no_such_thing"),
            "{error}"
        );
        Ok(())
    }

    #[test]
    fn panic_inside_reaches_the_caller() -> TestResult {
        require!(Root, Program("ip") => Ok(()));
        let namespace = Namespace::new("panic")?;
        let caught = std::panic::catch_unwind(|| namespace.enter(|| panic!("inside")));
        assert!(caught.is_err());
        Ok(())
    }
}
