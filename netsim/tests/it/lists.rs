//! Lists of flows from files, and sweeps of scenarios that name files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use netsim::{Outcome, Overrides, Source};

use crate::{
    shards::{done, files},
    support::netsim,
};

const FABRIC: &str = "about = 'test'
fabric = { leaves = 2, spines = 2, hosts_per_leaf = 4, host_gbps = 10, uplink_gbps = 10, link_delay_us = 1 }
";

/// Writes a scenario and files next to it.
fn scenario(directory: &Path, text: &str, others: &[(&str, &str)]) -> PathBuf {
    for (name, text) in others {
        fs::write(directory.join(name), text).expect("it can be written");
    }
    let path = directory.join("scenario.toml");
    fs::write(&path, text).expect("it can be written");
    path
}

fn with_list(keys: &str, list: &str) -> Result<Outcome, String> {
    let directory = tempfile::tempdir().expect("a directory");
    let text = format!("{FABRIC}traffic = [{{ kind = 'list', file = 'flows', {keys} }}]");
    let path = scenario(directory.path(), &text, &[("flows", list)]);
    let source = Source::find(&path.to_string_lossy()).expect("it can be read");
    let experiment = source.experiment(&Overrides::default());
    Ok(netsim::run(&experiment.map_err(|it| it.to_string())?))
}

fn flows(outcome: &Outcome) -> Vec<(u16, u16, u64, u64)> {
    let flows = outcome.flows.iter();
    flows
        .map(|it| (it.from, it.to, it.bytes, it.start_ns))
        .collect()
}

#[test]
fn each_format_gives_the_flows_of_its_file() {
    let expected = [(0, 4, 1460, 1_000), (5, 1, 3_000, 2_500)];
    let ns3 = "2\n0 4 3 100 1460 2.000001\n5 1 3 100 3000 2.0000025\n";
    let outcome = with_list("format = 'ns3', from_us = 2_000_000", ns3).expect("it is right");
    assert_eq!(flows(&outcome), expected);
    // Four links of 1 us, and 1.2 us for each of four transmissions.
    assert_eq!(outcome.flows[0].fct_ns, Some(8_800));
    let htsim = "Nodes 8\nConnections 2\n5->1 start 2.5 size 3000\n0->4 start 1 size 1460\n";
    let outcome = with_list("format = 'htsim', start_unit = 'us'", htsim).expect("it is right");
    assert_eq!(flows(&outcome), expected);
    let csv = "from,to,bytes,start_us\n0,4,1460,1\n5,1,3000,2.5\n";
    let outcome = with_list("format = 'csv', from_us = 2", csv).expect("it is right");
    assert_eq!(flows(&outcome), [(5, 1, 3_000, 500)]);
}

#[test]
fn what_is_wrong_with_a_list_is_named() {
    for (keys, list, named) in [
        (
            "format = 'ns3'",
            "1\n0 8 3 100 1460 2\n",
            "traffic[0].file = \"flows\": line 2, flow 0: there is no host 8",
        ),
        (
            "format = 'ns3'",
            "1\n0 x 3 100 1460 2\n",
            "traffic[0].file = \"flows\": line 2: the destination",
        ),
        (
            "format = 'csv'",
            "from,to,bytes,start_ns\n\n# huge\n0,1,200000000000,0\n",
            "line 4, flow 0: 200000000000 bytes are more",
        ),
        (
            "format = 'csv', priority = 5",
            "from,to,bytes,start_ns,priority\n0,1,2,0,3\n",
            "line 2, flow 0: there are 8 priorities",
        ),
        (
            "format = 'csv'",
            "from,to,bytes,start_us\n0,1,2,2000000000\n",
            "a message starts at",
        ),
        (
            "format = 'csv', from_us = 3",
            "from,to,bytes,start_ns\n0,1,2,2000\n1,0,2,500\n",
            "no flow begins at from_us = 3 or later; the last one begins at 2 us",
        ),
        (
            "format = 'csv', from_us = -1",
            "from,to,bytes,start_ns\n0,1,2,0\n",
            "traffic[0].from_us = -1",
        ),
        ("format = 'xml'", "", "unknown variant `xml`"),
    ] {
        let error = with_list(keys, list).expect_err("it is wrong");
        assert!(error.contains(named), "{error}\n{named}");
    }
}

/// The same points in three formats are the same messages, and a file that changed is told apart.
#[test]
fn sizes_come_from_files_of_other_simulators() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = |sizes: &str| {
        let text = format!(
            "{FABRIC}traffic = [{{ kind = 'poisson', sizes = {sizes}, load = 0.5, messages = 50, hosts = {{ pattern = 'all' }} }}]"
        );
        let files = [
            ("sizes.csv", "0,0\n14600,0.5\n146000,1\n"),
            ("CDF.tcl", "0 1 0\n10 1 0.5\n100 1 1\n"),
            ("sizes.txt", "0 0\n14600 50\n146000 100\n"),
        ];
        let path = scenario(directory.path(), &text, &files);
        let source = Source::find(&path.to_string_lossy()).expect("it can be read");
        let experiment = source.experiment(&Overrides::default());
        let experiment = experiment.map_err(|it| it.to_string())?;
        let outcome = netsim::run(&experiment);
        let files = netsim::Manifest::new(&experiment, &outcome).files;
        Ok::<_, String>((flows(&outcome), files.into_keys().collect::<Vec<_>>()))
    };
    let (csv, _) = run("'sizes.csv'").expect("it is right");
    let ns2 = run("{ file = 'CDF.tcl', format = 'ns2', unit_bytes = 1460 }");
    assert_eq!(ns2, Ok((csv.clone(), vec!["CDF.tcl".to_owned()])));
    let ns3 = run("{ file = 'sizes.txt', format = 'ns3' }");
    assert_eq!(ns3, Ok((csv, vec!["sizes.txt".to_owned()])));
    for (sizes, named) in [
        (
            "{ file = 'CDF.tcl', format = 'ns3' }",
            "traffic[0].sizes = \"CDF.tcl\": line 1 is not SIZE PERCENT",
        ),
        (
            "{ file = 'no.txt', format = 'ns3' }",
            "traffic[0].sizes = \"no.txt\"",
        ),
        (
            "{ file = 'CDF.tcl', format = 'ns2', unit_bytes = 0 }",
            "traffic[0].sizes.unit_bytes = 0",
        ),
    ] {
        let error = run(sizes).expect_err("it is wrong");
        assert!(error.contains(named), "{error}\n{named}");
    }
}

/// What a run wrote is a list, and the same flows under the same policy fare the same.
#[test]
fn the_rows_of_a_run_can_be_run_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    let text = format!(
        "{FABRIC}traffic = [{{ kind = 'poisson', sizes = 'web_search_xpass', load = 0.7, messages = 100,
           hosts = {{ pattern = 'all' }} }}]"
    );
    let path = scenario(directory.path(), &text, &[]);
    let run = |out: &str| {
        let out = at(out);
        let [path, out] = [&path, &out].map(|it| it.to_string_lossy().into_owned());
        done(&["run", &path, "--scheme", "letflow", "--out", &out]);
    };
    run("first");
    let text = format!(
        "{FABRIC}traffic = [{{ kind = 'list', file = 'first/flows.csv', format = 'csv' }}]"
    );
    scenario(directory.path(), &text, &[]);
    run("second");
    let rows = |out: &str| fs::read_to_string(at(out).join("flows.csv")).expect("a file");
    assert_eq!(rows("first"), rows("second"));
}

const GRAPH: &str = "switches = ['a', 'b', 'c', 'd']
hosts = [{ at = 'a', count = 2, gbps = 10, delay_us = 1 }, { at = 'b', count = 2, gbps = 10, delay_us = 1 }]
links = [
  { between = ['a', 'c'], gbps = 10, delay_us = 1 }, { between = ['c', 'b'], gbps = 10, delay_us = 1 },
  { between = ['a', 'd'], gbps = 10, delay_us = 1 }, { between = ['d', 'b'], gbps = 10, delay_us = 1 },
]";
const LIST: &str = "2\n0 2 3 100 100000 0\n1 3 3 100 100000 0\n";

/// Collectives, lists and topologies in shards: what is merged is what one machine would have had, and files that
/// differ are not merged.
#[test]
fn sweeps_of_scenarios_with_files_are_divided_and_merged() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name).to_string_lossy().into_owned();
    let text = "about = 'test'
        topology.file = 'graph.toml'
        traffic = [
          { kind = 'ring_all_reduce', bytes = 40_000, iterations = 3, placement = 'shuffled' },
          { kind = 'all_to_all', bytes = 40_000 },
          { kind = 'list', file = 'flows.txt', format = 'ns3' },
        ]";
    let path = scenario(
        directory.path(),
        text,
        &[("graph.toml", GRAPH), ("flows.txt", LIST)],
    );
    let path = path.to_string_lossy().into_owned();
    let sweep = |out: &str, more: &[&str]| {
        let out = at(out);
        let base = [
            "sweep",
            &path,
            "--schemes",
            "ecmp,tr_guarded",
            "--seeds",
            "3",
            "--rows",
            "--out",
            &out,
        ];
        done(&[&base[..], more].concat())
    };
    let printed = sweep("whole", &["--json"]);
    assert!(
        printed.contains("traffic 0: ring all-reduce") && printed.contains("traffic 1: all-to-all")
    );
    sweep("first", &["--shard", "1/2"]);
    sweep("second", &["--shard", "2/2"]);
    let merged = done(&[
        "merge",
        &at("first"),
        &at("second"),
        "--out",
        &at("merged"),
        "--json",
    ]);
    assert_eq!(printed, merged);
    let whole = files(Path::new(&at("whole")));
    assert!(whole == files(Path::new(&at("merged"))));
    let iterations = &whole["runs/ecmp-seed2.iterations.csv"];
    assert_eq!(iterations.split(|it| *it == b'\n').count(), 1 + 4 + 1);
    // Nothing is run again as long as the files are the same.
    let again = sweep("first", &["--shard", "1/2", "--json"]);
    assert!(again.contains("\"known_before\": 3"), "{again}");
    for (name, text) in [("graph.toml", GRAPH), ("flows.txt", LIST)] {
        fs::write(directory.path().join(name), text.replace("10", "20")).expect("written");
        let again = sweep("second", &["--shard", "2/2", "--json"]);
        assert!(again.contains("\"known_before\": 0"), "{again}");
        let output = netsim(&["merge", &at("first"), &at("second"), "--out", &at("other")]);
        let stderr = String::from_utf8(output.stderr).expect("text");
        assert!(
            stderr.contains("a file that the scenario names differs"),
            "{stderr}"
        );
        fs::write(directory.path().join(name), text).expect("written");
    }
}
