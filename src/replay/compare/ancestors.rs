//! Who started a process.

use std::io::{self, Read, Seek};

use super::comparison::Ancestor;
use super::index::Index;

/// Most that are told of them.
const MOST: usize = 64;

/// The process and its ancestors, from the command down; the nearest of many.
pub(super) fn chain(index: &Index, process: u32, from: &mut (impl Read + Seek)) -> io::Result<Vec<Ancestor>> {
    let mut chain = Vec::new();
    // What the launcher does is nobody's child.
    let mut next = Some(process).filter(|process| index.processes.lineage(*process) != "run");
    while let Some(number) = next.filter(|_| chain.len() < MOST) {
        let process = index.processes.get(number);
        let argv = match process.spawn {
            // Without a supervisor, what the command starts is all its own.
            _ if process.parent.is_none() => {
                index.start.get("argv").and_then(|argv| argv.as_array().cloned())
            }
            Some(step) => {
                let entry = index.entry(step, from)?;
                entry.get("args").and_then(|args| args.get("argv")?.as_array().cloned())
            }
            None => None,
        };
        chain.push(Ancestor { proc: index.processes.lineage(number), argv: argv.unwrap_or_default() });
        next = process.parent;
    }
    chain.reverse();
    Ok(chain)
}
