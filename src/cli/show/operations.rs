//! The names of operations, for those who misspell one.

use super::filter::matches;

const OPERATIONS: [&str; 48] = [
    "checkpoint",
    "clock.apart",
    "clock.tape",
    "clock.uncontrolled",
    "dns.lookup",
    "dns.withheld",
    "env.pass",
    "exec",
    "fs.delete",
    "fs.link",
    "fs.links",
    "fs.listed",
    "fs.meta",
    "fs.mkdir",
    "fs.mknod",
    "fs.open_read",
    "fs.open_write",
    "fs.order",
    "fs.rename",
    "fs.status",
    "fs.symlink",
    "fs.write",
    "http.exchange",
    "limit.hit",
    "machine.file",
    "net",
    "net.accept",
    "net.connect",
    "net.datagram",
    "net.listen",
    "net.resolve",
    "net.stream",
    "proc.exit",
    "proc.ids",
    "proc.image",
    "proc.spawn",
    "read",
    "run.cut",
    "run.end",
    "run.live",
    "run.replay",
    "run.seal",
    "run.signal",
    "run.start",
    "stdio",
    "stdio.order",
    "tls.leaf",
    "write",
];

/// What to say of an operation that no trace of this version has.
pub(super) fn unknown(wanted: &str) -> Option<String> {
    if OPERATIONS.iter().any(|name| matches(wanted, name)) {
        return None;
    }
    let kind = wanted.split('.').next().unwrap_or_default();
    let is_near = |name: &&&str| name.split('.').next() == Some(kind);
    let near: Vec<&str> = OPERATIONS.iter().filter(is_near).copied().collect();
    let shown = if near.is_empty() { OPERATIONS.join(", ") } else { near.join(", ") };
    Some(format!("no operation is called `{wanted}`; there are {shown}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_those_of_the_documents() {
        let table = include_str!("../../../docs/trace.md").lines().filter_map(|line| {
            let mut cells = line.strip_prefix("| ")?.split(" | ");
            let is_kind = ["meta", "effect", "observe", "deny"].contains(&cells.next()?);
            cells.next().filter(|_| is_kind)
        });
        let mut names: Vec<&str> = table.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names, OPERATIONS);
    }

    #[test]
    fn a_misspelt_one_is_told_from_one_that_did_not_occur() {
        assert_eq!(unknown("fs.*"), None);
        assert_eq!(unknown("net.listen"), None);
        assert!(
            unknown("fs.nonsense")
                .is_some_and(|said| said.contains("fs.open_read") && !said.contains("net."))
        );
        assert!(unknown("nonsense").is_some_and(|said| said.contains("net.stream")));
    }
}
