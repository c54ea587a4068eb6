//! Predictions by the simulator, which take neither root nor a splitter.

use std::{error::Error, fs, process::Command};

use serde_json::Value;

type TestResult = Result<(), Box<dyn Error>>;

/// The flows of one seed.
fn predict(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fabric"));
    command.args(["--predict", "--quick", "--seeds", "1", "--seconds", "1"]);
    command.args(["--cell", "2x2-asym2.5-web_search-load0.3"]);
    command.args(arguments);
    command
}

#[test]
fn same_flows_are_predicted_alike_each_time() -> TestResult {
    let run = || predict(&["--json", "--scheme", "ecmp_flow,ecmp_packet,tr"]).output();
    let (one, other) = (run()?, run()?);
    let said = String::from_utf8_lossy(&one.stderr);
    assert!(one.status.success(), "{said}");
    assert_eq!(one.stdout, other.stdout);
    let lacking = "not available: ecmp_packet in 2x2-asym2.5-web_search-load0.3: ";
    assert!(said.contains(lacking), "{said}");
    let rows: Value = serde_json::from_slice(&one.stdout)?;
    let all = rows.as_array().expect("an array");
    assert!(all.iter().any(|it| it["scheme"] == "tr"), "{rows}");
    for row in all {
        assert!(row["predicted_mean_ms"].as_f64() > Some(0.1), "{row}");
        assert!(
            row["predicted_p99_ms"].as_f64() >= row["predicted_mean_ms"].as_f64(),
            "{row}"
        );
        assert!(row["mean_ratio"].is_null(), "nothing was measured: {row}");
    }
    Ok(())
}

#[test]
fn measured_rows_and_variations_stand_in_one_table() -> TestResult {
    let predicted = predict(&["--json", "--scheme", "ecmp_flow"]).output()?;
    let predicted: Value = serde_json::from_slice(&predicted.stdout)?;
    let flows = |class: &str| {
        let mut rows = predicted.as_array().into_iter().flatten();
        rows.find(|it| it["size_class"] == class)
            .map(|it| it["flows"].clone())
    };
    // As if it had taken half as long.
    let short = serde_json::json!([{
        "scheme": "ecmp_flow", "seed": 1, "case": "2x2-asym2.5-web_search", "load": 0.3, "size_class": "short",
        "flows": flows("short"), "unfinished": 0, "mean_ms": predicted[0]["predicted_mean_ms"].as_f64().map(|it| it / 2.0),
        "p99_ms": 1.0, "predicted_mean_ms": null, "goodput": null, "out_of_order": 0.0, "retransmits": 7, "path_share": [],
        "ns_per_packet": null, "cpu_s": 0.0, "memory_mb": null, "prediction_error_us": null,
    }]);
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("rows.json");
    fs::write(&file, short.to_string())?;
    let vary = ["--vary", "transport.control=reno;transport.recovery=sack"];
    let mut command = predict(&["--csv", "--measured"]);
    let output = command.arg(&file).args(vary).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8(output.stdout)?;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(
        lines[0].starts_with("cell,scheme,changed,short ms,short measured ms,short ratio"),
        "{text}"
    );
    assert!(lines[1].contains(",ecmp_flow,-,") && lines[1].contains("2.00 [2.00, 2.00]"));
    assert!(
        lines[2].contains(",ecmp_flow,transport.control=reno;transport.recovery=sack,"),
        "{text}"
    );
    Ok(())
}
