//! The shipped policy profiles (`include: profile/git`), compiled in.

/// Name and text of each, in the order in which they are listed.
static PROFILES: [(&str, &str); 10] = [
    ("git", include_str!("../../policies/git.policy")),
    ("git-fetch", include_str!("../../policies/git-fetch.policy")),
    ("python", include_str!("../../policies/python.policy")),
    ("node", include_str!("../../policies/node.policy")),
    ("rust", include_str!("../../policies/rust.policy")),
    ("go", include_str!("../../policies/go.policy")),
    ("java", include_str!("../../policies/java.policy")),
    ("claude-code", include_str!("../../policies/claude-code.policy")),
    ("codex", include_str!("../../policies/codex.policy")),
    ("aider", include_str!("../../policies/aider.policy")),
];

/// The text of the profile `name`.
#[must_use]
pub fn profile(name: &str) -> Option<&'static str> {
    PROFILES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The names of all profiles.
pub fn names() -> impl Iterator<Item = &'static str> {
    PROFILES.iter().map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_has_rules_and_says_what_it_is_for() {
        for name in names() {
            let text = profile(name).expect("a listed profile");
            assert!(text.starts_with("# "), "{name}");
            assert!(text.lines().any(|line| line.starts_with("exec: ")), "{name}");
            assert!(text.is_ascii() && text.ends_with('\n'), "{name}");
        }
        assert_eq!(profile("nothing"), None);
    }
}
