//! Interactive programs in the caller's own terminal: job control, interrupts, sizes, and who has it afterwards.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::{Winsize, openpty};

use crate::support::{Sandbox, User, everyone, has, skip};

/// How long a word may take to appear.
const PATIENCE: Duration = Duration::from_secs(90);

/// A terminal, the user's shell with job control in it, and what was shown so far.
struct Terminal {
    keys: File,
    shown: Receiver<Vec<u8>>,
    seen: String,
    /// What was waited for ends here.
    at: usize,
    shell: Child,
}

impl Terminal {
    /// A shell in the sandbox's place, where `box` runs a command confined.
    fn new(sandbox: &Sandbox) -> Self {
        let size = Winsize { ws_row: 33, ws_col: 77, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).expect("a terminal");
        sandbox.give(nix::unistd::ttyname(&pty.slave).expect("a name"));
        let run = sandbox.run_command(&["-q"], &["x"]);
        let words = std::iter::once(run.get_program()).chain(run.get_args());
        let mut words: Vec<_> = words.map(|word| format!("'{}'", word.to_str().expect("a word"))).collect();
        words.pop();
        sandbox.file("rc", format!("PS1='host$ '\nbox() {{ {} \"$@\"; }}\n", words.join(" ")));
        let mut shell = Command::new("setsid");
        shell.args(["--ctty", "bash", "--noprofile", "--rcfile", "rc", "-i"]);
        shell.current_dir(sandbox.path("")).env_clear().env("TERM", "xterm");
        shell.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let side = || std::process::Stdio::from(pty.slave.try_clone().expect("dup"));
        let shell = shell.stdin(side()).stdout(side()).stderr(side()).spawn().expect("a shell");
        let keys = File::from(pty.master);
        fcntl(&keys, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).expect("close-on-exec");
        let mut screen = keys.try_clone().expect("dup");
        let (sender, shown) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        let mut terminal = Self { keys, shown, seen: String::new(), at: 0, shell };
        terminal.sees("host$ ");
        terminal
    }

    fn types(&mut self, keys: &str) -> &mut Self {
        self.keys.write_all(keys.as_bytes()).expect("typed");
        self
    }

    /// A key that interrupts or stops, pressed when the shell and its job have come to rest: the line discipline
    /// signals who is in the foreground just then.
    fn presses(&mut self, key: &str) -> &mut Self {
        std::thread::sleep(Duration::from_millis(300));
        self.types(key)
    }

    /// Waits until that is shown, after what was waited for before.
    fn sees(&mut self, words: &str) -> &mut Self {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.seen[self.at..].find(words) {
                self.at += at + words.len();
                return self;
            }
            let left = end.saturating_duration_since(Instant::now());
            let Ok(more) = self.shown.recv_timeout(left) else {
                panic!("`{words}` was not shown: {:?}", &self.seen);
            };
            self.seen.push_str(&String::from_utf8_lossy(&more));
        }
    }

    fn resize(&mut self, rows: u16, columns: u16) -> &mut Self {
        let mut stty = Command::new("stty");
        stty.args(["rows", &rows.to_string(), "cols", &columns.to_string()]);
        stty.stdin(self.keys.try_clone().expect("dup"));
        assert!(stty.status().expect("stty").success());
        self
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

fn with(programs: &[&str], test: impl Fn(&Sandbox, &mut Terminal)) {
    if let Some(missing) = programs.iter().chain(&["bash", "setsid", "stty"]).find(|name| !has(name)) {
        return skip("a terminal", &format!("there is no {missing}"));
    }
    everyone(|sandbox| {
        sandbox.policy("read: .\nwrite: ./out\nexec: /**").directory("out");
        test(sandbox, &mut Terminal::new(sandbox));
    });
}

#[test]
fn the_terminal_has_a_name_a_size_and_settings() {
    with(&["python3"], |sandbox, terminal| {
        terminal.types("box sh -c 'tty && stty size && stty -echo && stty echo && echo fine >$(tty)'\r");
        terminal.sees("/dev/console").sees("33 77").sees("fine").sees("host$ ");
        let program = "import os, signal\nsize = os.get_terminal_size\ntold = []\n\
             signal.signal(28, lambda *all: told.append(size()))\nprint(size(), flush=True)\n\
             while not any(one.columns == 99 for one in told): signal.pause()\nprint(told[-1])\n";
        sandbox.file("sizes.py", program);
        terminal.types("box python3 sizes.py\r").sees("lines=33");
        terminal.resize(44, 99).sees("columns=99, lines=44").sees("host$ ");
    });
}

#[test]
fn a_shell_has_job_control_and_gives_the_terminal_back() {
    with(&["dash"], |sandbox, terminal| {
        let is_root = sandbox.user == User::Caller && nix::unistd::geteuid().is_root();
        let prompt = if is_root { "# " } else { "$ " };
        for shell in ["bash --norc", "dash"] {
            terminal.types(&format!("box {shell} -i; echo code=$?\r")).sees("code=").sees(prompt);
            terminal.types("PS1='inside> '\r").sees("inside> ").sees("inside> ");
            let sleeps = "sh -c 'echo begu''n; sleep 300'\r";
            terminal.types(sleeps).sees("begun").presses("\u{3}").sees("inside> ");
            terminal.types(sleeps).sees("begun").presses("\u{1a}").sees("Stopped").sees("inside> ");
            terminal.types("fg\r").presses("\u{3}").sees("inside> ");
            terminal.types("exit 3\r").sees("code=3").sees("host$ ");
            assert!(!terminal.seen.contains("process group"), "{}", terminal.seen);
            terminal.types("echo stil''l\r").sees("still").sees("host$ ");
        }
    });
}

#[test]
fn interrupts_and_stops_reach_the_command() {
    with(&[], |_, terminal| {
        terminal
            .types("box sh -c 'trap \"echo go''t; exit 7\" INT; echo begu''n; sleep 300'; echo code=$?\r");
        terminal.sees("code=").sees("begun").presses("\u{3}").sees("got").sees("code=7").sees("host$ ");
        terminal.types("box sh -c 'echo begu''n; read line; echo read $line'\r").sees("begun");
        terminal.presses("\u{1a}").sees("Stopped").sees("host$ ");
        terminal.types("fg\r").sees("agentbox").types("word\r").sees("read word").sees("host$ ");
    });
}

#[test]
fn what_ends_in_the_foreground_leaves_the_terminal_to_the_caller() {
    with(&["python3"], |_, terminal| {
        // The caller is a script, which does not take it by itself.
        let program =
            "import os,signal;os.setpgid(0,0);signal.signal(22,1);os.tcsetpgrp(0,os.getpid());print(1234*2)";
        terminal.types(&format!("(box python3 -c '{program}'; read line; echo read $line)\r"));
        terminal.sees("2468").types("word\r").sees("read word").sees("host$ ");
    });
}

/// The caller's group is given the terminal by who has it, and by nobody else.
#[test]
fn nobody_in_the_background_gives_the_terminal_away() {
    with(&["python3"], |sandbox, terminal| {
        let program = "import os, signal, time\nsignal.signal(signal.SIGTTOU, signal.SIG_IGN)\n\
             if os.fork() == 0:\n    os.setpgid(0, 0)\n    os.tcsetpgrp(0, os.getpid())\n    time.sleep(0.5)\n    os._exit(0)\n\
             time.sleep(0.2)\nhad = os.tcgetpgrp(0)\nos.setpgid(0, 0)\n\
             try: os.tcsetpgrp(0, 0)\nexcept OSError as error: print(error.strerror)\n\
             print('kept', os.tcgetpgrp(0) == had)\nos.tcsetpgrp(0, os.getpid()); os.tcsetpgrp(0, 0)\n\
             print('given back', os.tcgetpgrp(0))\n";
        sandbox.file("groups.py", program);
        terminal
            .types("box python3 groups.py\r")
            .sees("not permitted")
            .sees("kept True")
            .sees("given back 0");
        terminal.sees("host$ ").types("echo stil''l\r").sees("still");
    });
}

/// The kernel lets whoever ignores SIGTTOU take the terminal, and with it what is typed next.
#[test]
fn nobody_in_the_background_takes_the_terminal_from_the_shell() {
    with(&["python3"], |sandbox, terminal| {
        let program = "import os, signal\nsignal.signal(signal.SIGTTOU, signal.SIG_IGN)\n\
             tty = os.open('/dev/tty', os.O_RDWR)\nos.setpgid(0, 0)\n\
             try: os.tcsetpgrp(tty, os.getpid()); print('st' + 'olen')\n\
             except OSError as error: print('n' + 'ot stolen:', error.strerror)\n\
             open('out/tried', 'w')\n";
        sandbox.file("steal.py", program);
        terminal.types("box python3 steal.py &\r").sees("not stolen: Operation not permitted");
        terminal.types("wait; echo stil''l\r").sees("still");
        assert!(sandbox.path("out/tried").exists());
        // Brought to the foreground, it has it.
        terminal.types("box sh -c 'sleep 1; python3 steal.py' & fg\r").sees("stolen").sees("host$ ");
        terminal.types("echo stil''l\r").sees("still");
    });
}

#[test]
fn editors_pagers_and_prompts_work() {
    with(&["less", "vim", "python3"], |_, terminal| {
        terminal.types("seq 200 >out/text; box less out/text; echo code=$?\r").sees("code=").sees("32");
        terminal.types(" ").sees("60").types("q").sees("code=0").sees("host$ ");
        terminal.types("box vim -u NONE out/written; echo code=$?\r").sees("code=").sees("written");
        terminal.types("ihello\u{1b}:wq\r").sees("code=0").sees("host$ ");
        terminal.types("cat out/written\r").sees("hello").sees("host$ ");
        terminal.types("box python3 -q; echo code=$?\r").sees("code=").sees(">>> ");
        terminal.types("6*7\r").sees("42").sees(">>> ");
        terminal
            .types("import time; time.sleep(300)\r")
            .sees("(300)")
            .presses("\u{3}")
            .sees("KeyboardInterrupt");
        terminal.sees(">>> ").types("exit()\r").sees("code=0").sees("host$ ");
    });
}

#[test]
fn raw_mode_is_set_and_left() {
    with(&["python3", "node"], |_, terminal| {
        let python = "import sys,termios,tty;f=termios.tcgetattr(0);tty.setraw(0);print(1234*2,end=\"\",flush=True);\
             k=sys.stdin.buffer.raw.read(1);termios.tcsetattr(0,1,f);print(k)";
        terminal.types(&format!("box python3 -c '{python}'; stty -a\r")).sees("2468").types("\u{3}");
        terminal.sees("b'\\x03'").sees(" icanon").sees("host$ ");
        let node = "process.stdin.setRawMode(true).once(\"data\",k=>{process.stdin.setRawMode(false);\
             console.log(`got ${[...k]} ${process.stdout.columns}`);process.exit()});console.log(1234*2)";
        terminal.types(&format!("box node -e '{node}'; stty -a\r")).sees("2468").types("\u{3}");
        terminal.sees("got 3 77").sees(" icanon").sees("host$ ");
    });
}

/// The kernel tells the leader of the session alone (tty_signal_session_leader): `ssh -t HOST agentbox run …`, a window
/// that was opened for it.
#[test]
fn a_terminal_that_goes_away_ends_the_command() {
    if !has("setsid") {
        return skip("a terminal", "there is no setsid");
    }
    everyone(|sandbox| {
        sandbox.policy("exec: sleep");
        for (program, code) in [
            ("echo ready; sleep 300 & sleep 300", 129),
            ("trap 'exit 7' HUP; echo ready; while :; do sleep 0.1; done", 7),
        ] {
            let pty = openpty(None, None).expect("a terminal");
            let mut screen = File::from(pty.master);
            fcntl(&screen, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).expect("close-on-exec");
            sandbox.give(nix::unistd::ttyname(&pty.slave).expect("a name"));
            let run = sandbox.run_command(&["-q"], &["sh", "-c", program]);
            let mut leader = Command::new("setsid");
            leader.arg("--ctty").arg(run.get_program()).args(run.get_args());
            leader.current_dir(sandbox.path("")).env_clear();
            leader.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
            let side = || std::process::Stdio::from(pty.slave.try_clone().expect("dup"));
            let mut leader = leader.stdin(side()).stdout(side()).stderr(side()).spawn().expect("setsid");
            drop(pty.slave);
            let mut seen = String::new();
            let mut buffer = [0; 512];
            while !seen.contains("ready") {
                let count = screen.read(&mut buffer).expect("shown");
                seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
            drop(screen);
            let end = Instant::now() + PATIENCE;
            let status = loop {
                if let Some(status) = leader.try_wait().expect("waited") {
                    break status;
                }
                if Instant::now() > end {
                    let _ = leader.kill();
                    panic!("`{program}` goes on without its terminal");
                }
                std::thread::sleep(Duration::from_millis(20));
            };
            assert_eq!(status.code(), Some(code), "{program}");
        }
    });
}

/// The kernel looks at the low half of the number alone (CVE-2019-10063).
#[test]
fn nothing_is_typed_into_the_terminal() {
    with(&["python3"], |sandbox, terminal| {
        let program = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n\
             for high in (0, 1 << 32, 0xffffffff << 32):\n    for low in (0x5412, 0x541c, 0x5423):\n        \
             print(libc.syscall(16, 0, ctypes.c_ulong(high | low), b'x'), os.strerror(ctypes.get_errno()))\n\
             print('do' + 'ne')\n";
        sandbox.file("typing.py", program);
        terminal.types("box python3 typing.py\r").sees("done").sees("host$ ");
        let told = terminal.seen.matches("-1 Operation not permitted").count();
        assert_eq!(told, 9, "{}", terminal.seen);
    });
}

/// No key starts it again: not even that of flow control.
#[test]
fn the_terminal_is_not_stopped_for_good() {
    with(&["python3"], |_, terminal| {
        terminal.types("box python3 -c 'import termios as t; t.tcflow(0, t.TCOOFF)'; echo co''de=$?\r");
        terminal.sees("Operation not permitted").sees("code=1").sees("host$ ");
    });
}

/// The shell and what it starts next share the flags of the terminal.
#[test]
fn reads_of_the_terminal_wait_again_after_the_run() {
    with(&["python3"], |_, terminal| {
        terminal.types("box python3 -c 'import os; os.set_blocking(0, False); print(os.get_blocking(0))'\r");
        terminal.sees("False").sees("host$ ");
        terminal.types("python3 -c 'import os; print(\"blo\" + \"cking\", os.get_blocking(0))'\r");
        terminal.sees("blocking True").sees("host$ ");
    });
}

/// Where the launcher opens every file, too: programs that ask for a password open it, in whatever terminal they are.
#[test]
fn dev_tty_is_the_terminal_of_ones_own_session() {
    let script = "import fcntl, os, pty, termios
def inside(slave):
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    terminal = os.open('/dev/tty', os.O_RDWR)
    os.write(terminal, b'password? ')
    os.write(terminal, b'got ' + os.read(terminal, 100))
    os._exit(0)
def ask(master, slave):
    if os.fork() == 0: inside(slave)
    os.close(slave)
    seen = b''
    while not seen.endswith(b'password? '): seen += os.read(master, 100)
    os.write(master, b'secret\\n')
    while b'got secret' not in seen: seen += os.read(master, 100)
    os.wait()
    print('asked', flush=True)
ask(*pty.openpty())
# One that has the number of the caller's.
wanted = os.minor(os.stat('/dev/console').st_rdev) if os.path.exists('/dev/console') else 1
others = [pty.openpty()]
while os.minor(os.fstat(others[-1][1]).st_rdev) < wanted: others.append(pty.openpty())
ask(*others.pop())
if os.fork() == 0:
    os.setsid()
    try: os.open('/dev/tty', os.O_RDWR)
    except OSError as error: print('none:', error.strerror, flush=True)
    os._exit(0)
os.wait()
print('do' + 'ne')
";
    with(&["python3"], |sandbox, terminal| {
        sandbox.policy("read: .\nwrite: ./out\ndeny: read **/.env\nexec: /**");
        sandbox.file("ask.py", script);
        for _ in 0..2 {
            terminal.types("box python3 ask.py\r").sees("asked").sees("asked");
            terminal.sees("none: No such device or address").sees("done").sees("host$ ");
        }
        sandbox
            .run(&["python3", "ask.py"])
            .exits(0)
            .prints("asked\nasked\nnone: No such device or address\ndone\n");
    });
}
