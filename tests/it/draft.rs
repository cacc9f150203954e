//! What a policy says of the system's own trees counts, though most of a view is made before the policy is read.

use crate::support::{Sandbox, User};

/// Prints for each place how many mounts there are, and whether the last can be written.
const MOUNTS: &str = "
def mounts(*places):
    lines = [line.split() for line in open('/proc/self/mountinfo')]
    for place in places:
        found = [words[5].split(',')[0] for words in lines if words[4] == place]
        print(place, len(found), found[-1:])
";

fn mounts(policy: &str, places: &str) -> String {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy(policy);
    let ran = sandbox.python(&format!("{MOUNTS}\nmounts({places})"));
    ran.exits(0);
    ran.stdout.clone()
}

#[test]
fn trees_of_the_system_are_mounted_once_and_read_only() {
    let seen = mounts("", "'/usr', '/proc', '/dev/null', '/etc/alternatives', '/etc', '/proc/fs'");
    assert_eq!(
        seen,
        "/usr 1 ['ro']\n/proc 1 ['ro']\n/dev/null 1 ['ro']\n/etc/alternatives 1 ['ro']\n/etc 0 []\n/proc/fs 0 []\n"
    );
}

#[test]
fn a_rule_about_one_of_them_counts() {
    let seen = mounts("write: /etc/alternatives", "'/etc/alternatives', '/usr'");
    assert_eq!(seen, "/etc/alternatives 1 ['rw']\n/usr 1 ['ro']\n");
    let seen = mounts("write: /usr/local", "'/usr/local', '/usr', '/proc/fs'");
    assert_eq!(seen, "/usr/local 1 ['rw']\n/usr 1 ['ro']\n/proc/fs 0 []\n");
}

#[test]
fn a_rule_about_what_is_around_them_counts() {
    for policy in ["read: /etc", "read: /"] {
        let seen = mounts(policy, "'/etc/alternatives', '/proc/fs'");
        assert_eq!(seen, "/etc/alternatives 0 []\n/proc/fs 0 []\n", "{policy}");
    }
    assert_eq!(mounts("write: /etc", "'/etc'"), "/etc 1 ['rw']\n");
}

#[test]
fn what_the_host_has_where_the_draft_was_is_shown_as_it_is() {
    let sandbox = Sandbox::new(User::Caller);
    sandbox.policy("read: /proc/fs");
    let ran = sandbox.python("import os; print(sorted(os.listdir('/proc/fs')))");
    let mut names: Vec<_> = std::fs::read_dir("/proc/fs")
        .expect("it is there")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .map(|name| format!("'{name}'"))
        .collect();
    names.sort();
    ran.exits(0).prints(&format!("[{}]\n", names.join(", ")));
}
