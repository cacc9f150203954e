//! A survey as aligned text.

use std::io::{self, Write};

use super::survey::{Remark, Survey};
use crate::trace::escape;

/// Columns are not made wider than this for one long entry.
const WIDEST: usize = 44;
/// So many with one reason stand together.
const MANY: usize = 4;
/// Characters of a line of names.
const LINE: usize = 96;

/// Writes all of it.
pub(super) fn write(survey: &Survey, explain: bool, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "policy {}  sha256 {}", escape::text(&survey.policy), survey.sha256)?;
    for name in &survey.included {
        writeln!(out, "includes {}", escape::text(name))?;
    }
    for remark in &survey.remarks {
        write_remark(remark, explain, out)?;
    }
    heading("Rules", out)?;
    write_rules(survey, explain, out)?;
    heading("Visible without a rule, read-only and not recorded", out)?;
    write_roots(survey, |why| why == "system", explain, out)?;
    heading("Visible because a program needs it", out)?;
    write_roots(survey, |why| why == "runtime", explain, out)?;
    heading("Visible by a rule", out)?;
    write_roots(survey, |why| why == "rule", explain, out)?;
    let own = [
        (&survey.private, "the run's own, empty at the start and gone at the end"),
        (&survey.generated, "made by agentbox"),
        (&survey.trusted, "certificates of the host, and the one of the run that TLS is read with"),
        (&survey.devices, "device"),
        (&survey.closed, "agentbox's own: no rule opens it"),
    ];
    heading("Other files", out)?;
    let own =
        own.iter().flat_map(|(paths, why)| paths.iter().map(|path| vec![path.clone(), (*why).to_owned()]));
    gathered(own.collect(), explain, out)?;
    heading("Environment", out)?;
    let variables = survey.environment.iter().map(|one| vec![one.name.clone(), one.reason.clone()]);
    gathered(variables.collect(), explain, out)?;
    heading("Hosts", out)?;
    let word = |allowed| if allowed { "allowed by" } else { "denied by" };
    rows(
        survey.hosts.iter().map(|one| vec![one.host.clone(), format!("{} {}", word(one.allowed), one.rule)]),
        out,
    )?;
    if !survey.sockets.is_empty() {
        heading("Unix sockets of the host", out)?;
        rows(survey.sockets.iter().map(|path| vec![path.clone(), "reachable, bytes alone".to_owned()]), out)?;
    }
    Ok(())
}

fn heading(text: &str, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\n{text}")
}

fn write_rules(survey: &Survey, explain: bool, out: &mut impl Write) -> io::Result<()> {
    let table = survey.rules.iter().map(|rule| {
        let stands_for = if rule.stands_for.is_empty() {
            String::new()
        } else {
            format!("= {}", rule.stands_for.join(", "))
        };
        vec![rule.at.clone(), rule.text.clone(), stands_for]
    });
    let lines = aligned(table.collect());
    if lines.is_empty() {
        return writeln!(out, "  none");
    }
    for (line, rule) in lines.iter().zip(&survey.rules) {
        writeln!(out, "  {line}")?;
        if explain {
            writeln!(out, "      {}", escape::text(&rule.meaning))?;
        }
        for remark in &rule.remarks {
            write_remark(remark, explain, out)?;
        }
    }
    Ok(())
}

fn write_remark(remark: &Remark, explain: bool, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "      {}: {}", remark.severity, escape::text(&remark.message))?;
    match &remark.help {
        Some(help) if explain => writeln!(out, "      help: {}", escape::text(help)),
        _ => Ok(()),
    }
}

fn write_roots(
    survey: &Survey,
    which: impl Fn(&str) -> bool,
    explain: bool,
    out: &mut impl Write,
) -> io::Result<()> {
    let roots = survey.roots.iter().filter(|root| which(root.why));
    let roots = roots.map(|root| vec![root.path.clone(), root.rights.join(","), root.reason.clone()]);
    gathered(roots.collect(), explain, out)
}

/// Rows that differ in their first cell alone stand together, where they are many and nothing is explained.
fn gathered(table: Vec<Vec<String>>, explain: bool, out: &mut impl Write) -> io::Result<()> {
    if explain || table.is_empty() {
        return rows(table.into_iter(), out);
    }
    let mut groups: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    for mut row in table {
        let name = row.remove(0);
        match groups.iter_mut().find(|(rest, _)| *rest == row) {
            Some((_, names)) => names.push(name),
            None => groups.push((row, vec![name])),
        }
    }
    let (many, few): (Vec<_>, Vec<_>) = groups.into_iter().partition(|(_, names)| names.len() >= MANY);
    if !few.is_empty() {
        let row = |name, rest: &Vec<String>| [vec![name], rest.clone()].concat();
        rows(
            few.into_iter().flat_map(|(rest, names)| names.into_iter().map(move |name| row(name, &rest))),
            out,
        )?;
    }
    for (rest, names) in many {
        writeln!(out, "  {}:", escape::text(&rest.join(", ")))?;
        let mut line = String::new();
        for (at, name) in names.iter().enumerate() {
            let word = escape::text(name) + if at + 1 < names.len() { "," } else { "" };
            if !line.is_empty() && line.chars().count() + word.chars().count() > LINE {
                writeln!(out, "      {line}")?;
                line.clear();
            }
            line += if line.is_empty() { "" } else { " " };
            line += &word;
        }
        writeln!(out, "      {line}")?;
    }
    Ok(())
}

fn rows(table: impl Iterator<Item = Vec<String>>, out: &mut impl Write) -> io::Result<()> {
    let lines = aligned(table.collect());
    if lines.is_empty() {
        return writeln!(out, "  none");
    }
    lines.iter().try_for_each(|line| writeln!(out, "  {line}"))
}

/// Lines whose columns begin at the same places.
fn aligned(mut table: Vec<Vec<String>>) -> Vec<String> {
    for cell in table.iter_mut().flatten() {
        *cell = escape::text(cell);
    }
    let columns = table.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = table.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).filter(|width| *width <= WIDEST).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    table.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_long_cell_moves_no_other_line() {
        let table = [["a", "x"], ["bcd", "y"], ["e", "z"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(aligned(table.to_vec()), ["a    x", "bcd  y", "e    z"]);
        let long = "l".repeat(WIDEST + 1);
        assert_eq!(
            aligned(vec![vec![long.clone(), "x".into()], vec!["a".into(), "y\n".into()]]),
            [format!("{long}  x"), "a  y\\n".into()]
        );
    }
}
