//! What the tasks need, why, and where it comes from.

use clap::ValueEnum;

use super::rust::{CARGO_DENY, CBINDGEN, CargoTool, MDBOOK, MINIMUM_VERSION};

/// What somebody wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Purpose {
    /// `demo`: run the splitter between network namespaces.
    Demo,
    /// `bond`: TCP over several unequal tunnels.
    Bond,
    /// `test`: the programs that end-to-end tests call besides.
    Test,
    /// `build-ebpf`: compile the kernel programs from source.
    Ebpf,
    /// `vm-test`: boot other kernels.
    Vm,
    /// `docs`: build the book.
    Docs,
    /// `ns3`: hold the simulator against ns-3. Large, and not part of what is installed unless it is
    /// asked for.
    Ns3,
}

impl Purpose {
    /// What is installed unless something else is asked for.
    pub(crate) const ALL: [Purpose; 6] = [
        Purpose::Demo,
        Purpose::Bond,
        Purpose::Test,
        Purpose::Ebpf,
        Purpose::Vm,
        Purpose::Docs,
    ];
}

/// One thing that must be there.
#[derive(Debug)]
pub(crate) struct Need {
    pub(crate) purposes: &'static [Purpose],
    pub(crate) kind: Kind,
    pub(crate) why: &'static str,
}

/// How a need shows itself, and how it is met.
#[derive(Debug)]
pub(crate) enum Kind {
    /// A program, from the first of `packages` that the distribution has.
    Program {
        program: &'static str,
        packages: &'static [&'static str],
    },
    /// A package without a program to look for.
    Package(&'static str),
    /// A module that Python can import, from a package.
    PythonModule {
        module: &'static str,
        package: &'static str,
    },
    /// A cargo subcommand, from a component of the Rust toolchain.
    RustComponent {
        subcommand: &'static str,
        component: &'static str,
    },
    /// The linker for BPF, built with cargo against the LLVM of the packages.
    BpfLinker,
    /// The oldest compiler that packages promise to work with, and targets for it.
    MinimumToolchain,
    /// A program that cargo builds.
    CargoTool(CargoTool),
    /// Crates of the workspaces that have a lock file of their own.
    Crates,
    /// Modules of Python from their registry, in an environment of their own.
    PythonEnvironment,
}

impl Need {
    pub(crate) fn serves(&self, purposes: &[Purpose]) -> bool {
        self.purposes.iter().any(|own| purposes.contains(own))
    }

    /// As the plan and messages call it.
    pub(crate) fn name(&self) -> String {
        match self.kind {
            Kind::Program { program, .. } => program.to_owned(),
            Kind::Package(package) | Kind::PythonModule { package, .. } => package.to_owned(),
            Kind::RustComponent { component, .. } => component.to_owned(),
            Kind::BpfLinker => format!("bpf-linker {BPF_LINKER_VERSION}"),
            Kind::MinimumToolchain => format!("Rust {MINIMUM_VERSION}"),
            Kind::CargoTool(CargoTool { name, version, .. }) => format!("{name} {version}"),
            Kind::PythonEnvironment => "Python's noiseprotocol".to_owned(),
            Kind::Crates => "crates of examples".to_owned(),
        }
    }
}

/// The linker version that the committed objects are built with.
pub(crate) const BPF_LINKER_VERSION: &str = "0.13.0";

/// Major version of LLVM in rustc-web; the linker must read its bitcode.
pub(crate) const LLVM_VERSION: &str = "22";

const RUN: &[Purpose] = &[Purpose::Demo, Purpose::Bond, Purpose::Test];
const BULK: &[Purpose] = &[Purpose::Bond, Purpose::Test];
const TEST: &[Purpose] = &[Purpose::Test];
const EBPF: &[Purpose] = &[Purpose::Ebpf];
const VM: &[Purpose] = &[Purpose::Vm];
const NS3: &[Purpose] = &[Purpose::Ns3];

/// Everything, in the order in which it is shown and installed.
pub(crate) static NEEDS: &[Need] = &[
    program(
        RUN,
        "ip",
        &["iproute2"],
        "namespaces, links, routes and rules",
    ),
    program(
        RUN,
        "nft",
        &["nftables"],
        "the peer that splits flows without eBPF",
    ),
    program(
        RUN,
        "ethtool",
        &["ethtool"],
        "offload settings of the test links",
    ),
    program(
        BULK,
        "iperf3",
        &["iperf3"],
        "bulk traffic through a running splitter",
    ),
    program(
        BULK,
        "mptcpize",
        &["mptcpize"],
        "bulk traffic by MPTCP, for comparison",
    ),
    program(
        TEST,
        "nginx",
        &["nginx-light", "nginx"],
        "a real web server behind the splitter",
    ),
    program(
        TEST,
        "vtysh",
        &["frr"],
        "a routing daemon whose routes the splitter follows",
    ),
    program(
        TEST,
        "keepalived",
        &["keepalived"],
        "two borders that share an address by VRRP",
    ),
    program(
        TEST,
        "parallel",
        &["parallel"],
        "sweeps of the simulator over many machines",
    ),
    program(
        TEST,
        "slurmctld",
        &["slurm-wlm"],
        "sweeps of the simulator on a cluster",
    ),
    program(
        TEST,
        "curl",
        &["curl"],
        "a real web client before the splitter",
    ),
    program(
        TEST,
        "mgen",
        &["mgen"],
        "the background of the splitter's reproduction, as in the paper",
    ),
    program(TEST, "tcpdump", &["tcpdump"], "to see marks on the wire"),
    program(
        TEST,
        "bpftool",
        &["bpftool", "linux-tools-common"],
        "to see pins and attachments from outside",
    ),
    program(
        TEST,
        "xdp-filter",
        &["xdp-tools"],
        "an XDP program of somebody else, to run next to",
    ),
    program(
        TEST,
        "promtool",
        &["prometheus"],
        "a real Prometheus to scrape the agent",
    ),
    program(
        TEST,
        "chromium-headless-shell",
        &["chromium-headless-shell"],
        "a browser without a screen, to see the status page and a receiver in WebAssembly, and to load pages through the splitter",
    ),
    program(
        TEST,
        "lintian",
        &["lintian"],
        "what Debian says about the packages that are made",
    ),
    program(
        TEST,
        "debootstrap",
        &["debootstrap"],
        "a bare Debian, which the deb is installed on",
    ),
    program(
        TEST,
        "systemd-nspawn",
        &["systemd-container"],
        "starts the systemd of that Debian",
    ),
    program(TEST, "rpm", &["rpm"], "installs the rpm into a directory"),
    program(TEST, "node", &["nodejs"], "decodes as a browser does"),
    program(
        TEST,
        "rpmlint",
        &["rpmlint"],
        "what rpm's users say about it",
    ),
    program(
        TEST,
        "makepkg",
        &["makepkg"],
        "what Arch's packager says about its recipe",
    ),
    program(
        TEST,
        "nix-instantiate",
        &["nix-bin"],
        "what Nix says about its flake",
    ),
    program(
        TEST,
        "qemu-aarch64-static",
        &["qemu-user-static"],
        "runs tests and packaged programs of another processor",
    ),
    program(
        TEST,
        "aarch64-linux-gnu-gcc",
        &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"],
        "compiles ring's C for tests on another processor",
    ),
    program(
        TEST,
        "qemu-system-arm",
        &["qemu-system-arm"],
        "a board without an operating system, for a receiver of Cloudburst's code",
    ),
    program(
        TEST,
        "skopeo",
        &["skopeo"],
        "what container tools say about the images",
    ),
    program(
        VM,
        "qemu-system-x86_64",
        &["qemu-system-x86"],
        "virtual machines for other kernels",
    ),
    program(VM, "xz", &["xz-utils"], "unpacks modules of those kernels"),
    component("fmt", "rustfmt", "formatting check"),
    component("clippy", "clippy", "lints"),
    Need {
        purposes: TEST,
        kind: Kind::MinimumToolchain,
        why: "the oldest compiler that packages promise to work with, and targets that nothing here runs on",
    },
    Need {
        purposes: TEST,
        kind: Kind::Crates,
        why: "what examples, fuzz targets and kernel programs are built from, by lock files of their own",
    },
    Need {
        purposes: TEST,
        kind: Kind::CargoTool(CARGO_DENY),
        why: "licences and sources of dependencies; cargo builds it in about a minute",
    },
    Need {
        purposes: TEST,
        kind: Kind::CargoTool(CBINDGEN),
        why: "makes Cloudburst's header for C; cargo builds it in about a minute",
    },
    program(
        TEST,
        "valgrind",
        &["valgrind"],
        "looks for leaks of a program in C that uses Cloudburst",
    ),
    Need {
        purposes: TEST,
        // Debian's Python has no virtual environments without that package.
        kind: Kind::PythonModule {
            module: "ensurepip",
            package: "python3-venv",
        },
        why: "Cloudburst's package for Python, tried in a virtual environment",
    },
    Need {
        purposes: TEST,
        kind: Kind::PythonEnvironment,
        why: "another implementation of Noise, which makes the test vectors of Cloudburst's handshake",
    },
    Need {
        purposes: &[Purpose::Test, Purpose::Docs],
        kind: Kind::CargoTool(MDBOOK),
        why: "builds the book; cargo builds it in about a minute",
    },
    program(
        &[Purpose::Test, Purpose::Ns3],
        "c++",
        &["g++"],
        "compiles libFuzzer, which fuzz targets are linked with, and the program for ns-3",
    ),
    program(NS3, "ns3++", &["libns3-dev"], "ns-3, to compare with"),
    program(
        NS3,
        "gsl-config",
        &["libgsl-dev"],
        "library that ns-3 is linked with",
    ),
    program(
        NS3,
        "pkg-config",
        &["pkgconf", "pkg-config"],
        "tells where ns-3 lies",
    ),
    package(
        "rustc-web",
        "compiler that builds BPF with the core library below",
    ),
    package("cargo-web", "the cargo that belongs to it"),
    package(
        "rust-web-src",
        "source of the core library, compiled for BPF",
    ),
    package(
        "g++",
        "compiler and C++ library that bpf-linker is linked with",
    ),
    package(
        "llvm-22",
        "llvm-strip, which takes paths out of the objects",
    ),
    package("llvm-22-dev", "LLVM, which bpf-linker is linked with"),
    package(
        "libpolly-22-dev",
        "part of LLVM that bpf-linker is linked with",
    ),
    package("libzstd-dev", "library that LLVM is linked with"),
    Need {
        purposes: EBPF,
        kind: Kind::BpfLinker,
        why: "links BPF objects; cargo builds it in about a minute",
    },
];

/// Packages that start a service when they are installed.
pub(crate) const SERVICES: &[&str] = &[
    "keepalived",
    "munge",
    "nginx",
    "prometheus",
    "slurmctld",
    "slurmd",
];

const fn program(
    purposes: &'static [Purpose],
    program: &'static str,
    packages: &'static [&'static str],
    why: &'static str,
) -> Need {
    Need {
        purposes,
        kind: Kind::Program { program, packages },
        why,
    }
}

const fn package(package: &'static str, why: &'static str) -> Need {
    Need {
        purposes: EBPF,
        kind: Kind::Package(package),
        why,
    }
}

const fn component(subcommand: &'static str, component: &'static str, why: &'static str) -> Need {
    Need {
        purposes: TEST,
        kind: Kind::RustComponent {
            subcommand,
            component,
        },
        why,
    }
}
