//! Rates: which rules count, and a meter that is told the time.

use std::net::IpAddr;
use std::time::Duration;

use super::super::{Asked, Policy, RateMeter, RuleId};
use super::policy;

const SOMEWHERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(1, 1, 1, 1));

fn rates(policy: &Policy, request: Option<(&str, &str)>) -> Vec<usize> {
    let asked = request.map(|(method, path)| Asked { method, path, upgrade: false });
    let rules = policy.rates(&["x.org".to_owned()], SOMEWHERE, 443, asked.as_ref());
    rules.into_iter().map(|rule| rule.0).collect()
}

#[test]
fn a_rate_counts_where_every_grant_has_one() {
    let one = policy("net: x.org @2/s\n");
    assert_eq!(rates(&one, Some(("GET", "/"))), [0]);
    assert_eq!(rates(&one, None), [0]);
    let wide = policy("net: x.org @2/s\nnet: *.org\n");
    assert!(rates(&wide, Some(("GET", "/"))).is_empty());
    let two = policy("net: *.org @9/min\nnet: GET x.org/a @2/s\n");
    assert_eq!(rates(&two, Some(("GET", "/a"))), [1, 0]);
    assert_eq!(rates(&two, Some(("GET", "/b"))), [0]);
    assert_eq!(rates(&two, None), [0], "what is not read is not under the rule with a path");
    let mixed = policy("net: GET x.org/a @2/s, POST x.org\n");
    assert!(rates(&mixed, Some(("POST", "/a"))).is_empty());
}

#[test]
fn no_stretch_of_time_holds_more() {
    let policy = policy("net: x.org @3/min\n");
    let (mut meter, rule) = (RateMeter::default(), [RuleId(0)]);
    let second = Duration::from_secs;
    for at in [0, 10, 20] {
        assert_eq!(meter.take(&policy, &rule, second(at)), Ok(()));
    }
    let refusal = meter.take(&policy, &rule, second(30)).expect_err("the fourth");
    assert_eq!((refusal.rule, refusal.retry_after, refusal.is_first), (RuleId(0), second(30), true));
    assert!(!meter.take(&policy, &rule, second(59)).expect_err("still").is_first);
    assert_eq!(meter.take(&policy, &rule, second(60)), Ok(()), "a refusal takes no place");
    let refusal = meter.take(&policy, &rule, second(61)).expect_err("two are left from before");
    assert_eq!((refusal.retry_after, refusal.is_first), (second(9), true));
}

#[test]
fn rates_add_up() {
    let policy = policy("net: x.org @1/h\nnet: GET x.org/a @1/s\n");
    let mut meter = RateMeter::default();
    let rules = [RuleId(1), RuleId(0)];
    assert_eq!(meter.take(&policy, &rules, Duration::ZERO), Ok(()));
    assert_eq!(meter.take(&policy, &rules, Duration::ZERO), Ok(()));
    let refusal = meter.take(&policy, &rules, Duration::ZERO).expect_err("both are used up");
    assert_eq!((refusal.rule, refusal.retry_after.as_secs()), (RuleId(1), 1));
    assert_eq!(meter.take(&policy, &[], Duration::ZERO), Ok(()), "no rate, no limit");
}
