//! Floods: the supervisor keeps serving, in bounded time and memory, and seals the trace.

use std::time::{Duration, Instant};

use super::cell::{Cell, users};

/// Largest resident set that the launcher may have, in KiB.
const MEMORY: u64 = 400 << 10;

#[test]
fn the_supervisor_outlasts_every_flood() {
    let policies = ["read: .\nwrite: ./out\n", "read: .\nwrite: ./out\ndeny: read ./none/*.x\n"];
    for (user, policy) in users().zip(policies.into_iter().rev()) {
        for mode in
            ["sparse", "chain", "files", "threads", "abandoned", "words", "names", "everybody", "watches"]
        {
            let cell = Cell::new("flood", user);
            cell.file("out/.keep", "");
            let start = Instant::now();
            let fight = cell.attack(policy, &[mode]);
            fight.is_lost();
            assert_eq!(fight.code, Some(0), "{mode}: {fight}");
            assert!(start.elapsed() < Duration::from_secs(60), "{mode}: {:?}", start.elapsed());
            assert!(fight.peak < MEMORY, "{mode}: {} KiB", fight.peak);
            assert_eq!(fight.found("meta", "run.seal").count(), 1, "{mode}: {fight}");
        }
    }
}
