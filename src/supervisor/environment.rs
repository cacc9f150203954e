//! Variables that make a program load other code than its arguments say.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use super::arguments::read_words;
use super::call::Call;

/// Whole names.
const NAMES: &[&str] = &[
    "GCONV_PATH",
    "NODE_OPTIONS",
    "NODE_PATH",
    "BASH_ENV",
    "ENV",
    "PERL5OPT",
    "PERL5LIB",
    "PERL5DB",
    "RUBYOPT",
    "RUBYLIB",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_EXEC_PATH",
    "GIT_EXTERNAL_DIFF",
    "GIT_PAGER",
    "GIT_EDITOR",
    "GIT_ASKPASS",
    "GIT_PROXY_COMMAND",
    "GIT_TEMPLATE_DIR",
    "SSH_ASKPASS",
    "PAGER",
    "EDITOR",
    "VISUAL",
    "LESSOPEN",
    "LESSCLOSE",
    "MANPAGER",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "CLASSPATH",
    "PROMPT_COMMAND",
    "PS4",
    "SHELLOPTS",
    "BASHOPTS",
    "IFS",
    "CDPATH",
    "GLIBC_TUNABLES",
    "GETCONF_DIR",
    "LOCPATH",
    "MALLOC_TRACE",
    "NLSPATH",
    "RES_OPTIONS",
    "TZDIR",
    "HOSTALIASES",
    "LUA_INIT",
    "LUA_PATH",
    "LUA_CPATH",
    "TCLLIBPATH",
    "OPENSSL_CONF",
    "OPENSSL_MODULES",
    "OPENSSL_ENGINES",
    "RUSTC_WRAPPER",
    "RUSTFLAGS",
    "CARGO_BUILD_RUSTC_WRAPPER",
    "MAKEFLAGS",
    "GOFLAGS",
    "NPM_CONFIG_SCRIPT_SHELL",
    "npm_config_script_shell",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
];
/// Beginnings of names.
const PREFIXES: &[&str] =
    &["LD_", "PYTHON", "GIT_CONFIG", "BASH_FUNC_", "DYLD_", "LUA_INIT_", "DENO_", "BUN_"];

/// The environment that an execve(2) passes.
pub(super) fn passed(call: &Call) -> Vec<OsString> {
    let at = if i64::from(call.number) == libc::SYS_execveat { 3 } else { 2 };
    // Unreadable: the kernel will refuse the start as well, and the exec event looks again.
    read_words(call.task.tid, call.arguments[at]).unwrap_or_default()
}

/// The first variable of `environment` (NAME=VALUE) that loads code.
pub(super) fn loads_code(environment: &[OsString]) -> Option<String> {
    environment.iter().find_map(|variable| {
        let name = variable.as_bytes().split(|&byte| byte == b'=').next().unwrap_or_default();
        let name = String::from_utf8_lossy(name);
        let hit = NAMES.contains(&&*name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        hit.then(|| name.into_owned())
    })
}
