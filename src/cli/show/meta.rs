//! What an entry about the run itself says, in a few words.

use nix::sys::signal::Signal;
use serde_json::{Map, Value};

/// Digits of a digest that are shown.
const SHORT_DIGEST: usize = 12;

/// The few words; none where the entry is about something else, or does not say what such an entry does.
pub(super) fn brief(entry: &Map<String, Value>) -> Option<String> {
    if entry.get("kind")? != "meta" {
        return None;
    }
    let args = Args(entry.get("args")?.as_object()?);
    match entry.get("op")?.as_str()? {
        "run.end" => args.end(),
        "run.seal" | "checkpoint" => {
            let head: String = args.text("head")?.chars().take(SHORT_DIGEST).collect();
            Some(format!("{}, head {head}…", args.counted("entries", "entry", "entries")?))
        }
        "run.replay" => args.replay(),
        "run.live" => Some(format!("for real from step {} on", args.text("step")?)),
        "run.signal" => {
            let signal = signal_name(args.number("signal")?);
            Some(format!("{signal} from outside, to the {}", args.text("to").unwrap_or("command")))
        }
        "run.cut" => Some(format!("still there at the end, and killed: {}", args.words("procs")?)),
        "clock.tape" => match args.text("clock")? {
            "tape" => Some(args.counted("reads", "read of the clock", "reads of the clock")? + args.cut()),
            _ => Some("a clock at real rate".to_owned()),
        },
        "clock.apart" => {
            let reads = args.counted("mismatches", "read of the clock", "reads of the clock")?;
            Some(format!("{reads} otherwise than recorded"))
        }
        "clock.uncontrolled" => args.text("reason").map(str::to_owned),
        "proc.ids" => {
            let count = args.0.get("ids")?.as_object()?.len();
            Some(plural(u64::try_from(count).ok()?, "process or thread", "processes and threads"))
        }
        "fs.status" => Some(args.counted("count", "status of a file", "statuses of files")? + args.cut()),
        "fs.listed" => Some(
            args.counted("count", "directory that was listed", "directories that were listed")? + args.cut(),
        ),
        "env.pass" => args.words("names"),
        _ => None,
    }
}

/// The arguments of an entry.
struct Args<'a>(&'a Map<String, Value>);

impl Args<'_> {
    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.0.get(name)?.as_i64()
    }

    fn counted(&self, name: &str, one: &str, many: &str) -> Option<String> {
        Some(plural(self.0.get(name)?.as_u64()?, one, many))
    }

    fn words(&self, name: &str) -> Option<String> {
        let words = self.0.get(name)?.as_array()?;
        Some(words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "))
    }

    /// That nothing more was recorded, where it was not.
    fn cut(&self) -> &'static str {
        if self.0.contains_key("cut") { ", and nothing more was recorded" } else { "" }
    }

    fn end(&self) -> Option<String> {
        let code = self.number("returncode")?;
        let end = match code {
            ..0 => format!("killed by {}", signal_name(-code)),
            _ => format!("exit code {code}"),
        };
        let total = |name: &str, one: &str| {
            let count = self.0.get("totals")?.get(name)?.as_u64()?;
            Some(plural(count, one, name))
        };
        let totals =
            [total("effects", "effect"), total("observations", "observation"), total("denials", "denial")];
        let said: Vec<String> = std::iter::once(end).chain(totals.into_iter().flatten()).collect();
        Some(said.join(", "))
    }

    fn replay(&self) -> Option<String> {
        let mut said = vec![format!("umask {:03o}", self.number("umask")?)];
        if let Some(processors) = self.0.get("processors").and_then(Value::as_object) {
            let processors = Args(processors);
            said.extend(processors.counted("count", "processor", "processors"));
            said.extend(processors.text("model").map(str::to_owned));
        }
        if self.0.contains_key("captured") {
            said.push("what was read is kept".to_owned());
        }
        if let Some(step) = self.0.get("until").and_then(|until| until.get("step")?.as_str()) {
            said.push(format!("replayed to step {step}"));
        }
        Some(said.join(", "))
    }
}

fn signal_name(number: i64) -> String {
    match i32::try_from(number).ok().and_then(|number| Signal::try_from(number).ok()) {
        Some(signal) => signal.to_string(),
        None => format!("signal {number}"),
    }
}

fn plural(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(op: &str, args: &Value) -> Option<String> {
        brief(json!({"kind": "meta", "op": op, "args": args}).as_object().expect("an object"))
    }

    #[test]
    fn each_entry_about_the_run_is_a_few_words() {
        let says = |op, args: Value, expected: &str| {
            assert_eq!(said(op, &args).as_deref(), Some(expected), "{op} {args}");
        };
        says("run.end", json!({"returncode": 3}), "exit code 3");
        says(
            "run.end",
            json!({"returncode": -15, "totals": {"effects": 1, "observations": 20, "denials": 0}}),
            "killed by SIGTERM, 1 effect, 20 observations, 0 denials",
        );
        says("run.end", json!({"returncode": -99}), "killed by signal 99");
        let sha = "6f5ab330e7b0b321e714b25a1a02c0f5299ed00cc407962583b372e4778388f6";
        says("run.seal", json!({"entries": 17, "head": sha}), "17 entries, head 6f5ab330e7b0…");
        says("checkpoint", json!({"entries": 1, "head": "ä"}), "1 entry, head ä…");
        let processors = json!({"count": 2, "model": "M"});
        says("run.replay", json!({"umask": 18, "processors": processors}), "umask 022, 2 processors, M");
        says(
            "run.replay",
            json!({"umask": 0, "captured": {}, "until": {"step": "0.2@7"}}),
            "umask 000, what was read is kept, replayed to step 0.2@7",
        );
        says("run.live", json!({"step": "0@3"}), "for real from step 0@3 on");
        says("run.signal", json!({"signal": 2, "to": "group"}), "SIGINT from outside, to the group");
        says("run.cut", json!({"procs": ["0.1", "0.2"]}), "still there at the end, and killed: 0.1 0.2");
        says("clock.tape", json!({"clock": "tape", "reads": 1}), "1 read of the clock");
        let cut = json!({"clock": "tape", "reads": 9, "cut": true});
        says("clock.tape", cut, "9 reads of the clock, and nothing more was recorded");
        says("clock.tape", json!({"clock": "shift", "at": 5}), "a clock at real rate");
        says("clock.apart", json!({"mismatches": 2}), "2 reads of the clock otherwise than recorded");
        says("clock.uncontrolled", json!({"reason": "no vdso"}), "no vdso");
        says("proc.ids", json!({"ids": {"0": 2, "0.0": 3}}), "2 processes and threads");
        says("fs.status", json!({"count": 1}), "1 status of a file");
        says(
            "fs.listed",
            json!({"count": 2, "cut": true}),
            "2 directories that were listed, and nothing more was recorded",
        );
        says("env.pass", json!({"names": ["HOME", "PATH"]}), "HOME PATH");
    }

    #[test]
    fn what_says_something_else_is_left_to_others() {
        for args in [json!({}), json!({"returncode": "x"}), json!([1])] {
            assert_eq!(said("run.end", &args), None, "{args}");
        }
        assert_eq!(said("fs.order", &json!({"path": "/x"})), None);
        let denied = json!({"kind": "deny", "op": "run.end", "args": {"returncode": 0}});
        assert_eq!(brief(denied.as_object().expect("an object")), None);
    }
}
