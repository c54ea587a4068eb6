//! The program from outside: a cell that it measures, and what it takes over of it later.

use std::{error::Error, path::Path, process::Command};

use flow_testbed::{require, require::Requirement::*};

type TestResult = Result<(), Box<dyn Error>>;

/// Measures briefly; what it printed, as JSON, and what it said on the side.
fn measure(out: &Path, arguments: &[&str]) -> Result<(serde_json::Value, String), Box<dyn Error>> {
    let output = Command::new(env!("CARGO_BIN_EXE_msgbench"))
        .args(["--json", "--quick", "--cell=idle-0.2ms", "--seconds=0.5"])
        .args(arguments)
        .arg("--out")
        .arg(out)
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let json = serde_json::from_slice(&output.stdout);
    Ok((json.map_err(|error| format!("{error}: {said}"))?, said))
}

#[test]
fn campaign_goes_on_with_the_runs_that_it_lacks() -> TestResult {
    require!(Root, Program("ip"), Program("tc"), Program("nft"), Program("ethtool") => Ok(()));
    require!(QueueingDiscipline("tbf rate 1mbit burst 3100 limit 9000") => Ok(()));
    require!(NftRule("meta mark set jhash ip saddr . ip daddr . th sport . th dport mod 4") => Ok(()));
    require!(NftRule("counter"), CongestionControl("cubic") => Ok(()));
    require!(File("/dev/net/tun") => Ok(()));
    let directory = tempfile::tempdir()?;
    let out = directory.path().join("out");
    let (first, _) = measure(&out, &["--schemes=tcp_cubic"])?;
    let rows = first.as_array().ok_or("an array")?;
    assert_eq!(rows.len(), 3, "a row for each size: {first}");
    for row in rows {
        let is_whole = row["seed"] == 1
            && row["bytes_per_message"].as_f64() > Some(1_500.0)
            && row["bulk_mbit"].is_null();
        assert!(is_whole, "{row}");
    }

    // Another scheme is measured, and what is there is not measured again.
    let (more, said) = measure(&out, &["--schemes=tcp_cubic,quic", "--resume"])?;
    assert!(said.contains("idle-0.2ms: 1 runs taken over"), "{said}");
    let more = more.as_array().ok_or("an array")?.clone();
    assert_eq!(more.len(), 6);
    for row in rows {
        assert!(more.contains(row), "{row} of {more:?}");
    }
    // All of it is there now, and plots are made of it again.
    std::fs::remove_file(out.join("index.html"))?;
    let (all, said) = measure(&out, &["--schemes=tcp_cubic,quic", "--resume"])?;
    assert!(said.contains("2 runs taken over"), "{said}");
    assert_eq!(all.as_array(), Some(&more));
    assert!(out.join("index.html").is_file());
    Ok(())
}
