//! Bodies on disk and in memory, compressed and as they are.

use std::fs::File;
use std::os::fd::OwnedFd;

use super::held::room_for;
use super::*;

fn store() -> (tempfile::TempDir, BlobStore) {
    let directory = tempfile::tempdir().expect("a directory");
    let fd = OwnedFd::from(File::open(directory.path()).expect("it opens"));
    (directory, BlobStore::new(Place::made(fd), None))
}

fn names(directory: &tempfile::TempDir) -> Vec<String> {
    let entries = std::fs::read_dir(directory.path()).expect("it lists");
    entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8")).collect()
}

#[test]
fn a_body_is_named_by_its_content() {
    let (directory, store) = store();
    for content in [b"hello\n".repeat(3), b"0123456789abcdef".repeat(100_000)] {
        let mut writer = store.start();
        for part in content.chunks(1000) {
            writer.write_all(part).expect("it writes");
        }
        let blob = writer.finish().expect("it is stored");
        assert_eq!(blob.size, u64::try_from(content.len()).expect("fits"));
        assert_eq!(blob.sha256, hex(&Sha256::digest(&content)));
        let file = File::open(directory.path().join(blob_name(&blob.sha256))).expect("it is there");
        assert_eq!(zstd::decode_all(&file).expect("zstd"), content);
        assert_eq!(std::os::unix::fs::MetadataExt::mode(&file.metadata().expect("stat")) & 0o777, 0o600);
    }
}

#[test]
fn the_same_body_is_stored_once_and_a_dropped_one_not_at_all() {
    let (directory, store) = store();
    for size in [10, 1_000_000] {
        for _ in 0..2 {
            let mut writer = store.start();
            writer.write_all(&vec![7; size]).expect("it writes");
            writer.finish().expect("it is stored");
        }
        let mut dropped = store.start();
        dropped.write_all(&vec![8; size]).expect("it writes");
    }
    assert_eq!(names(&directory).len(), 2, "{:?}", names(&directory));
}

#[test]
fn a_hurried_body_is_read_like_any_other() {
    let (directory, store) = store();
    for size in [0, 1, 1000, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE] {
        let content: Vec<u8> = (0..size).map(|n| u8::try_from(n % 251).expect("small")).collect();
        let mut writer = store.start();
        for (number, part) in content.chunks(PIECE / 2 + 7).enumerate() {
            writer.hurry(number % 2 == 0);
            writer.write_all(part).expect("it writes");
        }
        writer.hurry(true);
        let blob = writer.finish().expect("it is stored");
        let file = File::open(directory.path().join(blob_name(&blob.sha256))).expect("it is there");
        assert_eq!(zstd::decode_all(&file).expect("zstd"), content, "{size}");
    }
}

#[test]
fn what_compression_does_not_shorten_is_not_compressed_again_at_once() {
    let (directory, store) = store();
    let mut dense = vec![0; 2 * PIECE];
    getrandom::fill(&mut dense).expect("random bytes");
    let (mut writer, text) = (store.start(), vec![b'a'; 20 * PIECE]);
    writer.write_all(&dense[..PIECE]).expect("it writes");
    assert_eq!(writer.dense, DENSE);
    writer.write_all(&dense[PIECE..]).expect("it writes");
    assert_eq!(writer.dense, DENSE - 1);
    writer.write_all(&text).expect("it writes");
    assert_eq!(writer.dense, 0);
    let blob = writer.finish().expect("it is stored");
    let file = File::open(directory.path().join(blob_name(&blob.sha256))).expect("it is there");
    assert!(file.metadata().expect("stat").len() < 9 * PIECE as u64, "text is compressed again");
    assert!(zstd::decode_all(&file).expect("zstd") == [dense, text].concat());
}

#[test]
fn many_bodies_at_once_hold_little() {
    let (directory, store) = store();
    let BlobStore::Directory(inner) = &store else { panic!("a directory") };
    let mut writers: Vec<_> = (0..200_u8).map(|number| (number, store.start())).collect();
    for round in 0..40 {
        for (number, writer) in &mut writers {
            writer.write_all(&[round ^ *number; 1000]).expect("it writes");
        }
        let held = inner.held.load(Ordering::Relaxed);
        assert!(held <= HELD + PIECE, "{held} bytes are held");
    }
    for (_, writer) in writers {
        let blob = writer.finish().expect("stored");
        let file = File::open(directory.path().join(blob_name(&blob.sha256))).expect("it is there");
        let content = zstd::decode_all(&file).expect("zstd");
        assert_eq!((blob.size, blob.sha256), (40_000, hex(&Sha256::digest(&content))));
    }
    assert_eq!(inner.held.load(Ordering::Relaxed), 0);
}

#[test]
fn what_is_stored_of_a_long_body_is_held_no_longer() {
    let (_directory, store) = store();
    let BlobStore::Directory(inner) = &store else { panic!("a directory") };
    for part in [1000, PIECE / 8, PIECE / 8 + 7, PIECE - 1, PIECE, 3 * PIECE + 5] {
        let mut writer = store.start_held();
        for round in 0..200 {
            let held = room_for(part, round == 0);
            store.hold(held).expect("there is room");
            writer.write_held(&vec![7; part], held).expect("it writes");
            let most = room_for(writer.held.len(), true);
            let needed = inner.ballast.needed();
            assert!(needed <= most + PIECE as u64, "{needed} bytes are held for pieces of {part}");
            assert!(needed >= writer.held.len() as u64, "{needed} bytes are held for {most}");
        }
        writer.finish().expect("it is stored");
        assert_eq!(inner.ballast.needed(), 0);
    }
}

#[test]
fn memory_keeps_the_content() {
    let store = BlobStore::in_memory();
    let mut writer = store.start();
    writer.write_all(b"abc").expect("it writes");
    let blob = writer.finish().expect("it is stored");
    assert_eq!(store.content(&blob.sha256).as_deref(), Some(&b"abc"[..]));
}
