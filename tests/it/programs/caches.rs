//! Installers whose cache lies in another root than what they install: links between the two answer
//! EXDEV, and they copy.

use super::with_literal;
use crate::support::{Ran, Sandbox, skip};

const WHEEL: &str = "import zipfile
with zipfile.ZipFile('tiny-1-py3-none-any.whl', 'w') as wheel:
    wheel.writestr('tiny.py', 'WORD = \"installed\"')
    wheel.writestr('tiny-1.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1\\n')
    wheel.writestr('tiny-1.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr('tiny-1.dist-info/RECORD', 'tiny.py,,\\ntiny-1.dist-info/METADATA,,\\n')
";

/// Two roots that may be written, and the words after it run in the first.
fn install(sandbox: &Sandbox, script: &str) -> Ran {
    sandbox.policy("read: .\nwrite: ./out\nwrite: ./cache\nexec: /**\nenv: PNPM_HOME").directory("cache");
    let check = "cd out; touch a; ln a ../cache/a 2>/dev/null && exit 78; rm a";
    sandbox.run(&["sh", "-ec", &format!("{check}\n{script}")])
}

fn wheel(sandbox: &Sandbox) {
    let mut python = std::process::Command::new("python3");
    python.args(["-c", WHEEL]).current_dir(sandbox.path(""));
    assert!(python.status().expect("python3").success());
}

#[test]
fn pip_copies() {
    with_literal(&["python3"], |sandbox| {
        wheel(sandbox);
        let script = "python3 -c 'import pip' 2>/dev/null || exit 77
            for time in 1 2; do python3 -m pip install -q --no-index --upgrade --cache-dir ../cache --target site \
                ../tiny-1-py3-none-any.whl; done
            PYTHONPATH=site python3 -c 'import tiny; print(tiny.WORD)'";
        let ran = install(sandbox, script);
        if ran.code == 77 {
            return skip("pip", "it is not installed");
        }
        ran.exits(0).prints("installed\n");
    });
}

#[test]
fn uv_copies() {
    with_literal(&["uv", "python3"], |sandbox| {
        wheel(sandbox);
        let script = "uv --cache-dir ../cache --offline venv -q v
            for time in 1 2; do rm -rf site; uv --cache-dir ../cache --offline pip install -q --no-index \
                --python v/bin/python --target site ../tiny-1-py3-none-any.whl; done
            PYTHONPATH=site python3 -c 'import tiny; print(tiny.WORD)'";
        install(sandbox, script).exits(0).prints("installed\n");
    });
}

#[test]
fn pnpm_copies() {
    with_literal(&["pnpm", "node", "tar"], |sandbox| {
        sandbox.file("package/package.json", r#"{"name":"tiny","version":"1.0.0","main":"i.js"}"#);
        sandbox.file("package/i.js", "module.exports = 'installed'");
        let script = "export PNPM_HOME=$PWD/../cache/home
            (cd ..; tar czf cache/tiny.tgz package)
            echo '{\"name\":\"a\",\"version\":\"1.0.0\",\"dependencies\":{\"tiny\":\"file:../cache/tiny.tgz\"}}' >package.json
            for time in 1 2; do rm -rf node_modules; pnpm install --silent --offline --store-dir ../cache/store; done
            node -e 'console.log(require(\"tiny\"))'";
        install(sandbox, script).exits(0).prints("installed\n");
    });
}
