//! The reference page says what is so.

use super::super::parse;
use super::FakeHost;

const PAGE: &str = include_str!("../../../docs/policy.md");

/// The fenced blocks with this mark.
fn blocks(mark: &str) -> Vec<String> {
    let mut blocks: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in PAGE.lines() {
        match line.trim() {
            fence if fence == format!("```{mark}") => {
                blocks.push(String::new());
                is_open = true;
            }
            "```" => is_open = false,
            text if is_open => blocks.last_mut().expect("a block is open").push_str(&format!("{text}\n")),
            _ => {}
        }
    }
    blocks
}

#[test]
fn examples_are_accepted() {
    let blocks = blocks("policy");
    assert!(blocks.len() >= 10);
    for text in blocks {
        if let Err(report) = parse(&text, "agent.policy", &FakeHost::new()) {
            panic!("{text}{report}");
        }
    }
}

#[test]
fn what_is_called_refused_is_refused() {
    let blocks = blocks("refused");
    assert!(blocks.len() > 3);
    for text in blocks {
        assert!(parse(&text, "agent.policy", &FakeHost::new()).is_err(), "{text}");
    }
}

/// Rules in the first column of a table are rules, too; those of the older tool are looked at elsewhere.
#[test]
fn tables_hold_rules() {
    let keys = ["read: ", "write: ", "deny: ", "net: ", "exec: ", "env: "];
    let page = PAGE.split("## Policies of the older").next().expect("a page");
    let mut count = 0;
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        // A bar within a cell is escaped.
        let row = row.replace("\\|", "\u{1}");
        let cell = row.split('|').nth(1).expect("a cell").replace('\u{1}', "|");
        for text in cell.split('`').filter(|text| keys.iter().any(|key| text.starts_with(key))) {
            count += 1;
            if let Err(report) = parse(text, "agent.policy", &FakeHost::new()) {
                panic!("{text}: {report}");
            }
        }
    }
    assert!(count > 30, "{count}");
}
