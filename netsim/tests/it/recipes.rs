//! The recipes for machines that many share, run as they stand.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

use flow_testbed::{
    namespace::Namespace,
    require,
    require::Requirement::{Program, Root},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::shards::{done, files};

/// Two schemes, three seeds.
const SWEEP: &str = "tr-large --messages 40 --schemes ecmp,rps --seeds 3";
const RUNS: usize = 6;
/// Longer than all of it takes on a machine that gives it little of a processor.
const PATIENCE: Duration = Duration::from_secs(180);

/// Runs the sweep on one machine, and merges what a recipe has put into `shards`: both must be the same.
#[track_caller]
fn assert_same(directory: &Path, shards: &Path) {
    let [whole, merged] = ["whole", "merged"].map(|it| directory.join(it));
    let [whole_path, merged_path, shards] =
        [&whole, &merged, shards].map(|it| it.to_string_lossy().into_owned());
    let sweep: Vec<&str> = SWEEP.split(' ').collect();
    done(&[&["sweep"], &sweep[..], &["--out", &whole_path]].concat());
    done(&["merge", &shards, "--out", &merged_path]);
    assert!(files(&whole) == files(&merged), "other bytes");
}

/// A directory of programs in which `netsim` is the one under test, but that the task with the second of
/// four shards is killed once, as one that has taken too much memory. Returns a search path with it.
fn programs(directory: &Path) -> String {
    let programs = directory.join("programs");
    fs::create_dir(&programs).expect("a directory");
    let killed = directory.join("killed");
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *'--shard 2/4'*)\n[ -e {killed:?} ] || {{ touch {killed:?}; kill -9 $$; }};;\nesac\nexec {} \"$@\"\n",
        env!("CARGO_BIN_EXE_netsim")
    );
    let path = programs.join("netsim");
    fs::write(&path, script).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let others = std::env::var("PATH").expect("it is set");
    format!("{}:{others}", programs.display())
}

#[test]
fn sweep_runs_by_gnu_parallel_and_goes_on_after_a_task_was_killed() {
    require!(Program("parallel"));
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("shards");
    let task = format!(
        "netsim sweep {SWEEP} --shard {{}}/4 --jobs 1 --out {}",
        out.display()
    );
    let output = Command::new("parallel")
        .args(["--will-cite", "--jobs", "2", "--retries", "3", &task])
        .args([":::", "1", "2", "3", "4"])
        .env("PATH", programs(directory.path()))
        .env("HOME", directory.path())
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{output:?}");
    assert!(directory.path().join("killed").exists());
    assert_same(directory.path(), &out);
}

/// Runs what each pod of the Job does, as Kubernetes would start it; there is no cluster here.
#[test]
fn indices_of_a_kubernetes_job_run_all_shards() {
    const RECIPE: &str = include_str!("../../recipes/sweep.kubernetes.yaml");
    let value_after = |key: &str| {
        let (_, rest) = RECIPE.split_once(key).expect("it is there");
        rest.split_whitespace().next().expect("a value")
    };
    assert_eq!(
        value_after("  completions:"),
        value_after("name: SHARDS\n              value:").trim_matches('"')
    );
    let (_, script) = RECIPE.split_once("- |\n").expect("a script");
    let script = script.lines().next().expect("a line").trim();
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("shards");
    let path = programs(directory.path());
    let pod = |index: u32| {
        Command::new("/bin/sh")
            .args(["-c", script, "netsim"])
            .args(SWEEP.split(' '))
            .arg("--out")
            .arg(&out)
            .envs([
                ("JOB_COMPLETION_INDEX", &*index.to_string()),
                ("SHARDS", "4"),
            ])
            .env("PATH", &path)
            .output()
            .expect("it starts")
    };
    let ended: Vec<_> = (0..4).map(pod).map(|it| it.status.success()).collect();
    assert_eq!(ended, [true, false, true, true], "the second was killed");
    assert!(pod(1).status.success());
    assert_same(directory.path(), &out);
}

#[test]
fn sweep_runs_by_slurm_and_a_task_that_was_killed_is_queued_again() {
    require!(
        Root,
        Program("slurmctld"),
        Program("slurmd"),
        Program("sbatch")
    );
    let directory = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(directory.path());
    let out = directory.path().join("shards");
    let recipe = concat!(env!("CARGO_MANIFEST_DIR"), "/recipes/sweep.slurm");
    let out_option = out.display();
    let job = cluster.run(&format!(
        "sbatch --parsable --array=1-4 {recipe} {SWEEP} --out {out_option}"
    ));
    let job = job.trim();
    assert!(job.parse::<u32>().is_ok(), "{job}");
    cluster.wait("the killed task to be queued again", || {
        let queued = cluster.run("squeue --noheader --format=%i/%r");
        queued.contains(&format!("{job}_2/BeginTime"))
    });
    // Slurm lets two minutes pass.
    cluster.run(&format!("scontrol update JobId={job}_2 StartTime=now"));
    cluster.wait("all tasks to end, with their runs", || {
        let runs = files(&out);
        let runs = runs.keys().filter(|it| it.contains("-seed"));
        cluster.run("squeue --noheader").is_empty() && runs.count() >= RUNS
    });
    assert!(directory.path().join("killed").exists());
    assert_same(directory.path(), &out);
}

/// A cluster of one node, in a network namespace of its own.
struct Cluster {
    namespace: Namespace,
    directory: PathBuf,
    path: String,
    daemons: Vec<Child>,
}

impl Cluster {
    fn start(directory: &Path) -> Self {
        for name in ["state", "spool"] {
            fs::create_dir(directory.join(name)).expect("a directory");
        }
        fs::write(directory.join("slurm.conf"), settings(directory)).expect("a file");
        let namespace = Namespace::new("slurm").expect("root");
        // Slurm looks addresses up as the C library has them: none where there is the loopback alone.
        let link = "link add node0 type veth peer name node1\nlink set node0 up\nlink set node1 up\n\
                    address add 192.0.2.1/24 dev node0\n";
        namespace.run_with_input("ip -batch -", link).expect("root");
        let mut cluster = Self {
            namespace,
            directory: directory.to_owned(),
            path: programs(directory),
            daemons: Vec::new(),
        };
        for daemon in ["slurmctld", "slurmd"] {
            let log = fs::File::create(directory.join(daemon)).expect("a file");
            let mut command = cluster.command(daemon);
            command.arg("-D").stderr(log);
            cluster.daemons.push(command.spawn().expect("it starts"));
        }
        cluster.wait("the node to be idle", || {
            let mut look = cluster.command("sinfo");
            let nodes = look.args(["--noheader", "--format=%T"]).output();
            nodes.is_ok_and(|it| it.stdout.starts_with(b"idle"))
        });
        cluster
    }

    fn command(&self, program: &str) -> Command {
        let mut command = self.namespace.command(program);
        command
            .env("SLURM_CONF", self.directory.join("slurm.conf"))
            .env("PATH", &self.path)
            .current_dir(&self.directory);
        command
    }

    /// Runs a line of words, which must succeed, and returns what it prints.
    #[track_caller]
    fn run(&self, line: &str) -> String {
        let mut words = line.split(' ');
        let mut command = self.command(words.next().expect("a word"));
        let output = command.args(words).output().expect("it starts");
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    #[track_caller]
    fn wait(&self, what: &str, is_so: impl Fn() -> bool) {
        let begin = Instant::now();
        while !is_so() {
            if begin.elapsed() > PATIENCE {
                let log = |it| fs::read_to_string(self.directory.join(it));
                let logs = ["slurmctld", "slurmd"].map(log);
                panic!("waited in vain for {what}: {logs:?}");
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().rev() {
            let _ = kill(Pid::from_raw(daemon.id().cast_signed()), Signal::SIGTERM);
            let _ = daemon.wait();
        }
    }
}

fn settings(directory: &Path) -> String {
    let node = fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    let node = node.trim().split('.').next().expect("a part");
    let at = directory.display();
    format!(
        "ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={at}/state
SlurmdSpoolDir={at}/spool
SlurmctldPidFile={at}/slurmctld.pid
SlurmdPidFile={at}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MailProg=/bin/true
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=localhost NodeHostname={node} NodeAddr=127.0.0.1 CPUs=2
PartitionName=all Nodes=localhost Default=YES State=UP
"
    )
}
