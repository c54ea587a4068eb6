//! Pages that agree with kept results, and such that do not.

use super::*;

const PAGE: &str = "docs/src/reproduction/a.md";

fn root() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = root.path().join(RESULTS).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
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
    let svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" aria-label=\"A plot\"/>";
    write("t1.svg", svg);
    write("t1-paper.svg", svg);
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
    fs::write(root.path().join(RESULTS).join("t11.csv"), "a\n").unwrap();
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
    let provenance = root.path().join(RESULTS).join("provenance.csv");
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
