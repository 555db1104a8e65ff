//! The alert rules and Grafana dashboards of deploy/, on a real Prometheus that scrapes a store, a worker and a server.
//!
//! `promtool test rules` shows when each alert fires. A scrape shows that every metric which a rule or a panel names
//! exists, and that Prometheus understands each expression.

mod prometheus;
#[expect(dead_code, reason = "other suites use the rest")]
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use prometheus::{Prometheus, Targets};
use serde_json::Value;

/// Returns the folder deploy/ of the repository.
fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").canonicalize().expect("the folder deploy")
}

fn promtool(arguments: &[&str]) {
    let run = Command::new("promtool").args(arguments).current_dir(deploy().join("prometheus")).output();
    let run = run.expect("run promtool: install the package prometheus");
    let text = String::from_utf8_lossy(&[run.stdout, run.stderr].concat()).into_owned();
    assert!(run.status.success(), "promtool {arguments:?}:\n{text}");
}

#[test]
fn each_alert_fires_when_it_should() {
    promtool(&["check", "config", "prometheus.yml"]);
    promtool(&["test", "rules", "rules.test.yml"]);
    let read = |name: &str| fs::read_to_string(deploy().join("prometheus").join(name)).expect("read a file");
    let (rules, tests) = (read("rules.yml"), read("rules.test.yml"));
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 20, "{alerts:?}");
    for alert in alerts {
        for what in ["fires", "does not fire"] {
            assert!(tests.contains(&format!("- name: {alert} {what}\n")), "no test that {alert} {what}");
        }
    }
}

/// Returns the expressions of the rules, and of the panels and variables of the dashboards, with where they are.
fn expressions() -> Vec<(String, String)> {
    let rules = fs::read_to_string(deploy().join("prometheus/rules.yml")).expect("read the rules");
    let of_rules = rules.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    let mut found: Vec<(String, String)> = of_rules
        .map(|expression| ("rules.yml".to_owned(), expression.trim_matches('\'').replace("''", "'")))
        .collect();
    let (rule_count, mut boards) = (found.len(), 0);
    for file in fs::read_dir(deploy().join("grafana")).expect("list the dashboards") {
        let path = file.expect("a dashboard").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).expect("read a dashboard");
        let board: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        check_board(&name, &board);
        for panel in board["panels"].as_array().expect("panels") {
            for target in panel["targets"].as_array().expect("targets") {
                let expression = target["expr"].as_str().expect("an expression").to_owned();
                found.push((format!("{name}: {}", panel["title"]), expression));
            }
        }
        for variable in board["templating"]["list"].as_array().expect("variables") {
            if let Some(query) = variable["definition"].as_str() {
                let series = query.strip_prefix("label_values(").and_then(|rest| rest.rsplit_once(", "));
                let (series, _) = series.unwrap_or_else(|| panic!("{name}: {query}"));
                found.push((format!("{name}: {}", variable["name"]), series.to_owned()));
            }
        }
        boards += 1;
    }
    assert!(rule_count > 20 && boards == 4 && found.len() > 80, "{rule_count} {boards} {}", found.len());
    found
}

/// Checks what Grafana needs to import a dashboard, and that no two panels overlap.
fn check_board(name: &str, board: &Value) {
    let uid = board["uid"].as_str().unwrap_or_default();
    assert_eq!(format!("{}.json", uid.trim_start_matches("millstream-")), name);
    assert!(board["title"].is_string() && board["schemaVersion"].is_u64(), "{name}");
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in board["panels"].as_array().expect("panels") {
        assert!(ids.insert(panel["id"].as_u64()), "{name}: two panels have the id {}", panel["id"]);
        let at = |side: &str| panel["gridPos"][side].as_u64().unwrap_or_else(|| panic!("{name}: {panel}"));
        assert!(at("x") + at("w") <= 24, "{name}: {} is too wide", panel["title"]);
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(taken.insert((x, y)), "{name}: {} overlaps another panel", panel["title"]);
            }
        }
    }
}

/// Returns the names of metrics in an expression.
fn metrics_in(expression: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    // What is in quotes is a value of a label.
    for part in expression.split('"').step_by(2) {
        let words = part.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        names.extend(words.filter(|word| {
            *word == "up" || word.starts_with("millstream_") || word.starts_with("redis_stream_")
        }));
    }
    names
}

#[test]
fn every_metric_of_the_rules_and_dashboards_exists_in_a_scrape() {
    let targets = Targets::start();
    let prometheus = Prometheus::start(&targets);
    let expressions = expressions();
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for (place, expression) in &expressions {
        let of_expression = metrics_in(expression);
        assert!(!of_expression.is_empty(), "{place} names no metric: {expression}");
        names.extend(of_expression);
    }
    assert!(names.len() > 60, "{names:?}");
    prometheus.wait_for(&names);
    for (place, expression) in &expressions {
        let expression = ["instance", "stream", "group"]
            .iter()
            .fold(expression.clone(), |text, variable| text.replace(&format!("${variable}"), ".*"));
        let answer = prometheus.get(&format!("query?query={}", prometheus::encoded(&expression)));
        assert_eq!(answer["status"], "success", "{place}: {expression}: {answer}");
    }
}
