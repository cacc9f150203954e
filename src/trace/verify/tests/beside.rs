//! Checks what is verified beside the lines: blobs, and a head that is known from elsewhere.

use super::*;

#[test]
fn a_missing_or_altered_blob_is_found() {
    let sample = Sample::new();
    let stored = std::fs::read(&sample.blob).expect("it reads");
    let sha256 = sample.blob.file_stem().expect("a name").to_str().expect("UTF-8").to_owned();
    let altered = tampered(8, Tamper::BlobAltered { sha256: sha256.clone() });
    for other in [&b"hellO"[..], b"hello more", b"", b"hell"] {
        std::fs::write(&sample.blob, zstd::encode_all(other, 1).expect("zstd")).expect("written");
        assert_eq!(sample.verify().outcome, altered, "{other:?}");
    }
    std::fs::write(&sample.blob, b"not zstd").expect("written");
    assert_eq!(sample.verify().outcome, altered);
    // A bomb is not unpacked: what goes beyond the recorded size is not read.
    std::fs::write(
        &sample.blob,
        zstd::encode_all(std::io::Read::take(std::io::repeat(0), 1 << 30), 1).expect("zstd"),
    )
    .expect("written");
    assert_eq!(sample.verify().outcome, altered);

    let missing = tampered(8, Tamper::BlobMissing { sha256 });
    std::fs::remove_file(&sample.blob).expect("removed");
    assert_eq!(sample.verify().outcome, missing);
    let elsewhere = sample.path.with_file_name("elsewhere");
    std::fs::write(&elsewhere, stored).expect("written");
    std::os::unix::fs::symlink(&elsewhere, &sample.blob).expect("linked");
    assert_eq!(sample.verify().outcome, missing);
}

#[test]
fn a_pinned_head_finds_a_rewritten_trace() {
    let sample = Sample::new();
    let pinned = Expectation { head: Some(sample.verify().head) };
    assert_eq!(verify(&sample.path, &pinned).expect("a trace").outcome, Outcome::Sealed);

    let rewritten = chained(&[Event::new(Kind::Meta, "run.start"), Event::new(Kind::Meta, "run.end")], true);
    sample.write(rewritten.concat());
    assert_eq!(sample.verify().outcome, Outcome::Sealed);
    let found = verify(&sample.path, &pinned).expect("a trace");
    assert_eq!(found.outcome, tampered(2, Tamper::OtherHead));
    sample.write(sample.lines[..9].concat());
    assert_eq!(verify(&sample.path, &pinned).expect("a trace").outcome, tampered(8, Tamper::OtherHead));
}
