//! What two runs differ in before they begin: command, policy, script, variables.

use super::cause::Cause;
use super::comparison::Divergence;
use super::fields::{self, Field};
use super::index::Index;
use super::variables;

/// What the headers say differently.
pub(super) fn differing(one: &Index, other: &Index) -> Vec<Divergence> {
    let (ours, theirs) = (&one.start, &other.start);
    let reads_script = one.reads_script || other.reads_script;
    let rows = [
        (Cause::CommandChanged, "run.start", &["argv", "argv_hex", "cwd", "cwd_hex"][..]),
        (Cause::PolicyChanged, "run.start", &["policy_sha256"][..]),
        // Where a rule grants it, it is compared where it was read.
        (Cause::InputChanged, "run.start", if reads_script { &[][..] } else { &["script_sha256"][..] }),
    ];
    let mut found = Vec::new();
    for (cause, op, names) in rows {
        let differing = names.iter().filter(|name| ours.get(**name) != theirs.get(**name));
        let fields: Vec<Field> = differing
            .map(|name| Field {
                name: (*name).to_owned(),
                recorded: ours.get(*name).cloned(),
                live: theirs.get(*name).cloned(),
            })
            .collect();
        found.extend((!fields.is_empty()).then(|| Divergence::before_the_start(cause, op, fields)));
    }
    let (ours, theirs) = (&one.environment, &other.environment);
    let mut fields = variables::changed(&one.variables, &other.variables);
    if ours != theirs {
        let (ours, theirs) = (ours.as_ref(), theirs.as_ref());
        let (recorded, live) = (fields::lacking(ours, theirs), fields::lacking(theirs, ours));
        fields.push(Field { name: "names".to_owned(), recorded, live });
    }
    found.extend(
        (!fields.is_empty())
            .then(|| Divergence::before_the_start(Cause::EnvironmentChanged, "env.pass", fields)),
    );
    found
}
