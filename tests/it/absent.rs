//! Places that rules name and that are not there when a run starts.

use crate::support::everyone;

#[test]
fn what_is_neither_a_file_nor_a_directory_is_refused_there() {
    everyone(|sandbox| {
        sandbox.policy("write: ./new\nexec: python3");
        for act in [
            "os.symlink('elsewhere', 'new')",
            "os.mkfifo('new')",
            "socket.socket(socket.AF_UNIX).bind('new')",
        ] {
            let program = format!(
                "import os, socket\ntry: {act}\nexcept PermissionError: print('refused', os.path.lexists('new'))\n\
                 os.mkdir('new'); open('new/f', 'w').write('x')"
            );
            let ran = sandbox.python(&program);
            ran.exits(0).prints("refused False\n").denied("write", "new");
            let trace = sandbox.trace();
            let again = sandbox.agentbox(&["replay", "-t", trace.to_str().expect("text")]);
            again.exits(0).prints(&ran.stdout).complains("replay ok");
            assert_eq!(std::fs::read_to_string(sandbox.path("new/f")).expect("is there"), "x");
            std::fs::remove_dir_all(sandbox.path("new")).expect("removed");
        }
    });
}

#[test]
fn one_inside_another_comes_with_it_and_files_come_by_any_call() {
    everyone(|sandbox| {
        sandbox.policy("write: ./new, ./new/in, ./new/in/deep, ./file\nexec: python3");
        let ran = sandbox.python(
            "import os; os.makedirs('new/in/deep'); print(open('new/in/deep/f', 'w').write('x')); os.mknod('file')",
        );
        ran.exits(0).prints("1\n").denied_nothing();
        assert_eq!(std::fs::read_to_string(sandbox.path("new/in/deep/f")).expect("is there"), "x");
        assert!(sandbox.path("file").is_file());
        let trace = sandbox.trace();
        let again = sandbox.agentbox(&["replay", "-t", trace.to_str().expect("text")]);
        again.exits(0).prints(&ran.stdout).complains("replay ok");
    });
}
