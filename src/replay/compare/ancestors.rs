//! Who started a process.

use std::io::{self, Read, Seek};

use super::comparison::Ancestor;
use super::index::Index;

/// The process and its ancestors, from the command down.
pub(super) fn chain(index: &Index, process: u32, from: &mut (impl Read + Seek)) -> io::Result<Vec<Ancestor>> {
    let mut chain = Vec::new();
    // What the launcher does is nobody's child.
    let mut next = Some(process).filter(|process| index.processes.get(*process).lineage != "run");
    while let Some(process) = next {
        let process = index.processes.get(process);
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
        chain.push(Ancestor { proc: process.lineage.clone(), argv: argv.unwrap_or_default() });
        next = process.parent;
    }
    chain.reverse();
    Ok(chain)
}
