//! The processors of a run: programs ask how many there are, and choose code by what they can do.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::trace::escape;

/// The calling process (sched_setaffinity(2)).
const SELF: Pid = Pid::from_raw(0);

/// The processors that a run may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processors {
    /// What the processor calls itself; empty where it does not say.
    pub model: String,
    /// How many.
    pub count: usize,
}

impl Processors {
    /// Those that this process may use.
    pub(super) fn here() -> Self {
        let count = sched_getaffinity(SELF).map_or(1, |cpus| usable(&cpus).count());
        Self { model: model(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default()), count }
    }

    /// Leaves this process as many as a recorded run had; says what is different here.
    #[must_use]
    pub fn take(&self) -> Vec<String> {
        let here = Self::here();
        let mut different = Vec::new();
        if self.count < here.count {
            let fewer = sched_getaffinity(SELF).and_then(|cpus| {
                let mut fewer = CpuSet::new();
                usable(&cpus).take(self.count.max(1)).try_for_each(|cpu| fewer.set(cpu))?;
                sched_setaffinity(SELF, &fewer)
            });
            if let Err(errno) = fewer {
                different.push(format!("sched_setaffinity: {errno}: it sees more processors than recorded"));
            }
        } else if self.count > here.count {
            different.push(format!("recorded on {} processors, here there are {}", self.count, here.count));
        }
        if self.model != here.model {
            let model = escape::text(&self.model);
            different.push(format!("recorded on `{model}`, here it is `{}`", here.model));
        }
        different
    }
}

fn usable(cpus: &CpuSet) -> impl Iterator<Item = usize> {
    (0..CpuSet::count()).filter(|&cpu| cpus.is_set(cpu).unwrap_or(false))
}

fn model(cpuinfo: &str) -> String {
    let line = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
    line.and_then(|line| line.split_once(':')).map_or_else(String::new, |(_, name)| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_read_where_there_is_one() {
        assert_eq!(model("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nflags\t: x\n"), "Some CPU @ 2 GHz");
        assert_eq!(model("processor\t: 0\n"), "");
    }

    #[test]
    fn what_differs_is_said() {
        let here = Processors::here();
        assert!(here.count > 0);
        assert_eq!(here.take(), Vec::<String>::new());
        let other = Processors { model: "another".to_owned(), count: here.count + 1 };
        assert_eq!(other.take().len(), 2);
    }
}
