//! What a replay copies out of what it wrote (`replay --keep`).

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::{everyone, until};

#[test]
fn holes_are_kept_as_holes() {
    everyone(|sandbox| {
        sandbox.policy("write: ./out\nexec: python3");
        sandbox.directory("out");
        let script = "f = open('out/q', 'w'); f.truncate(256 << 20); f.seek(128 << 20); f.write('middle')";
        sandbox.run(&["python3", "-c", script]).exits(0);
        let (trace, kept) = (sandbox.trace(), sandbox.beside("kept"));
        let [trace, named] = [&trace, &kept].map(|path| path.to_str().expect("text"));
        sandbox.agentbox(&["replay", "-t", trace, "--keep", named]).exits(0);
        let whole = fs::canonicalize(sandbox.path("out")).expect("is there").join("q");
        let copy = fs::File::open(kept.join(whole.strip_prefix("/").expect("absolute"))).expect("is there");
        let status = copy.metadata().expect("its status");
        assert_eq!(status.len(), 256 << 20);
        assert!(status.blocks() * 512 < 1 << 20, "{status:?}");
        let mut middle = [0; 7];
        copy.read_exact_at(&mut middle, 128 << 20).expect("reads");
        assert_eq!(&middle, b"middle\0");
    });
}

#[test]
fn what_a_mode_forbids_to_read_is_kept_as_well() {
    everyone(|sandbox| {
        sandbox.policy("write: ./out\nexec: python3");
        sandbox.directory("out");
        let script = "import os; os.mkdir('out/d'); f = open('out/d/q', 'w'); f.write('kept'); f.close(); \
                      os.chmod('out/d/q', 0)";
        sandbox.run(&["python3", "-c", script]).exits(0);
        let (trace, kept) = (sandbox.trace(), sandbox.beside("kept"));
        let [trace, named] = [&trace, &kept].map(|path| path.to_str().expect("text"));
        sandbox.agentbox(&["replay", "-t", trace, "--keep", named]).exits(0);
        let whole = fs::canonicalize(sandbox.path("out")).expect("is there").join("d/q");
        let copy = kept.join(whole.strip_prefix("/").expect("absolute"));
        assert_eq!(fs::metadata(&copy).expect("is there").mode() & 0o777, 0);
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o600)).expect("it is ours");
        assert_eq!(fs::read_to_string(copy).expect("reads"), "kept");
    });
}

#[test]
fn what_a_mode_forbids_to_read_is_compared() {
    everyone(|sandbox| {
        sandbox.policy("write: ./out\nexec: python3");
        sandbox.directory("out");
        let script = "import os, time; f = open('out/a', 'w'); os.chmod('out/a', 0); \
                      f.write(str(time.clock_gettime_ns(time.CLOCK_PROCESS_CPUTIME_ID)))";
        sandbox.run(&["python3", "-c", script]).exits(0);
        let trace = sandbox.trace();
        sandbox.agentbox(&["replay", "-t", trace.to_str().expect("text")]).exits(1).complains("out/a");
    });
}

#[test]
fn a_signal_ends_the_copy_and_leaves_nothing_of_it() {
    everyone(|sandbox| {
        sandbox.policy("write: ./out\nexec: python3");
        sandbox.directory("out");
        // More than its reader takes: the launcher waits for that when the run has ended.
        let script = "open('out/q', 'w').write('content'); print('x' * 100000)";
        sandbox.run(&["python3", "-c", script]).exits(0);
        let (trace, kept) = (sandbox.trace(), sandbox.beside("kept"));
        let [trace, named] = [&trace, &kept].map(|path| path.to_str().expect("text"));
        let mut child = sandbox.command(&["replay", "-t", trace, "--keep", named]).spawn().expect("starts");
        let mut stdout = child.stdout.take().expect("a pipe");
        stdout.read_exact(&mut [0]).expect("it runs");
        let descriptors = format!("/proc/{}/fd", child.id());
        let is_supervised = || {
            let all = fs::read_dir(&descriptors).expect("its descriptors").flatten();
            all.filter_map(|entry| fs::read_link(entry.path()).ok())
                .any(|target| target.to_string_lossy().contains("seccomp notify"))
        };
        until("the run has ended", || !is_supervised());
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).expect("signalled");
        drop(stdout);
        let output = child.wait_with_output().expect("ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(143), "{said}");
        assert!(said.contains("SIGTERM came before everything was copied out"), "{said}");
        assert_eq!(fs::read_dir(&kept).expect("it lists").count(), 0);
    });
}
