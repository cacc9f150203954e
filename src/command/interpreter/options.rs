//! The options of each known interpreter, as far as the search for a script needs them.

/// How one interpreter reads its command line.
pub(super) struct Grammar {
    pub(super) family: &'static str,
    /// File names without a version.
    pub(super) names: &'static [&'static str],
    /// First words that only say what to do with the script.
    pub(super) subcommands: &'static [&'static str],
    /// Options after which no script is named: code, a module, standard input.
    pub(super) ends: &'static [&'static str],
    /// Options whose value is the script.
    pub(super) script_options: &'static [&'static str],
    /// Options that take the next word when no value is attached.
    pub(super) takes_word: &'static [&'static str],
    /// Short options that take the rest of their own word and never the next.
    pub(super) takes_rest: &'static str,
    /// Whether short options may share a word.
    pub(super) clusters: bool,
    /// Whether the words for a cluster follow it (`-euo pipefail`, a habit of shells).
    pub(super) words_follow_cluster: bool,
    /// Whether `+x` is an option.
    pub(super) plus_options: bool,
    pub(super) scripts: Scripts,
}

/// Which operand counts as a script.
#[derive(Clone, Copy)]
pub(super) enum Scripts {
    /// Any.
    File,
    /// A value of a script option, or an operand with this ending; others name a class.
    Source(&'static str),
    /// One that is there as a file; others name a task or an address.
    Existing,
}

const PLAIN: Grammar = Grammar {
    family: "",
    names: &[],
    subcommands: &[],
    ends: &[],
    script_options: &[],
    takes_word: &[],
    takes_rest: "",
    clusters: true,
    words_follow_cluster: false,
    plus_options: false,
    scripts: Scripts::File,
};

pub(super) static GRAMMARS: [Grammar; 14] = [
    Grammar {
        family: "python",
        names: &["python", "pypy", "graalpy", "micropython"],
        ends: &["-c", "-m", "-h", "-V", "--help", "--version"],
        takes_word: &["-W", "-X", "--check-hash-based-pycs"],
        ..PLAIN
    },
    Grammar {
        family: "node",
        names: &["node", "nodejs"],
        subcommands: &["inspect"],
        ends: &["-e", "--eval", "-p", "--print", "-pe", "--test", "--run", "-h", "-v", "--help", "--version"],
        takes_word: &[
            "-r",
            "--require",
            "--import",
            "--loader",
            "--experimental-loader",
            "-C",
            "--conditions",
            "--env-file",
            "--env-file-if-exists",
            "--input-type",
            "--inspect-port",
            "--debug-port",
            "--title",
            "--icu-data-dir",
            "--openssl-config",
            "--redirect-warnings",
            "--report-dir",
            "--report-directory",
            "--report-filename",
            "--report-signal",
            "--diagnostic-dir",
            "--dns-result-order",
            "--unhandled-rejections",
            "--trace-event-categories",
            "--trace-event-file-pattern",
            "--tls-cipher-list",
            "--tls-keylog",
            "--heapsnapshot-signal",
            "--max-http-header-size",
            "--secure-heap",
            "--secure-heap-min",
            "--watch-path",
            "--localstorage-file",
            "--experimental-default-type",
            "--disable-warning",
        ],
        clusters: false,
        ..PLAIN
    },
    Grammar {
        family: "deno",
        names: &["deno"],
        subcommands: &["run", "serve"],
        ends: &["-h", "-V", "--help", "--version"],
        takes_word: &[
            "-c",
            "--config",
            "--import-map",
            "--lock",
            "--cert",
            "--seed",
            "-L",
            "--log-level",
            "--location",
            "--ext",
            "--port",
            "--host",
        ],
        clusters: false,
        scripts: Scripts::Existing,
        ..PLAIN
    },
    Grammar {
        family: "bun",
        names: &["bun"],
        subcommands: &["run"],
        ends: &["-e", "--eval", "-p", "--print", "-h", "-v", "--help", "--version"],
        takes_word: &[
            "-r",
            "--preload",
            "--require",
            "--import",
            "--cwd",
            "-c",
            "--config",
            "-d",
            "--define",
            "--env-file",
            "--port",
            "-F",
            "--filter",
        ],
        clusters: false,
        scripts: Scripts::Existing,
        ..PLAIN
    },
    Grammar {
        family: "ruby",
        names: &["ruby", "jruby", "truffleruby"],
        ends: &["-e", "-S", "-h", "--help", "--version"],
        takes_word: &[
            "-I",
            "-r",
            "-C",
            "-E",
            "-X",
            "--encoding",
            "--external-encoding",
            "--internal-encoding",
        ],
        takes_rest: "0FKTWix",
        ..PLAIN
    },
    Grammar {
        family: "perl",
        names: &["perl"],
        ends: &["-e", "-E", "-S", "-h", "-v", "-V", "--help", "--version"],
        takes_word: &["-I"],
        takes_rest: "CDFMimx",
        ..PLAIN
    },
    Grammar {
        family: "php",
        names: &["php", "php-cli", "php-cgi"],
        ends: &["-r", "--run", "-B", "-R", "-E", "-a", "-i", "-m", "-h", "-v"],
        script_options: &["-f", "--file", "-F", "--process-file"],
        takes_word: &[
            "-c",
            "--php-ini",
            "-d",
            "--define",
            "-z",
            "--zend-extension",
            "-t",
            "--docroot",
            "-S",
            "--server",
        ],
        ..PLAIN
    },
    Grammar {
        family: "shell",
        names: &["sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "yash"],
        ends: &["-c", "-s", "--help", "--version"],
        takes_word: &["-o", "-O", "--rcfile", "--init-file"],
        words_follow_cluster: true,
        plus_options: true,
        ..PLAIN
    },
    Grammar {
        family: "fish",
        names: &["fish"],
        ends: &["-c", "--command", "-h", "-v", "--help", "--version"],
        takes_word: &[
            "-C",
            "--init-command",
            "-d",
            "--debug",
            "-o",
            "--debug-output",
            "-f",
            "--features",
            "--profile",
            "--profile-startup",
        ],
        ..PLAIN
    },
    Grammar {
        family: "java",
        names: &["java"],
        ends: &["-m", "--module", "-version", "--version", "-help", "--help", "-h", "-?"],
        script_options: &["-jar"],
        takes_word: &[
            "-cp",
            "-classpath",
            "--class-path",
            "-p",
            "--module-path",
            "--upgrade-module-path",
            "--add-modules",
            "--add-exports",
            "--add-opens",
            "--add-reads",
            "--patch-module",
            "--limit-modules",
            "--enable-native-access",
            "--source",
            "-d",
            "--describe-module",
        ],
        clusters: false,
        scripts: Scripts::Source(".java"),
        ..PLAIN
    },
    Grammar {
        family: "r",
        names: &["Rscript"],
        ends: &["-e", "--help", "--version"],
        takes_word: &["-g"],
        clusters: false,
        ..PLAIN
    },
    Grammar {
        family: "lua",
        names: &["lua", "luajit"],
        ends: &["-v"],
        takes_word: &["-e", "-l", "-j"],
        takes_rest: "O",
        ..PLAIN
    },
    Grammar {
        family: "tcl",
        names: &["tclsh", "wish"],
        takes_word: &["-encoding"],
        clusters: false,
        ..PLAIN
    },
    Grammar {
        family: "julia",
        names: &["julia"],
        ends: &["-e", "--eval", "-E", "--print", "-h", "-v", "--help", "--version"],
        takes_word: &[
            "-L",
            "--load",
            "-t",
            "--threads",
            "-p",
            "--procs",
            "-J",
            "--sysimage",
            "-C",
            "--cpu-target",
        ],
        ..PLAIN
    },
];
