//! Pages that agree with kept results, and such that do not.

use super::*;

const PAGE: &str = "docs/src/reproduction/a.md";

const SVG: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" aria-label=\"A plot\"/>";

fn write_file(root: &Path, name: &str, text: &str) {
    let path = root.join(PAGES).join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn root() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let write =
        |name: &str, text: &str| write_file(root.path(), &format!("{RESULTS}/{name}"), text);
    write(
        "provenance.csv",
        "item,title,verdict,command,seeds,commit,date,rows\n\
         T1,queues,outside,cargo xtask reproduce T1,1 to 3,0123456789abcdef,2026-11-27,t1.csv\n",
    );
    write("t1.csv", "a\n1\n");
    write(
        "t1-checks.csv",
        "check,paper,band,ours,verdict\nRPS / ECMP,lowest,at most 1,0.194 ± 0.068,misses: 0.1 too much\n",
    );
    write("t1-table.csv", "gap,goodput\n50,1.02 ± 0.03\n");
    write("t1.svg", SVG);
    write("t1-paper.svg", SVG);
    root
}

const BLOCKS: &str = "<!-- verdicts: T1 -->\n<!-- end of verdicts -->\n- a\n\n  <!-- table: t1-table.csv -->\n  \
                      <!-- end of table -->\n\n<!-- results: T1 -->\n<!-- end of results -->\n";

fn faults(root: &Path, text: &str) -> Faults {
    check(root, &[Page::parse(PAGE, text)]).unwrap().1
}

#[test]
fn blocks_are_made_of_files() {
    let root = root();
    let pages = [Page::parse(PAGE, BLOCKS)];
    fs::write(root.path().join(PAGE), BLOCKS).unwrap();
    assert_eq!(write(root.path(), &pages).unwrap(), [PAGE]);
    let text = fs::read_to_string(root.path().join(PAGE)).unwrap();
    for part in [
        "| T1 | queues | outside |\n",
        "  | gap | goodput |\n  |---|---|\n  | 50 | 1.02 ± 0.03 |\n",
        "### T1: queues\n",
        "**outside**: `cargo xtask reproduce T1`, seeds 1 to 3, commit `0123456789`, 2026-11-27; [rows](results/t1.csv)",
        "| RPS / ECMP | lowest | at most 1 | 0.194 ± 0.068 | outside |\n",
        "beside ours.](results/t1-paper.svg)\n\n![T1: A plot.](results/t1.svg)\n",
    ] {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
    assert_eq!(faults(root.path(), &text), [""; 0]);
    let stale = text.replace("0.194", "0.195");
    let found = faults(root.path(), &stale);
    assert!(found[0].contains("it is not what"), "{found:?}");
    let open = BLOCKS.replace("<!-- end of results -->", "");
    assert!(faults(root.path(), &open)[0].contains("has no \"<!-- end of results -->\""));
}

#[test]
fn item_without_a_page_and_file_without_an_item_are_found() {
    let root = root();
    write_file(root.path(), "results/t11.csv", "a\n");
    let found = faults(root.path(), "");
    assert_eq!(
        found,
        [
            "docs/src/reproduction/results: no page has T1 in a block of verdicts",
            "docs/src/reproduction/results: no page has T1 in a block of results",
            "docs/src/reproduction/results/t11.csv: provenance.csv has no such item",
        ]
    );
}

#[test]
fn items_may_be_named_in_either_case() {
    let root = root();
    let provenance = root.path().join(PAGES).join("results/provenance.csv");
    let text = fs::read_to_string(&provenance).unwrap();
    fs::write(&provenance, text.replace("T1,", "t1,")).unwrap();
    let found = faults(root.path(), "");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found.iter().all(|it| it.contains("no page has t1")),
        "{found:?}"
    );
}

#[test]
fn numbers_of_the_text_are_among_the_results() {
    let root = root();
    let blocks = Results::read(root.path()).unwrap().expand(BLOCKS).unwrap();
    let with = |text: &str| faults(root.path(), &format!("{text}\n\n{blocks}"));
    assert_eq!(
        with("RPS (T1) has 0.19 ± 0.07 of it, 2 % more with 50 us."),
        [""; 0]
    );
    assert_eq!(
        with("One\n\nRPS (T1) has 0.2\n± 0.07, and 33 % less."),
        ["docs/src/reproduction/a.md:3: docs/src/reproduction/results has no 33 % of T1",]
    );
    assert_eq!(
        with("<!-- by hand: long ago -->\n\nIt had 33 % less.\n"),
        [""; 0]
    );
    assert_eq!(
        with("<!-- by hand: long ago -->\nIt had 33 % less.\n\nAnd 34 %.").len(),
        1
    );
    assert_eq!(
        with("```sh\nsleep 33 %\n```\nwith a 95 % confidence interval"),
        [""; 0]
    );
}

/// One run of more flows, as `reproduce T1 --flows 50000 --seeds 1 --keep DIR` writes it.
fn with_further(root: &Path) {
    write_file(
        root,
        "results-50000/provenance.csv",
        "item,title,verdict,command,seeds,commit,date,rows\n\
         T1,queues,not decided,cargo xtask reproduce T1 --flows 50000 --seeds 1,1 to 1,fedcba9876543210,2026-11-28,t1.csv\n",
    );
    write_file(root, "results-50000/t1.csv", "a\n2\n");
    write_file(
        root,
        "results-50000/t1-checks.csv",
        "check,paper,band,ours,verdict\nRPS / ECMP,lowest,at most 1,0.207,not decided: one run tells no interval\n",
    );
    write_file(root, "results-50000/t1-table.csv", "gap,goodput\n50,1.07\n");
    write_file(root, "results-50000/t1.svg", SVG);
    write_file(root, "results-50000/t1-paper.svg", SVG);
}

#[test]
fn further_results_stand_beside_the_others() {
    let root = root();
    with_further(root.path());
    let blocks =
        format!("{BLOCKS}\n<!-- table: results-50000/t1-table.csv -->\n<!-- end of table -->\n");
    let text = Results::read(root.path()).unwrap().expand(&blocks).unwrap();
    for part in [
        "| T1 | queues | outside |\n",
        "With `--flows 50000 --seeds 1` **not decided**: `cargo xtask reproduce T1 --flows 50000 --seeds 1`, seeds 1 to 1, \
         commit `fedcba9876`, 2026-11-28; [rows](results-50000/t1.csv), [checks](results-50000/t1-checks.csv); \
         pictures: [beside the paper](results-50000/t1-paper.svg), [A plot](results-50000/t1.svg).\n",
        "| check | paper | band | ours, no options |  | `--flows 50000 --seeds 1` |  |\n",
        "| RPS / ECMP | lowest | at most 1 | 0.194 ± 0.068 | outside | 0.207 | not decided |\n",
        "| gap | goodput |\n|---|---|\n| 50 | 1.07 |\n",
    ] {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
    let good = format!("With 50,000 flows (T1) it is 79.3 % less.\n\n{text}");
    assert_eq!(faults(root.path(), &good), [""; 0]);
    assert_eq!(faults(root.path(), &good.replace("79.3", "79.4")).len(), 1);
    let stale = faults(root.path(), &text.replace("0.207", "0.208"));
    assert!(stale[0].contains("it is not what"), "{stale:?}");
}

#[test]
fn further_results_are_of_the_same_items_and_checks() {
    let root = root();
    with_further(root.path());
    let text = Results::read(root.path()).unwrap().expand(BLOCKS).unwrap();
    let checks = "results-50000/t1-checks.csv";
    write_file(
        root.path(),
        checks,
        "check,paper,band,ours,verdict\nRPS / ECMP,lowest,at most 2,0.207,holds\n",
    );
    let found = faults(root.path(), &text);
    assert!(found[0].contains("against \"at most 2\""), "{found:?}");
    write_file(root.path(), checks, "check,paper,band,ours,verdict\n");
    let found = faults(root.path(), &text);
    assert!(found[0].contains("has other checks of T1"), "{found:?}");
    with_further(root.path());
    write_file(root.path(), "results-50000/t7.csv", "a\n");
    assert_eq!(
        faults(root.path(), &text),
        ["docs/src/reproduction/results-50000/t7.csv: provenance.csv has no such item"]
    );
    write_file(
        root.path(),
        "results-50000/provenance.csv",
        "item,title,verdict,command,seeds,commit,date,rows\n\
         T1,queues,outside,a,1,fedcba9876543210,2026-11-28,t1.csv\nT7,flows,outside,a,1,fedcba9876543210,2026-11-28,t7.csv\n",
    );
    let found = faults(root.path(), &text);
    let alone = "docs/src/reproduction/results-50000: results has no T7";
    assert!(found.iter().any(|it| it == alone), "{found:?}");
}

#[test]
fn figures_of_packets_are_a_column_of_their_items() {
    let root = root();
    let text = |blocks: &str| Results::read(root.path()).unwrap().expand(blocks);
    let packets = "<!-- packets: all -->\n<!-- end of packets -->\n";
    let error = text(packets).unwrap_err().to_string();
    assert!(error.contains("no figures of real packets"), "{error}");
    assert!(!text(BLOCKS).unwrap().contains("on packets"));

    write_file(root.path(), "packets/fabric.json", "[]");
    write_file(
        root.path(),
        "packets/provenance.csv",
        "file,command,commit,date,machine\nfabric.json,cargo xtask fabric --json,fedcba9876543210,2026-11-28,two cores\n",
    );
    let text = text(&format!("{packets}{BLOCKS}")).unwrap();
    for part in [
        "| [fabric.json](packets/fabric.json) | `cargo xtask fabric --json` | `fedcba9876` | 2026-11-28 | two cores |\n",
        "| check | paper | band | ours |  | on packets |\n",
        "| RPS / ECMP | lowest | at most 1 | 0.194 ± 0.068 | outside | none: no packet of the laboratory is timed in a queue |\n",
    ] {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
    assert_eq!(faults(root.path(), &text), [""; 0]);
    let checks = "check,paper,band,ours,verdict\nanother,lowest,at most 1,0.1,holds\n";
    write_file(root.path(), "results/t1-checks.csv", checks);
    let found = faults(root.path(), &text);
    assert!(found[0].contains("\"another\" of T1"), "{found:?}");
}
