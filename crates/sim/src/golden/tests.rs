//! The judge is judged: the comparison finds every difference it should, on a directory of the host.

use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

use super::*;

/// A tree with one of each that needs no privilege.
fn make_tree(root: &Path) {
    std::fs::create_dir_all(root.join("d/e")).unwrap();
    std::fs::write(root.join("file"), b"some content").unwrap();
    std::fs::write(root.join("empty"), b"").unwrap();
    std::fs::hard_link(root.join("file"), root.join("d/link")).unwrap();
    symlink("no/such/thing", root.join("d/e/symlink")).unwrap();
    let sparse = std::fs::File::create(root.join("sparse")).unwrap();
    sparse.write_all_at(&[7; 5000], 1 << 20).unwrap();
    sparse.set_len(3 << 20).unwrap();
    let huge = std::fs::File::create(root.join("huge")).unwrap();
    huge.write_all_at(b"far away", (100 << 20) + 4095).unwrap();
    huge.set_len((200 << 20) + 5).unwrap();
}

fn pool_at(root: &Path) -> MountedPool {
    MountedPool::new("pool", [("pool".to_owned(), root.to_path_buf())])
}

fn manifest_of(root: &Path) -> Manifest {
    // Through JSON, as a real one.
    let text = serde_json::to_string(&describe(&pool_at(root)).unwrap()).unwrap();
    Manifest::parse(&text).unwrap()
}

#[test]
fn a_tree_is_the_same_as_itself() {
    let directory = tempfile::tempdir().unwrap();
    make_tree(directory.path());
    let manifest = manifest_of(directory.path());
    let report = compare(&pool_at(directory.path()), &manifest, Compare::STRICT).unwrap();
    assert_eq!(report.differences, Vec::<String>::new());
    assert!(report.is_same());
    assert_eq!(report.files_compared, manifest.files());
    assert_eq!(report.files_compared, 9);
}

#[test]
fn every_kind_of_difference_is_found() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 9] = [
        ("sha256", |root| std::fs::write(root.join("file"), b"sOme content").unwrap()),
        ("size", |root| std::fs::write(root.join("empty"), b"x").unwrap()),
        ("mode", |root| std::fs::set_permissions(root.join("d"), PermissionsExt::from_mode(0o700)).unwrap()),
        ("nlink", |root| std::fs::remove_file(root.join("d/link")).unwrap()),
        ("missing", |root| std::fs::remove_dir_all(root.join("d/e")).unwrap()),
        ("not in the manifest", |root| std::fs::write(root.join("new"), b"").unwrap()),
        ("target", |root| {
            std::fs::remove_file(root.join("d/e/symlink")).unwrap();
            symlink("no/such/thinh", root.join("d/e/symlink")).unwrap();
        }),
        ("pages_sha256", |root| {
            let file = std::fs::OpenOptions::new().write(true).open(root.join("huge")).unwrap();
            file.write_all_at(b"F", (100 << 20) + 4095).unwrap();
        }),
        ("data", |root| {
            let file = std::fs::OpenOptions::new().write(true).open(root.join("sparse")).unwrap();
            file.write_all_at(&[0; 65536], 2 << 20).unwrap();
        }),
    ];
    for (expected, change) in changes {
        let directory = tempfile::tempdir().unwrap();
        make_tree(directory.path());
        let manifest = manifest_of(directory.path());
        change(directory.path());
        let report = compare(&pool_at(directory.path()), &manifest, Compare::STRICT).unwrap();
        assert!(!report.is_same(), "{expected}: not noticed");
        assert!(report.differences.iter().any(|line| line.contains(expected)), "{expected}: {:?}", report.differences);
    }
}

#[test]
fn a_large_directory_is_summed_up_and_still_compared() {
    let directory = tempfile::tempdir().unwrap();
    for number in 0..3100 {
        std::fs::write(directory.path().join(format!("f{number}")), number.to_string()).unwrap();
    }
    let manifest = manifest_of(directory.path());
    let files = manifest.datasets[0].files.as_ref().unwrap();
    assert_eq!(files.len(), 1);
    assert_eq!(files[0].big.as_ref().unwrap().entries, 3100);
    assert!(compare(&pool_at(directory.path()), &manifest, Compare::STRICT).unwrap().is_same());
    std::fs::write(directory.path().join("f1717"), b"717!").unwrap();
    let report = compare(&pool_at(directory.path()), &manifest, Compare::CONTENTS).unwrap();
    assert!(report.differences.iter().any(|line| line.contains("big")), "{:?}", report.differences);
}

#[test]
fn a_missing_dataset_is_a_difference_and_an_empty_comparison_is_no_success() {
    let directory = tempfile::tempdir().unwrap();
    let mut manifest = manifest_of(directory.path());
    manifest.datasets[0].name = "pool/other".to_owned();
    let report = compare(&pool_at(directory.path()), &manifest, Compare::STRICT).unwrap();
    assert_eq!(report.differences_found, 2, "{:?}", report.differences);
    manifest.datasets.clear();
    let nothing = MountedPool::new("pool", []);
    let report = compare(&nothing, &manifest, Compare::STRICT).unwrap();
    assert!(report.differences.is_empty() && !report.is_same());
}

#[test]
fn the_pools_in_the_project_unpack_and_their_images_are_whole() {
    use sha2::{Digest, Sha256};
    let ours = crate::places::workspace_root().join("crates/sim/golden");
    let mut unpacked = 0;
    for entry in std::fs::read_dir(&ours).unwrap() {
        let golden = unpack(&entry.unwrap().path()).unwrap();
        for record in golden.manifest.images.iter().filter(|record| record.state == "ok") {
            let image = golden.directory().join(&record.file);
            let bytes = std::fs::read(&image).unwrap();
            assert_eq!(bytes.len() as u64, record.size, "{}", record.file);
            assert_eq!(Some(hex::encode(Sha256::digest(&bytes))), record.sha256, "{}", record.file);
        }
        assert!(golden.manifest.files() > 0);
        unpacked += 1;
    }
    assert!(unpacked >= 2, "{unpacked} pools in {}", ours.display());
}

#[test]
fn every_golden_manifest_is_understood() {
    let Some(out) = crate::places::in_shared("oracle/golden/out") else {
        crate::places::skipped("the manifests of all golden pools: no ../shared");
        return;
    };
    let mut read = 0;
    for entry in std::fs::read_dir(out).unwrap() {
        let path = entry.unwrap().path().join("manifest.json.zst");
        let manifest = Manifest::read(&path).unwrap();
        assert!(manifest.files() > 0, "{}", path.display());
        read += 1;
    }
    assert!(read > 50, "{read} manifests");
}
